export * from './errors.js';
export { Dictionary, Reader } from './reader.js';
