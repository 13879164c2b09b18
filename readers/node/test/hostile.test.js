// Values that somebody wrote to do harm.

import crc32 from '@node-rs/crc32';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Dictionary, Reader } from '../lib/index.js';
import { plainIORedis, plainNodeRedis } from '../lib/redis.js';

function frame(algorithm, length, payload, dictionaryId = 0) {
  const id = Buffer.alloc(dictionaryId && 4);
  if (dictionaryId) id.writeUInt32LE(dictionaryId);
  const size = [];
  for (; length > 127; length >>= 7) size.push((length & 127) | 128);
  const start = Buffer.from([0xba, 0x1e, algorithm | (dictionaryId && 0x20)]);
  const rest = Buffer.concat([id, Buffer.from([...size, length])]);
  const c = crc32.crc32c(rest, crc32.crc32c(start));
  const check = (c >>> 16) ^ (c & 0xffff);
  return Buffer.concat([start, Buffer.from([check & 255, check >> 8]), rest, payload]);
}

/** A payload of zstd with blocks of 128 KiB, each in four bytes. */
function repeated(blocks) {
  const bytes = [0, 16 << 3]; // a window of 64 MiB
  for (let i = 0; i < blocks; i++) {
    const header = ((128 << 10) << 3) | (1 << 1) | Number(i === blocks - 1);
    bytes.push(header & 255, (header >> 8) & 255, header >> 16, 120);
  }
  return Buffer.from(bytes);
}

const mib = () => frame(5, 1 << 20, repeated(8));

/** A client of ioredis whose hash and strings have these values. */
const ioredis = (values, getrangeBuffer) => ({
  getBuffer: async () => values[0],
  mgetBuffer: async () => values,
  hgetallBuffer: async () => ({ ...values }),
  getrangeBuffer,
  pipeline() {
    const getBuffer = function (key) {
      this._queue.push({ name: 'get', args: [key], replyEncoding: null });
      return this;
    };
    return { _queue: [], getBuffer, exec: async () => values.map((v) => [null, v]) };
  },
});

/** A client of node-redis with these replies to pipelines. */
function nodeRedis(values, options) {
  class Multi {
    #execute;
    #queue = [];

    constructor(_, execute) {
      this.#execute = execute;
    }

    get(key) {
      this.#queue.push({ args: ['GET', key] });
      return this;
    }

    execAsPipeline() {
      return this.#execute(this.#queue);
    }
  }
  const client = { Multi, withTypeMapping: () => client, multi() { return new this.Multi(() => {}, async () => values); } };
  return plainNodeRedis(client, options);
}

test('budget', async () => {
  const reader = new Reader({ maxSize: 1 << 20, budget: 3 << 20 });
  const good = plainIORedis(ioredis([mib(), mib(), mib()]), { reader });
  for (let i = 0; i < 2; i++) assert.deepEqual((await good.mgetBuffer('a', 'b', 'c')).map((v) => v.length), [1 << 20, 1 << 20, 1 << 20]);
  const values = [mib(), mib(), Buffer.from('plain'), mib(), mib()];
  const r = plainIORedis(ioredis(values), { reader });
  const beyond = { name: 'UnreadableError', message: /decoded so far, and budget is 3145728/ };
  await assert.rejects(r.mget('a', 'b', 'c', 'd', 'e'), beyond);
  await assert.rejects(r.hgetallBuffer('h'), beyond);
  const queue = r.pipeline();
  for (const key of 'abcde') queue.getBuffer(key);
  assert.equal((await queue.exec()).filter(([e]) => e).length, 1);

  const queued = nodeRedis(values, { reader }).multi();
  for (const key of 'abcde') queued.get(key);
  await assert.rejects(queued.execAsPipeline(), beyond);
  assert.equal(new Reader({ budget: 1 }).unpack(mib()).length, 1 << 20, 'maxSize bounds a single value');
});

test('replies that do not fit', async () => {
  const values = [Buffer.from('a'), Buffer.from('b')];
  const unfit = { name: 'UnreadableError', message: /2 replies to 1 commands/ };
  await assert.rejects(plainIORedis(ioredis(values)).pipeline().getBuffer('a').exec(), unfit);
  await assert.rejects(nodeRedis(values).multi().get('a').execAsPipeline(), unfit);
});

