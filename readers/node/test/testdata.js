import { readFileSync } from 'node:fs';
import * as balekv from '../lib/index.js';
import { S2, parse } from '../lib/frame.js';

export const root = new URL('../../../', import.meta.url);
const testdata = new URL('frame/testdata/', root);

const names = {
  CorruptError: 'corrupt', TooLargeError: 'too large', NotFoundError: 'not found',
  UnknownDictionaryError: 'unknown dictionary', UnknownAlgorithmError: 'unknown algorithm',
};

export const readVectors = (file) => readFileSync(new URL(file, testdata), 'utf8').trim().split('\n').map((line) => JSON.parse(line));

export const readDictionaries = () =>
  ['raw.dict', 'trained.dict'].map((file) => new balekv.Dictionary(readFileSync(new URL(file, testdata))));

export const header = (v) => parse(Buffer.from(v.stored, 'hex'));

/** The content in hexadecimal, or the name of the error. */
export function verdict(reader, vector) {
  try {
    return reader.unpack(Buffer.from(vector.stored, 'hex')).toString('hex');
  } catch (e) {
    if (!(e.name in names)) throw e;
    return names[e.name];
  }
}

/** Go's verdict. S2 cannot be decoded here, and reported only that. */
export function expected(v) {
  const want = v.error ?? v.content ?? '';
  if (header(v)?.algorithm !== S2 || ['not found', 'too large'].includes(want)) return [want];
  return v.error ? [want, 'unknown algorithm'] : ['unknown algorithm'];
}
