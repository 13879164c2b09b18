// Reads packed values through ioredis and node-redis: plain ones come back, dictionaries from the
// registry.

import { callbackify } from 'node:util';
import { BaleError, NotFoundError, UnknownDictionaryError, UnreadableError, hex } from './errors.js';
import { Dictionary, MAX_DICTIONARY, Reader } from './reader.js';

const RETRY_AFTER = 1000; // milliseconds before a dictionary that could not be had is asked for again
const MAX_FETCHED = 256; // dictionaries for a reply: as many as are kept. With more in turn each value would fetch one again
const REMEMBERED = 1000; // such dictionaries: forged frames can name as many as they like

// The types of Redis' strings and maps, as node-redis maps them to what programs get.
const STRING = 36;
const MAP = 37;
const buffers = { [STRING]: Buffer };

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
    if (ArrayBuffer.isView(reply)) { // a hash can have Buffer as its prototype
      try {
        return await this.value(reply, text, batch);
      } catch (e) {
        throw e instanceof BaleError ? new UnreadableError(`${at(part)}: ${e.message}`, { cause: e }) : e;
      }
    }
    if (typeof reply === 'string') throw new UnreadableError(`${at(part)}: the client has decoded its bytes as text`);
    if (reply === null || typeof reply !== 'object') return reply;
    const parts = [];
    const isMap = reply instanceof Map; // by a reply transformer
    const isPairs = at.isFlat && part === undefined && Array.isArray(reply);
    for (const [name, stored] of isPairs ? pairsOf(reply) : Array.isArray(reply) || isMap ? reply.entries() : Object.entries(reply)) {
      parts.push([(isMap || isPairs) && text ? String(name) : name, await this.reply(stored, text, at, batch, name)]);
    }
    if (Array.isArray(reply) && !isPairs) return parts.map(([, content]) => content);
    const there = parts.filter(([, content]) => content !== null);
    if (isPairs) return there.flat();
    return isMap ? new Map(there) : fieldsOf(there);
  }
}

/** The fields of a hash in a flat list, each with its value. */
const pairsOf = (list) => list.flatMap((name, i) => (i % 2 ? [] : [[name, list[i + 1]]]));

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

/** Names the values of a reply: the command, the key, and the index or field in a hash. A client with flat lists for hashes says so. */
function describe(name, args, flat = false) {
  const words = args.flat().map(quoted);
  if (/^mget/i.test(name)) return (part) => `${name} ${words[part]}`;
  const at = (part) => `${name} ${words[0]}${part === undefined ? '' : `, value ${quoted(part)}`}`;
  return Object.assign(at, { isFlat: flat && /^hgetall$/i.test(name) });
}

/** An object like target, but for the methods that `replaced` returns. Methods that return target, or a promise of it, return this object: client.on(...).connect() goes on reading. */
function like(target, replaced) {
  const own = (result) => (result === target ? self : result);
  const self = new Proxy(target, {
    get(_, name) {
      const replacement = typeof name === 'string' ? replaced(name) : undefined;
      if (replacement) return replacement;
      const value = Reflect.get(target, name, target);
      if (typeof value !== 'function' || /^([A-Z]|constructor$)/.test(String(name))) return value; // or a class
      return (...args) => {
        const result = value.apply(target, args);
        if (typeof args.at(-1) === 'function') return own(result); // with a callback, no one may wait for a promise: one of ours would be an unhandled rejection
        return result instanceof Promise ? result.then(own) : own(result);
      };
    },
  });
  return self;
}

/** The command of a method, and whether it returns text; undefined for one that reads no values. */
function readOf(name) {
  const command = name.replace(/Buffer$/, '');
  return READS.has(command.toLowerCase()) ? { command, text: command === name } : undefined;
}

/** The replies, if they fit the commands in a client's own queue: it alone knows all of them. */
function match(replies, commands) {
  if (replies.length === commands.length) return replies;
  throw new UnreadableError(`${replies.length} replies to ${commands.length} commands: no value belongs to a key`);
}

/** What read makes of the replies, one after the other: the first value with a dictionary fetches it for all. */
async function inTurn(replies, read) {
  const contents = [];
  for (const [i, reply] of replies.entries()) contents.push(await read(reply, i));
  return contents;
}

const unknownQueue = (client) => new UnreadableError(`this version of ${client} has no queue of a pipeline that balekv knows: upgrade balekv`);

/** Gives the outcome of a promise to a callback as well: the last argument, which the client must not get. */
function answer(promise, callback) {
  if (callback) callbackify(() => promise)(callback);
  return promise;
}