test('pipelines of another version', async () => {
  const unknown = { name: 'UnreadableError', message: /no queue of a pipeline that balekv knows/ };
  const client = { getBuffer() {}, pipeline: () => ({}), withTypeMapping: () => client, multi: () => ({}) };
  assert.throws(() => plainIORedis(client).pipeline(), unknown);
  assert.throws(() => plainNodeRedis(client).multi(), unknown);
  const queue = plainIORedis({ ...client, pipeline: () => ({ _queue: [{ name: 'get', args: [] }], exec() {} }) }).pipeline();
  assert.throws(() => queue.exec(), unknown);
});

test('a hash with many unknown dictionaries', async () => {
  let asked = 0;
  const values = [...Array(1000).keys()].map((i) => frame(5, 5, Buffer.alloc(1), i + 1));
  const r = plainIORedis(ioredis(values, async () => (asked++, Buffer.alloc(0))));
  await assert.rejects(r.hgetall('h'), { name: 'UnreadableError', message: /unknown dictionary 00000001/ });
  await new Promise(setImmediate);
  assert.equal(asked, 2);
});

test('names in errors', async () => {
  const name = 'a\u001b[31m\u202e\u009b\u2028';
  const client = { getBuffer() {}, hgetallBuffer: async () => ({ [name]: frame(5, 5, Buffer.alloc(1)) }) };
  await assert.rejects(plainIORedis(client).hgetall(name), (e) => {
    assert.match(e.message, /^hgetall "a\\u001b\[31m\\u\{202e\}\\u\{9b\}\\u\{2028\}", value "a\\u001b/);
    return !/[\p{C}\u2028]/u.test(e.message);
  });
});

test('long names in errors', async () => {
  const name = '\u0001'.repeat(1 << 20);
  const bad = frame(5, 5, Buffer.alloc(1));
  const client = { getBuffer: async () => bad, mgetBuffer: async () => [bad], hgetallBuffer: async () => ({ [name]: bad }) };
  const r = plainIORedis(client);
  for (const read of [r.hgetall('h'), r.get(name), r.mget(name)]) {
    await assert.rejects(read, (e) => e.name === 'UnreadableError' && e.message.includes('\\u0001"...') && e.message.length < 2000);
  }
});

test('frames of zstd without their end', async () => {
  const dictionaries = [...Array(20).keys()].map((i) => new Dictionary(Buffer.alloc(100, `dictionary ${i}`)));
  const reader = new Reader({ dictionaries });
  const whole = repeated(512);
  const before = process.memoryUsage().rss;
  for (const { id } of dictionaries) {
    for (const payload of [whole.subarray(0, -4), Buffer.concat([whole, whole])]) {
      assert.throws(() => reader.unpack(frame(5, 64 << 20, payload, id)), { name: 'CorruptError' });
    }
  }
  assert.ok(process.memoryUsage().rss - before < 512 << 20, 'contexts keep no buffers');
});

test('tiny dictionaries', () => {
  const all = [...Array(1000).keys()].map((i) => new Dictionary(Buffer.from(String(i).padStart(16))));
  const reader = new Reader({ dictionaries: all });
  const known = (d) => {
    try {
      reader.unpack(frame(3, 5, Buffer.from([0]), d.id));
    } catch (e) {
      return e.name !== 'UnknownDictionaryError';
    }
    return true;
  };
  assert.equal(all.filter(known).length, 256);
});

test('dictionaries that a reply fetches', async () => {
  const dictionaries = [0, 1].map((i) => new Dictionary(Buffer.from(String(i).padStart(16, '0'))));
  const values = Array.from({ length: 1000 }, (_, i) => frame(5, 1, Buffer.from([0, 0, 9, 0, 0, 120]), dictionaries[i % 2].id));
  let fetched = 0;
  const client = ioredis(values, async (key) => {
    fetched++;
    return dictionaries.find((d) => key.endsWith(d.id.toString(16).padStart(8, '0'))).content;
  });
  const r = plainIORedis(client, { reader: new Reader({ cacheSize: 16 }) }); // which keeps one
  await assert.rejects(r.mget(values.map(String)), /the reply has asked for 256 others/);
  assert.equal(fetched, 256);
});
