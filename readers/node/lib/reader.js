// The reader: stored bytes to plain ones.

import { createHash } from 'node:crypto';
import { decoders } from './decode.js';
import { BaleError, CorruptError, NotFoundError, TooLargeError, UnknownAlgorithmError, UnknownDictionaryError } from './errors.js';
import { CHUNKS, NAMES, STORED, checksum, hasMagic, parse, parseTrailer } from './frame.js';

export const MAX_DICTIONARY = 1 << 20;
const LAST_VERSION = 2;
const MOST_DICTIONARIES = 256; // a context of zstd takes 100 KB and more, however small its dictionary

export class Dictionary {
  #prepared = {};

  constructor(content) {
    if (content.length < 16 || content.length > MAX_DICTIONARY) {
      throw new RangeError(`a dictionary of ${content.length} bytes, must be 16 to ${MAX_DICTIONARY}`);
    }
    this.content = Buffer.from(content);
    const digest = createHash('sha256').update(content).digest();
    this.id = 1;
    for (let at = 28; at >= 0; at -= 4) this.id = digest.readUInt32LE(at) || this.id;
  }

  /** What the decoder of an algorithm made of the dictionary. */
  prepared(algorithm) {
    return (this.#prepared[algorithm] ??= decoders[algorithm].prepare(this.content));
  }
}

export class Reader {
  #dictionaries = new Map(); // the least recently used first
  #bytes = 0;

  constructor({ dictionaries = [], maxSize = 64 << 20, strict = false, cacheSize = 16 << 20, budget = 256 << 20 } = {}) {
    Object.assign(this, { maxSize, strict, cacheSize, budget: Math.max(budget, maxSize) });
    for (const dictionary of dictionaries) this.add(dictionary);
  }

  add(dictionary) {
    if (this.#dictionaries.has(dictionary.id)) return;
    this.#dictionaries.set(dictionary.id, dictionary);
    this.#bytes += dictionary.content.length;
    for (const [id, oldest] of this.#dictionaries) {
      if (this.#dictionaries.size <= (this.#bytes > this.cacheSize ? 1 : MOST_DICTIONARIES)) break;
      this.#dictionaries.delete(id);
      this.#bytes -= oldest.content.length;
    }
  }

  // batch has how many bytes the packed values of a reply or pipeline have so far.
  unpack(stored, { now, batch = { decoded: 0 } } = {}) {
    stored = Buffer.isBuffer(stored) ? stored : Buffer.from(stored.buffer, stored.byteOffset, stored.byteLength);
    const header = parse(stored);
    if (!header) {
      if (this.strict && hasMagic(stored)) throw new CorruptError('starts like a frame, but its header check is wrong');
      return stored;
    }
    let payload = stored.subarray(header.payload);
    let expires = 0;
    if (header.version === 2) {
      const trailer = parseTrailer(payload);
      if (trailer.absent) throw new NotFoundError('the frame says that there is no value');
      expires = trailer.expires;
      payload = payload.subarray(0, -trailer.size);
    }
    const content = this.#decode(header, payload, batch);
    if (now !== undefined && expires && expires <= now) throw new NotFoundError('the value has expired');
    return content;
  }

  #decode(header, payload, batch) {
    const { algorithm, length, dictionaryId } = header;
    const decoder = decoders[algorithm];
    if (length > this.maxSize) throw new TooLargeError(`${length} bytes decoded, and maxSize is ${this.maxSize}`);
    if (header.version > LAST_VERSION) throw new UnknownAlgorithmError(`frame version ${header.version}: upgrade balekv`);
    if (algorithm === CHUNKS) throw new UnknownAlgorithmError('the value is a stream, in chunks under other keys, which only Go reads');
    if (!decoder) throw new UnknownAlgorithmError(`algorithm ${algorithm}: upgrade balekv`);
    if (payload.length > length + Math.floor(length / 6) + 1024) {
      throw new CorruptError(`a payload of ${payload.length} bytes for ${length} decoded`);
    }
    if (length === 0 && algorithm !== STORED) throw new CorruptError('no bytes, and compressed all the same'); // no writer does so
    let content;
    try {
      const prepared = dictionaryId ? this.#dictionary(dictionaryId, decoder, algorithm) : undefined;
      if (length > this.budget - batch.decoded) {
        throw new TooLargeError(`${length} bytes more than the ${batch.decoded} decoded so far, and budget is ${this.budget}`);
      }
      batch.decoded += length;
      content = decoder.decode(payload, length, prepared);
    } catch (e) { // each library has its own
      throw e instanceof BaleError ? e : new CorruptError(`${NAMES[algorithm]}: ${e.message}`, { cause: e });
    }
    if (content.length !== length) throw new CorruptError(`${content.length} bytes decoded, ${length} expected`);
    if (header.checksum !== undefined && checksum(content) !== header.checksum) {
      throw new CorruptError('the checksum of the content differs');
    }
    return content;
  }

  #dictionary(id, decoder, algorithm) {
    if (!decoder.prepare) throw new UnknownDictionaryError(id, `${NAMES[algorithm]} takes none`);
    const dictionary = this.#dictionaries.get(id);
    if (!dictionary) throw new UnknownDictionaryError(id);
    this.#dictionaries.delete(id);
    this.#dictionaries.set(id, dictionary);
    return dictionary.prepared(algorithm);
  }
}