const callbackOf = (args) => (typeof args.at(-1) === 'function' ? args.pop() : undefined);

export function plainIORedis(client, options = {}) {
  const values = new Values(client, options);
  const queue = (pipeline, transaction) => {
    const texts = new WeakSet(); // the commands in the queue that return text
    const callbacks = new Map(); // by command, as
    const outcomes = new Map(); // what they get
    const queued = () => {
      if (!pipeline._queue?.every(({ name, args }) => name && args)) throw unknownQueue('ioredis');
      return pipeline._queue;
    };
    /** Has ioredis return bytes for reads, and for the EXEC around them. */
    const prepare = () => {
      for (const command of queued()) {
        const name = command.name.toLowerCase();
        if (!('replyEncoding' in command)) throw unknownQueue('ioredis');
        if (READS.has(name) && command.replyEncoding) texts.add(command);
        if (READS.has(name)) command.replyEncoding = null;
        if (name === 'exec') Object.assign(command, { name, replyEncoding: null });
      }
    };
    const read = async (batch, command, reply) => {
      if (reply instanceof Error || !READS.has(command?.name.toLowerCase())) return reply;
      return values.reply(reply, texts.has(command), describe(command.name.toLowerCase(), command.args), batch);
    };
    const plain = async (replies) => {
      if (!replies) return replies; // a watched key has changed
      const sent = queued().filter((command) => !command.ignore); // which a cluster adds
      const commands = transaction ? sent.slice(1, -1) : sent;
      const batch = { decoded: 0 };
      const outcomeOf = async (command, i, [failed, reply]) => {
        if (failed) return [failed, reply];
        if (command.name === 'exec' && Array.isArray(reply)) {
          const first = i - reply.length;
          return [null, await inTurn(reply, (part, j) => read(batch, commands[first + j], part).catch((e) => e))];
        }
        return read(batch, command, reply).then((content) => [null, content], (e) => [e, undefined]);
      };
      return inTurn(match(replies, commands), async (reply, i) => {
        const outcome = await outcomeOf(commands[i], i, reply);
        outcomes.set(commands[i], outcome);
        return outcome;
      });
    };
    /** Gives a command's part of the replies to its callback. */
    const tell = (replies, command, callback) => answer(replies.then(() => {
      const [failed, content = null] = outcomes.get(command) ?? [];
      if (failed) throw failed;
      return content;
    }), callback);
    queued();
    const self = like(pipeline, (name) => {
      if (name === 'addBatch') {
        return (commands) => {
          for (const [command, ...args] of commands) self[command](...args);
          return self;
        };
      }
      if (typeof pipeline[name] !== 'function') return undefined;
      return (...args) => {
        const executes = /^exec(Buffer)?$/.test(name);
        const callback = executes || readOf(/^call|^send_command$/.test(name) ? String(args[0]) : name) ? callbackOf(args) : undefined;
        if (executes) prepare();
        const result = pipeline[name](...args);
        if (result === pipeline) { // as for an EXEC in the queue
          if (callback) callbacks.set(pipeline._queue.at(-1), callback);
          return self;
        }
        if (!executes) return result;
        const replies = result.then(plain);
        for (const [command, each] of callbacks) tell(replies, command, each);
        callbacks.clear();
        return answer(replies, callback);
      };
    });
    return self;
  };
  return like(client, (name) => {
    if (name === 'pipeline' || name === 'multi') {
      return (...args) => {
        if (args.some((options) => options?.pipeline === false)) return client[name](...args); // MULTI alone
        const self = queue(client[name](), name === 'multi');
        return Array.isArray(args[0]) ? self.addBatch(args[0]) : self;
      };
    }
    if (name === 'duplicate') return (...args) => plainIORedis(client.duplicate(...args), { ...options, reader: values.reader });
    const read = readOf(name);
    return read && ((...args) => {
      const callback = callbackOf(args);
      const reply = async () => values.reply(await client[`${read.command}Buffer`](...args), read.text, describe(name, args));
      return answer(reply(), callback);
    });
  });
}

/** A reply of Buffers and Maps as node-redis decodes it by another type mapping. */
function decoded(reply, mapping) {
  const part = (value) => decoded(value, mapping);
  if (ArrayBuffer.isView(reply)) return mapping[STRING] === Buffer ? reply : reply.toString();
  if (Array.isArray(reply)) return reply.map(part);
  if (reply instanceof Set) return new Set([...reply].map(part));
  if (reply === null || typeof reply !== 'object' || reply instanceof Error || reply instanceof String) return reply;
  const entries = [...(reply instanceof Map ? reply : Object.entries(reply))].map((pair) => pair.map(part));
  return mapping[MAP] === Map && reply instanceof Map ? new Map(entries) : Object.fromEntries(entries);
}

