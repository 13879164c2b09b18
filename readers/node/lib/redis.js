// Reads packed values through ioredis and node-redis: plain ones come back, dictionaries from the
// registry.

import { BaleError, NotFoundError, UnknownDictionaryError, UnreadableError, hex } from './errors.js';
import { Dictionary, MAX_DICTIONARY, Reader } from './reader.js';

const RETRY_AFTER = 1000; // milliseconds before a dictionary that could not be had is asked for again
const MAX_FETCHED = 256; // dictionaries for a reply: as many as are kept. With more in turn each value would fetch one again
const REMEMBERED = 1000; // such dictionaries: forged frames can name as many as they like

// The type of Redis' strings, as node-redis maps it to what programs get.
const buffers = { [36]: Buffer };

const isIORedis = (client) => typeof client.getBuffer === 'function';

export class Registry {
  #clients;
  #prefix;
  #fetching = new Map(); // by id: what is under way, or has failed lately

  constructor(client, { prefix = 'bale:dict:', mirrors = [] } = {}) {
    this.#prefix = prefix;
    this.#clients = [client, ...mirrors].map((c) => (isIORedis(c) ? c : c.withTypeMapping(buffers)));
  }

  fetch(id) {
    let fetching = this.#fetching.get(id);
    if (!fetching) {
      if (this.#fetching.size >= REMEMBERED) this.#fetching.clear();
      fetching = this.#fetch(id);
      this.#fetching.set(id, fetching);
      const forget = () => this.#fetching.get(id) === fetching && this.#fetching.delete(id);
      fetching.then(forget, () => setTimeout(forget, RETRY_AFTER).unref());
    }
    return fetching;
  }

  async #fetch(id) {
    let why = `the registry (prefix ${this.#prefix}) does not hold it`;
    let cause;
    for (const client of this.#clients) {
      for (const kind of ['data', 'quarantine']) {
        const key = `${this.#prefix}${kind}:${hex(id)}`;
        try {
          // A dictionary, and one byte more, by which a longer value is found out.
          const content = await (isIORedis(client) ? client.getrangeBuffer(key, 0, MAX_DICTIONARY) : client.getRange(key, 0, MAX_DICTIONARY));
          if (!content?.length) continue;
          const dictionary = new Dictionary(content);
          if (dictionary.id === id) return dictionary;
          why = `key ${key} holds other bytes`;
        } catch (e) { // of the client, and of a size that no dictionary has
          [why, cause] = [`it could not be fetched: ${e.message}`, e];
        }
      }
    }
    throw new UnknownDictionaryError(id, why, { cause });
  }
}

/** Reads the values in replies, whatever their client. */
class Values {
  constructor(client, { registry = new Registry(client), reader = new Reader() }) {
    Object.assign(this, { registry, reader });
  }

  /** The content of a value; null for none, for a cached miss and for an expired one. */
  async value(stored, text, batch) {
    for (let last = false; ; last = true) {
      try {
        const content = this.reader.unpack(stored, { now: Date.now(), batch });
        return text ? content.toString() : content;
      } catch (e) {
        if (e instanceof NotFoundError) return null;
        if (last || !(e instanceof UnknownDictionaryError)) throw e;
        batch.fetched = (batch.fetched ?? 0) + 1;
        if (batch.fetched > MAX_FETCHED) throw new UnknownDictionaryError(e.dictionaryId, `the reply has asked for ${MAX_FETCHED} others`);
        this.reader.add(await this.registry.fetch(e.dictionaryId));
      }
    }
  }

  /** What a reply of Buffers says; at names a value by its index or field in the reply. Values follow each other: the first one that fails is the last. */
  async reply(reply, text, at, batch = { decoded: 0 }, part = undefined) {
    if (Buffer.isBuffer(reply)) {
      try {
        return await this.value(reply, text, batch);
      } catch (e) {
        throw e instanceof BaleError ? new UnreadableError(`${at(part)}: ${e.message}`, { cause: e }) : e;
      }
    }
    if (reply === null || typeof reply !== 'object') return reply;
    const parts = [];
    for (const [name, stored] of Array.isArray(reply) ? reply.entries() : Object.entries(reply)) {
      parts.push([name, await this.reply(stored, text, at, batch, name)]);
    }
    return Array.isArray(reply) ? parts.map(([, content]) => content) : fieldsOf(parts.filter(([, content]) => content !== null));
  }
}

