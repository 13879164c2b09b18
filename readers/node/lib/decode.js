// Payloads, each decoded by its algorithm's stock library. A decoder takes a payload, the length
// that the header claims, and what `prepare` made of a dictionary, undefined for none. It allocates
// no more than the length, and may return fewer bytes.

import { createRequire } from 'node:module';
import zlib from 'node:zlib';
import { CorruptError, UnknownAlgorithmError } from './errors.js';
import { GZIP, LZ4, S2, SNAPPY, STORED, ZSTD } from './frame.js';

const require = createRequire(import.meta.url);

/** A library that may not be installed. */
function optional(name) {
  try {
    return require(name);
  } catch {
    return undefined;
  }
}

function needed(library, algorithm, how) {
  if (!library) throw new UnknownAlgorithmError(`packed with ${algorithm}: ${how}`);
  return library;
}

const lz4 = optional('lz4-napi');
const snappy = optional('snappy');

const ZSTD_MAGIC = Buffer.from([0x28, 0xb5, 0x2f, 0xfd]);
const LZ4_DICTIONARY = 64 << 10;

// zstd-napi keeps its contexts, with digested dictionaries.
function napi() {
  const library = optional('zstd-napi/binding.js');
  if (!library) return undefined;
  const context = (dictionary) => {
    const c = new library.DCtx();
    if (dictionary) c.loadDictionary(dictionary);
    return c;
  };
  const plain = context();
  return {
    prepare: context,
    decode(frame, length, c = plain) {
      const content = Buffer.allocUnsafe(length);
      try {
        const [left, size, used] = c.decompressStream(content, frame);
        return left === 0 && used === frame.length ? content.subarray(0, size) : undefined;
      } finally {
        c.reset(library.ResetDirective.sessionOnly);
      }
    },
  };
}

// zlib has zstd from Node 22.15 on. It takes dictionaries from 22.19 and 24.6 on: earlier ones ignore
// the option.
function builtin() {
  const sample = Buffer.from('a dictionary that the compressed value is a part of');
  const takesDictionary = () =>
    zlib.zstdCompressSync(sample, { dictionary: sample }).length < zlib.zstdCompressSync(sample).length;
  if (!zlib.zstdDecompressSync || !takesDictionary()) return undefined;
  return {
    prepare: (dictionary) => dictionary,
    decode(frame, length, dictionary) {
      const { buffer, engine } = zlib.zstdDecompressSync(frame, {
        dictionary, maxOutputLength: length, chunkSize: Math.max(length, 64), info: true,
      });
      return engine.bytesWritten === frame.length ? buffer : undefined;
    },
  };
}

/** What decodes zstd, the fastest first; those that are not there are undefined. */
export const engines = [napi, builtin];

export const zstdDecoder = (engine) => ({
  prepare: (dictionary) => engine?.prepare(dictionary),
  decode(payload, length, prepared) {
    const library = needed(engine, 'zstd', 'it takes Node 24.6, 22.19 or later, or npm install zstd-napi');
    const content = library.decode(zstdFrame(payload, length), length, prepared);
    if (!content) throw new CorruptError('the zstd frame does not end where the payload does');
    return content;
  },
});

/** A standard frame that states the length, so that the library allocates just that. */
function zstdFrame(payload, length) {
  const descriptor = payload[0];
  const single = (descriptor >> 5) & 1;
  const size = [single, 2, 4, 8][descriptor >> 6];
  const at = 2 - single + [0, 1, 2, 4][descriptor & 3];
  if (payload.length < at + size) throw new CorruptError('the zstd frame is cut short');
  if (size > 0) {
    const stated = size === 8 ? Number(payload.readBigUInt64LE(at)) : payload.readUIntLE(at, size) + (size === 2 ? 256 : 0);
    if (stated !== length) throw new CorruptError(`the zstd frame holds ${stated} bytes, ${length} expected`);
  }
  // A frame without its end, or with more behind it, would make zstd-napi keep a buffer for its content.
  let end = at + size;
  for (let block = 0; !(block & 1); end += 3 + ((block & 6) === 2 ? 1 : block >> 3)) {
    if (payload.length < end + 3) throw new CorruptError('the zstd frame is cut short');
    block = payload.readUIntLE(end, 3);
    if ((block & 6) === 6) throw new CorruptError('the zstd frame has a block of an unknown kind');
  }
  if (payload.length !== end + (descriptor & 4)) throw new CorruptError('the zstd frame does not end where the payload does');
  const start = Buffer.alloc(ZSTD_MAGIC.length + at + 8);
  ZSTD_MAGIC.copy(start);
  payload.copy(start, ZSTD_MAGIC.length, 0, at);
  start[ZSTD_MAGIC.length] |= 0xc0;
  start.writeBigUInt64LE(BigInt(length), ZSTD_MAGIC.length + at);
  return Buffer.concat([start, payload.subarray(at + size)]);
}

function decodeLZ4(payload, length, tail) {
  const library = needed(lz4, 'lz4', 'npm install lz4-napi');
  if (length > 255 * payload.length) throw new CorruptError(`lz4: ${payload.length} bytes cannot hold ${length}`);
  const size = Buffer.alloc(4); // which the library wants in front
  size.writeUInt32LE(length);
  return library.uncompressSync(Buffer.concat([size, payload]), tail);
}

function decodeSnappy(payload, length) {
  const library = needed(snappy, 'snappy', 'npm install snappy');
  if (length > 22 * payload.length) { // a copy of 64 bytes takes 3
    throw new CorruptError(`snappy: ${payload.length} bytes cannot hold ${length}`);
  }
  return library.uncompressSync(payload, { asBuffer: true });
}

function decodeS2() {
  throw new UnknownAlgorithmError('packed with s2, which no Node library reads: pack with zstd, or read through bale proxy');
}

function decodeGzip(payload, length) {
  const { buffer, engine } = zlib.gunzipSync(payload, { maxOutputLength: length, chunkSize: Math.max(length, 64), info: true });
  if (engine.bytesWritten !== payload.length) throw new CorruptError('gzip: the member does not end where the payload does');
  return buffer;
}

/** By algorithm; those without `prepare` take no dictionary. */
export const decoders = {
  [STORED]: { decode: (payload) => payload },
  [SNAPPY]: { decode: decodeSnappy },
  [S2]: { decode: decodeS2, prepare: (dictionary) => dictionary },
  [LZ4]: { decode: decodeLZ4, prepare: (dictionary) => dictionary.subarray(-LZ4_DICTIONARY) },
  [GZIP]: { decode: decodeGzip },
  [ZSTD]: zstdDecoder(napi() ?? builtin()),
};
