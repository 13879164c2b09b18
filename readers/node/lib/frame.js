// The header and the trailer of a frame, as the comment of bale's Go package frame has them.

import crc32 from '@node-rs/crc32';
import { CorruptError, UnknownAlgorithmError } from './errors.js';

export const [STORED, SNAPPY, S2, LZ4, GZIP, ZSTD, CHUNKS] = [0, 1, 2, 3, 4, 5, 6];
export const NAMES = ['none', 'snappy', 's2', 'lz4', 'gzip', 'zstd', 'chunks'];

const TRAILER_SIZE = 11;
const FRESHNESS = 1;
const ABSENT = 0xffff;

export const hasMagic = (b) => b.length >= 2 && b[0] === 0xba && b[1] === 0x1e;

export const checksum = (content) => crc32.crc32c(content);

const check = (...parts) => {
  const c = parts.reduce((c, part) => crc32.crc32c(part, c), 0);
  return (c >>> 16) ^ (c & 0xffff);
};

/** The header of a frame, undefined for a value that was stored without bale. */
export function parse(stored) {
  if (stored.length <= 5 || !hasMagic(stored)) return undefined;
  const tag = stored[2];
  const header = { version: (tag >> 6) + 1, algorithm: tag & 15, checksum: undefined, dictionaryId: 0, length: 0, payload: 5 };
  const fields = (tag & 0x10 ? 4 : 0) + (tag & 0x20 ? 4 : 0);
  if (stored.length <= 5 + fields) return undefined;
  if (tag & 0x10) {
    header.checksum = stored.readUInt32LE(5);
    header.payload += 4;
  }
  if (tag & 0x20) {
    header.dictionaryId = stored.readUInt32LE(header.payload);
    header.payload += 4;
    if (header.dictionaryId === 0) return undefined;
  }
  let end = header.payload;
  for (let factor = 1; ; factor *= 128) {
    if (end >= stored.length || end - header.payload === 9) return undefined;
    const byte = stored[end++];
    header.length += (byte & 127) * factor; // not exact beyond 2^53, which no reader takes
    if (byte === 0 && factor > 1) return undefined; // not the shortest form
    if (byte < 128) break;
  }
  if (check(stored.subarray(0, 3), stored.subarray(5, end)) !== stored.readUInt16LE(3)) return undefined;
  if (header.algorithm !== SNAPPY && header.algorithm !== S2) header.payload = end; // else the length is the payload's own
  return header;
}

/** The trailer at the end of the payload of version 2: expires in milliseconds since 1970, 0 for never. */
export function parseTrailer(payload) {
  const kind = payload.at(-3);
  if (kind !== undefined && kind !== FRESHNESS) {
    throw new UnknownAlgorithmError(`the frame has a trailer of kind ${kind}: upgrade balekv`);
  }
  const t = payload.subarray(-TRAILER_SIZE);
  if (t.length < TRAILER_SIZE || check(t.subarray(0, -2)) !== t.readUInt16LE(TRAILER_SIZE - 2)) {
    throw new CorruptError('trailer checksum mismatch: the value is damaged, or cut');
  }
  return { expires: t.readUIntLE(0, 6), absent: t.readUInt16LE(6) === ABSENT, size: TRAILER_SIZE };
}