/** An object whose fields may have any name. */
const fieldsOf = (entries) => Object.assign(Object.create(null), Object.fromEntries(entries));

const READS = new Set(['get', 'getex', 'getdel', 'mget', 'hget', 'hmget', 'hvals', 'hgetall']);

const MAX_NAME = 256; // others choose the fields of a hash, whose names may have 512 MB

/** A name that a terminal or a log can show: its start, without control characters and marks of direction. */
function quoted(name) {
  const text = String(name);
  const shown = JSON.stringify(text.slice(0, MAX_NAME)).replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt().toString(16)}}`);
  return text.length > MAX_NAME ? `${shown}...` : shown;
}

/** Names the values of a reply: the command, the key, and the index or field in a hash. */
function describe(name, args) {
  const words = args.flat().map(quoted);
  if (/^mget/i.test(name)) return (part) => `${name} ${words[part]}`;
  return (part) => `${name} ${words[0]}${part === undefined ? '' : `, value ${quoted(part)}`}`;
}

/** An object like target, but for the methods that `replaced` returns. */
function like(target, replaced) {
  return new Proxy(target, {
    get(_, name) {
      const replacement = typeof name === 'string' ? replaced(name) : undefined;
      if (replacement) return replacement;
      const value = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

/** The command of a method, and whether it returns text; undefined for one that reads no values. */
function readOf(name) {
  const command = name.replace(/Buffer$/, '');
  return READS.has(command.toLowerCase()) ? { command, text: command === name } : undefined;
}

export function plainIORedis(client, options = {}) {
  const values = new Values(client, options);
  const queue = (pipeline) => {
    const queued = [];
    const self = like(pipeline, (name) => {
      if (name === 'exec') {
        return async () => {
          const taken = queued.splice(0);
          const batch = { decoded: 0 };
          const replies = await pipeline.exec();
          return replies && Promise.all(replies.map(async ([failed, reply], i) => {
            const read = taken[i];
            if (failed || !read) return [failed, reply];
            return values.reply(reply, read.text, read.at, batch).then((content) => [null, content], (e) => [e, undefined]);
          }));
        };
      }
      if (typeof pipeline[name] !== 'function') return undefined;
      const read = readOf(name);
      return (...args) => {
        const result = pipeline[read ? `${read.command}Buffer` : name](...args);
        if (result !== pipeline) return result;
        queued.push(read && { text: read.text, at: describe(name, args) });
        return self;
      };
    });
    return self;
  };
  return like(client, (name) => {
    if (name === 'pipeline' || name === 'multi') return (...args) => queue(client[name](...args));
    const read = readOf(name);
    return read && (async (...args) => values.reply(await client[`${read.command}Buffer`](...args), read.text, describe(name, args)));
  });
}

/** A reply of Buffers as programs without a type mapping get it. */
function textual(reply) {
  if (Buffer.isBuffer(reply)) return reply.toString();
  if (Array.isArray(reply)) return reply.map(textual);
  if (reply === null || typeof reply !== 'object' || reply instanceof Error) return reply;
  return fieldsOf(Object.entries(reply).map(([field, value]) => [field, textual(value)]));
}

export function plainNodeRedis(client, { returnBuffers = false, ...options } = {}) {
  const values = new Values(client, options);
  const mapped = client.withTypeMapping(buffers);
  const text = !returnBuffers;
  const queue = (multi) => {
    const queued = [];
    const self = like(multi, (name) => {
      if (/^exec/i.test(name)) {
        return async (...args) => {
          const taken = queued.splice(0);
          if (!/pipeline/i.test(name) && !args[0] && taken.some(Boolean)) {
            throw new UnreadableError('node-redis decodes the replies of EXEC as text: read with execAsPipeline, or outside of the transaction');
          }
          const batch = { decoded: 0 };
          const replies = await multi[name](...args);
          return Promise.all(replies.map((reply, i) => (taken[i] ? values.reply(reply, text, taken[i], batch) : text ? textual(reply) : reply)));
        };
      }
      if (typeof multi[name] !== 'function') return undefined;
      return (...args) => {
        const result = multi[name](...args);
        if (result !== multi) return result;
        queued.push(readOf(name) && describe(name, args));
        return self;
      };
    });
    return self;
  };
  return like(client, (name) => {
    if (/^multi$/i.test(name)) return (...args) => queue(mapped.multi(...args));
    return readOf(name) && (async (...args) => values.reply(await mapped[name](...args), text, describe(name, args)));
  });
}