/** The hash of a reply as programs get it. */
const hashOf = (content, mapping) => (content instanceof Map && mapping[MAP] !== Map ? fieldsOf(content) : content);

/** The class of node-redis' queues, which reads what is in them. mapping is that of replies to programs. */
function readingMulti(Multi, values, mapping) {
  const text = mapping[STRING] !== Buffer;
  const isRead = ({ args }) => READS.has(String(args[0]).toLowerCase());
  return class extends Multi {
    #queue = [];

    constructor(executeMulti, executePipeline, ...rest) {
      if (typeof executeMulti !== 'function' || typeof executePipeline !== 'function') throw unknownQueue('node-redis');
      const taking = (send, transaction) => async (...args) => {
        const queue = args.find(Array.isArray);
        if (!queue?.every((command) => Array.isArray(command.args))) throw unknownQueue('node-redis');
        if (transaction && queue.some(isRead)) {
          throw new UnreadableError('node-redis decodes the replies of EXEC as text: read with execAsPipeline, or outside of the transaction');
        }
        this.#queue = [...queue];
        for (const command of queue) {
          const { transformReply = (reply) => reply } = command;
          command.transformReply = (reply, preserve, sent) => (isRead(command)
            ? transformReply(decoded(reply, { ...mapping, ...buffers }), preserve, sent)
            : transformReply(decoded(reply, mapping), preserve, mapping));
        }
        return send(...args);
      };
      super(taking(executeMulti, true), taking(executePipeline, false), ...rest);
    }

    async exec(asPipeline = false) {
      return asPipeline ? this.execAsPipeline() : this.#plain(await super.exec());
    }

    async execAsPipeline() {
      return this.#plain(await super.execAsPipeline());
    }

    #plain(replies) {
      const batch = { decoded: 0 };
      return inTurn(match(replies, this.#queue), async (reply, i) => {
        const [name, ...args] = this.#queue[i].args;
        if (!isRead(this.#queue[i])) return reply;
        return hashOf(await values.reply(reply, text, describe(String(name).toLowerCase(), args, true), batch), mapping);
      });
    }
  };
}

const DERIVES = /^(with[A-Z]\w*|asap)$/; // a client on the same connection

/** Whether a type mapping of node-redis asks for Buffers, which it need not say. */
const asksBuffers = (mapping, otherwise) => (mapping && 36 in mapping ? mapping[36] === Buffer : otherwise);

/** The type mapping of a client; that of a sentinel has another name. */
const mappingOf = (client) => client._commandOptions?.typeMapping ?? client.commandOptions?.typeMapping;

export function plainNodeRedis(client, { returnBuffers = asksBuffers(mappingOf(client), false), ...options } = {}) {
  const values = new Values(client, options);
  const mapping = { ...mappingOf(client), [STRING]: returnBuffers ? Buffer : String };
  const sent = { ...mapping, ...buffers };
  if (sent[MAP] !== Array) sent[MAP] = Map; // node-redis would take a Buffer in __proto__ as the object's prototype
  const mapped = client.withTypeMapping(sent);
  const Multi = readingMulti(mapped.Multi ?? Object, values, mapping);
  const execute = (fn) => mapped.execute((pooled) => fn(pooled.withTypeMapping(sent))); // of a pool
  const reading = Object.create(mapped, { Multi: { value: Multi }, execute: { value: execute } });
  return like(client, (name) => {
    if (name === 'multi' || name === 'MULTI') {
      return (...args) => {
        const multi = reading[name](...args);
        if (!(multi instanceof Multi)) throw unknownQueue('node-redis');
        return multi;
      };
    }
    if (name === 'duplicate' || name === 'createPool') return (...args) => plainNodeRedis(client[name](...args), { returnBuffers, ...options, reader: values.reader });
    if (DERIVES.test(name) && typeof client[name] === 'function') {
      return (...args) => {
        const buffers = asksBuffers(name === 'withTypeMapping' ? args[0] : args[0]?.typeMapping, returnBuffers);
        return plainNodeRedis(client[name](...args), { ...options, returnBuffers: buffers, registry: values.registry, reader: values.reader });
      };
    }
    return readOf(name) && (async (...args) => hashOf(await values.reply(await mapped[name](...args), !returnBuffers, describe(name, args, true)), mapping));
  });
}
