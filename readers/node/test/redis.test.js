// What a Go program writes through a roll-out of dictionaries, read through the real clients.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import util from 'node:util';
import { Cluster, Redis } from 'ioredis';
import { VerbatimString, createClient, createCluster } from 'redis';
import { UnreadableError } from '../lib/index.js';
import { Registry, plainIORedis, plainNodeRedis } from '../lib/redis.js';
import { run, skip } from './writer.js';

const unreadable = Symbol('unreadable');

function content(entry) {
  if (entry.error === 'not found') return null;
  return entry.error ? unreadable : Buffer.from(entry.content, 'hex');
}

/** The strings, and the hashes by field. */
function split(phase) {
  const strings = new Map();
  const hashes = {};
  for (const e of phase.values) {
    if (e.field) (hashes[e.key] ??= {})[e.field] = content(e);
    else strings.set(e.key, content(e));
  }
  return [strings, hashes];
}

const outcome = (e, key) => {
  assert.ok(e instanceof UnreadableError, e);
  assert.match(e.message, new RegExp(key));
  return unreadable;
};

const text = (value) => (Buffer.isBuffer(value) ? value.toString() : value);

async function checkIORedis(r, phase, transactions) {
  const [strings, hashes] = split(phase);
  const keys = [...strings.keys()];
  for (const [key, want] of strings) {
    assert.deepEqual(await r.getBuffer(key).catch((e) => outcome(e, key)), want, key);
    assert.deepEqual(await r.get(key).catch((e) => outcome(e, key)), text(want), key);
  }
  const good = keys.filter((key) => strings.get(key) !== unreadable);
  if (transactions) { // on a cluster the keys are in many slots
    assert.deepEqual(await r.mgetBuffer(...good), good.map((key) => strings.get(key)));
    if (good.length < keys.length) {
      const first = keys.find((key) => !good.includes(key));
      await assert.rejects(r.mget(keys), { name: 'UnreadableError', message: new RegExp(`^mget "${first}": `) });
    }
  }
  for (const [key, fields] of Object.entries(hashes)) {
    const names = Object.keys(fields);
    if (Object.values(fields).includes(unreadable)) {
      await assert.rejects(r.hgetall(key), UnreadableError);
      continue;
    }
    assert.deepEqual({ ...(await r.hgetallBuffer(key)) }, fields);
    assert.deepEqual(await r.hmget(key, ...names), names.map((name) => text(fields[name])));
    assert.deepEqual(await r.hget(key, names[0]), text(fields[names[0]]));
  }
  for (const kind of transactions ? ['pipeline', 'multi'] : []) {
    const queue = r[kind]();
    for (const key of keys) queue.getBuffer(key);
    const replies = await queue.exists(keys[0]).exec();
    assert.deepEqual(replies.map(([e, reply]) => (e ? outcome(e, '') : reply)), [...strings.values(), 1], kind);
  }
}

async function checkNodeRedis(r, phase, transactions) {
  const [strings, hashes] = split(phase);
  const keys = [...strings.keys()];
  for (const [key, want] of strings) assert.deepEqual(await r.get(key).catch((e) => outcome(e, key)), text(want), key);
  const good = keys.filter((key) => strings.get(key) !== unreadable);
  if (transactions) {
    assert.deepEqual(await r.mGet(good), good.map((key) => text(strings.get(key))));
    const multi = r.multi();
    for (const key of good) multi.get(key);
    const replies = await multi.exists(keys[0]).type(keys[0]).execAsPipeline();
    assert.deepEqual(replies, [...good.map((key) => text(strings.get(key))), 1, 'string']);
    assert.deepEqual(await r.multi().exists(keys[0]).exec(), [1]);
    await assert.rejects(r.multi().get(keys[0]).exec(), UnreadableError);
  }
  for (const [key, fields] of Object.entries(hashes)) {
    const names = Object.keys(fields);
    if (Object.values(fields).includes(unreadable)) {
      await assert.rejects(r.hGetAll(key), UnreadableError);
      continue;
    }
    const plain = Object.fromEntries(names.map((name) => [name, text(fields[name])]));
    assert.deepEqual({ ...(await r.hGetAll(key)) }, plain);
    assert.deepEqual(await r.hmGet(key, names), Object.values(plain));
    assert.deepEqual((await r.hVals(key)).sort(), Object.values(plain).sort());
  }
}

/** A packed value and its content; "bad" is a damaged one. */
async function packed(check) {
  for await (const phase of run('fleet')) {
    if (phase.phase !== 'the first dictionary') continue;
    const client = new Redis(phase.url);
    await client.set('bad', (await client.getBuffer('first:5')).subarray(0, -1));
    client.disconnect();
    await check(phase.url, text(split(phase)[0].get('first:5')));
    break;
  }
}

test('ioredis, hashes by a reply transformer', { skip }, () => packed(async (url, value) => {
  const pairs = (reply) => reply.flatMap((name, i) => (i % 2 ? [] : [[name, reply[i + 1]]]));
  const values = (reply) => reply.filter((_, i) => i % 2);
  const before = Redis.Command._transformer.reply.hgetall;
  const client = new Redis(url);
  try {
    await client.hset('made', 'a', await client.getBuffer('first:5'), 'b', 'plain');
    Redis.Command.setReplyTransformer('hgetall', pairs); // as ioredis' README has it
    assert.deepEqual((await plainIORedis(client).hgetall('made')).sort(), [['a', value], ['b', 'plain']]); // in any order
    Redis.Command.setReplyTransformer('hgetall', values);
    assert.deepEqual((await plainIORedis(client).hgetall('made')).sort(), ['plain', value]);
    await client.hset('made', '__proto__', 'x');
    Redis.Command.setReplyTransformer('hgetall', (reply) => Object.assign({}, Object.fromEntries(pairs(reply)))); // a Buffer as its prototype
    assert.deepEqual({ ...await plainIORedis(client).hgetall('made') }, { a: value, b: 'plain' });
  } finally {
    Redis.Command._transformer.reply.hgetall = before;
    client.disconnect();
  }
}));

const called = (start) => new Promise((resolve) => start((e, reply) => resolve(e ?? reply)));

for (const protocol of [2, 3]) {
  test(`queues of ioredis, RESP${protocol}`, { skip }, () => packed(async (url, value) => {
    const client = new Redis(url, { protocol });
    const r = plainIORedis(client);
    const set = ['set', 'x', 1];
    const [key, ok, good] = ['first:5', [null, 'OK'], [null, value]];
    client.defineCommand('one', { numberOfKeys: 0, lua: 'return 1' });
    try {
      for (const kind of ['pipeline', 'multi']) {
        assert.deepEqual(await r[kind]([set, ['get', key]]).exec(), [ok, good]);
        assert.deepEqual(await r[kind]([set]).get(key).getBuffer(key).exec(), [ok, good, [null, Buffer.from(value)]]);
        assert.deepEqual(await r[kind]().addBatch([set, set]).get(key).exec(), [ok, ok, good]);
        assert.deepEqual(await r[kind]().one().call('get', key).callBuffer('GET', key).exec(), [[null, 1], good, [null, Buffer.from(value)]]);
        const bad = await r[kind]().set(...set.slice(1)).get('bad').mget(key, 'bad').get(key).exec();
        assert.deepEqual(bad.map(([e, reply]) => (e ? e.message.split(':')[0] : reply)), ['OK', 'get "bad"', 'mget "bad"', value]);

        assert.deepEqual(await called((callback) => r[kind]().get(key).exec(callback)), [good]);
        let queue = r[kind]();
        const single = called((callback) => queue.get(key, callback));
        const batched = called((callback) => queue.addBatch([['mget', key, 'none', callback]]));
        const failed = called((callback) => queue.call('get', 'bad', callback));
        await queue.exec();
        assert.deepEqual(await Promise.all([single, batched]), [value, [value, null]]);
        assert.match((await failed).message, /^get "bad": /);
        queue = r[kind]();
        const refused = called((callback) => queue.get(key, callback));
        queue.call(kind === 'multi' ? 'unknown' : 'get');
        assert.equal(await queue.exec().catch((e) => e.name) === 'ReplyError', kind === 'multi');
        assert.equal((await refused).name ?? await refused, kind === 'multi' ? 'ReplyError' : value);
      }
      for (const start of [(queue) => queue.multi().get(key).exec(), (queue) => queue.call('MULTI').get(key).call('EXEC')]) {
        assert.deepEqual(await start(r.pipeline().one()).get(key).exec(), [[null, 1], ok, [null, 'QUEUED'], [null, [value]], good]);
      }
      await r.watch('x');
      const changed = called((callback) => r.multi().get(key, callback).exec(() => {}));
      assert.equal(await changed, value);
      await r.watch('x');
      await r.set('x', 2);
      assert.equal(await r.multi().get(key).exec(), null);

      assert.equal(await called((callback) => r.get(key, callback)), value);
      assert.deepEqual(await called((callback) => r.getBuffer(key, callback)), Buffer.from(value));
      assert.match((await called((callback) => r.get('bad', callback))).message, /^get "bad": /);
    } finally {
      client.disconnect();
    }
  }));

  test(`queues of node-redis, RESP${protocol}`, { skip }, () => packed(async (url, value) => {
    const put = { parseCommand: (parser, ...words) => parser.push('SET', ...words), transformReply: undefined };
    const client = await createClient({ url, RESP: protocol, modules: { kv: { put } } }).connect();
    const r = plainNodeRedis(client);
    try {
      const replies = ['OK', value, 'OK', value, value, 'OK', value];
      const queue = r.multi().kv.put('x', '1').get('first:5').addCommand(['SET', 'x', '1']).get('first:5').addCommand(['get', 'first:5']);
      queue.select(0).get('first:5');
      await assert.rejects(queue.exec(), /read with execAsPipeline/);
      assert.deepEqual(await queue.execAsPipeline(), replies);
      assert.deepEqual(await queue.exec(true), replies);
      assert.deepEqual(await r.multi().kv.put('x', '1').exists('x').EXEC(), ['OK', 1]);
      assert.deepEqual(await r.MULTI().execAsPipeline(), []);
      await assert.rejects(r.multi().kv.put('x', '1').get('bad').execAsPipeline(), { name: 'UnreadableError', message: /^get "bad": / });
    } finally {
      client.destroy();
    }
  }));
}

test('a first pipeline of many values', { skip }, () => packed(async (url, value) => {
  const io = new Redis(url);
  const node = await createClient({ url }).connect();
  const fill = (queue) => {
    for (let i = 0; i < 300; i++) queue.get('first:5');
    return queue;
  };
  const all = Array(300).fill(value);
  const found = all.map((content) => [null, content]);
  try {
    for (const kind of ['pipeline', 'multi']) assert.deepEqual(await fill(plainIORedis(io)[kind]()).exec(), found, kind);
    const within = await fill(plainIORedis(io).pipeline().multi()).exec().exec();
    assert.deepEqual(within.at(-1), [null, all]);
    assert.deepEqual(await fill(plainNodeRedis(node).multi()).execAsPipeline(), all);
  } finally {
    io.disconnect();
    node.destroy();
  }
}));

test('methods that return a client return one that reads', { skip }, () => packed(async (url, value) => {
  const io = plainIORedis(new Redis(url)).on('error', () => {});
  const node = await plainNodeRedis(createClient({ url })).on('error', () => {}).connect();
  const twins = [io.duplicate(), await node.duplicate().connect()];
  try {
    for (const client of [io, io.setMaxListeners(20), node, node.setMaxListeners(20), node.withAbortSignal(new AbortController().signal), node.asap(), ...twins]) {
      assert.equal(await client.get('first:5'), value);
    }
    const typed = node.withTypeMapping({ 36: Buffer });
    assert.deepEqual(await typed.get('first:5'), Buffer.from(value));
  } finally {
    for (const client of [io, twins[0]]) client.disconnect();
    for (const client of [node, twins[1]]) client.destroy();
  }
}));

const startNode = (url) => [{ host: new URL(url).hostname, port: Number(new URL(url).port) }];

// A second promise that fails, and that nobody has, would end the program.
test('a write that fails, with a callback', { skip }, () => packed(async (url) => {
  const client = new Redis(url);
  const unhandled = [];
  const note = (e) => unhandled.push(e);
  process.on('unhandledRejection', note);
  try {
    assert.match((await called((done) => plainIORedis(client).lpush('bad', 'x', done))).message, /WRONGTYPE/);
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.deepEqual(unhandled, []);
  } finally {
    process.off('unhandledRejection', note);
    client.disconnect();
  }
}));

test('node-redis, the client\'s own type mapping', { skip }, () => packed(async (url, value) => {
  for (const RESP of [2, 3]) {
    const client = await createClient({ url, RESP, commandOptions: { typeMapping: { 58: String, 44: String, 37: Map, 126: Set } } }).connect();
    try {
      const r = plainNodeRedis(client);
      const reads = (c) => [c.incr('big'), c.zScore('zz', 'a'), c.hGetAll('hx'), c.sMembers('ss')];
      const start = async () => {
        await client.set('big', '9007199254740992');
        await client.hSet('hx', { a: '1' });
        await client.zAdd('zz', { score: 0.1, value: 'a' });
        await client.sAdd('ss', 'm');
      };
      await start();
      const want = await Promise.all(reads(client));
      assert.equal(want[0], '9007199254740993');
      await start();
      assert.deepEqual(await Promise.all(reads(r)), want);
      await start();
      const multi = r.multi();
      for (const command of ['incr big', 'zScore zz a', 'hGetAll hx', 'sMembers ss']) {
        const [name, ...args] = command.split(' ');
        multi[name](...args);
      }
      assert.deepEqual(await multi.execAsPipeline(), want);
      assert.equal(await r.get('first:5'), value);
    } finally {
      client.destroy();
    }
  }
}));

test('node-redis, hashes in every type', { skip }, () => packed(async (url, value) => {
  for (const RESP of [2, 3]) {
    for (const type of [undefined, Array, Map, Object]) {
      const client = await createClient({ url, RESP, commandOptions: type && { typeMapping: { 37: type } } }).connect();
      try {
        const bytes = client.withTypeMapping({ 36: Buffer });
        const stored = await bytes.get('first:5');
        await client.hSet('types', new Map([['a', stored], ['gone', Buffer.from('ba1e40851f00000000000000ffff01e39f', 'hex')], [stored, 'x']]));
        const r = plainNodeRedis(client);
        const fields = [['a', value], [stored.toString(), 'x']];
        let want = Object.assign(Object.create(null), Object.fromEntries(fields));
        if (type === Map) want = new Map(fields);
        if (type === Array) want = fields.toSorted();
        const ordered = (hash) => (type === Array ? hash.flatMap((field, i) => (i % 2 ? [] : [[field, hash[i + 1]]])).sort() : hash);
        assert.deepEqual(ordered(await r.hGetAll('types')), want);
        assert.deepEqual((await r.multi().hGetAll('types').execAsPipeline()).map(ordered), [want]);
      } finally {
        client.destroy();
      }
    }
  }
}));

// node-redis makes objects by assignment: a Buffer in __proto__ would be the prototype, with a length that cannot be set.
test('node-redis, fields of any name', { skip }, () => packed(async (url, value) => {
  const client = new Redis(url);
  const stored = await client.getBuffer('first:5');
  const contents = { a: value, length: '3', ['__proto__']: value };
  const orders = [['__proto__', 'length', 'a'], ['a', 'length', '__proto__'], ['__proto__', 'a']];
  await client.config('SET', 'hash-max-listpack-value', 4096); // so that they stay in order
  for (const fields of orders) {
    for (const field of fields) await client.hset(`hash${fields}`, field, field === 'length' ? '3' : stored);
    await client.xadd(`stream${fields}`, '1-0', ...fields.flatMap((field) => [field, 'x']));
  }
  client.disconnect();
  const contentOf = (field, text) => (text ? contents[field] : Buffer.from(contents[field]));
  for (const RESP of [2, 3]) {
    for (const typeMapping of [{}, { 37: Map }, { 37: Array }, { 37: Object }, { 36: Buffer }, { 36: Buffer, 37: Map }]) {
      const options = { url, RESP, commandOptions: { typeMapping } };
      const clients = await Promise.all([createClient(options), createClient(options).createPool()].map((c) => c.connect()));
      try {
        for (const returnBuffers of [undefined, true, false]) {
          const text = !(returnBuffers ?? 36 in typeMapping);
          for (const fields of orders) {
            const pairs = fields.map((field) => [typeMapping[37] === Array && !text ? Buffer.from(field) : field, contentOf(field, text)]);
            let want = Object.assign(Object.create(null), Object.fromEntries(pairs));
            if (typeMapping[37] === Map) want = new Map(pairs);
            if (typeMapping[37] === Array) want = pairs.flat();
            const why = util.inspect([RESP, typeMapping, returnBuffers, fields]);
            for (const c of clients) {
              const r = plainNodeRedis(c, { returnBuffers });
              assert.deepEqual(await r.hGetAll(`hash${fields}`), want, why);
              assert.deepEqual(await r.multi().hLen(`hash${fields}`).hGetAll(`hash${fields}`).execAsPipeline(), [fields.length, want], why);
              if (text && !typeMapping[36]) {
                assert.deepEqual(await r.multi().xRange(`stream${fields}`, '-', '+').execAsPipeline(), [await c.xRange(`stream${fields}`, '-', '+')], why);
              }
            }
          }
        }
      } finally {
        for (const c of clients) c.destroy();
      }
    }
  }
}));

test('node-redis, other commands in a pipeline', { skip }, () => packed(async (url, value) => {
  const commands = [
    ['configGet', 'max*'], ['xInfoStream', 'stream'], ['xInfoGroups', 'stream'], ['xRange', 'stream', '-', '+'], ['xRead', { key: 'stream', id: '0' }],
    ['hScan', 'plain', '0'], ['hRandFieldCountWithValues', 'plain', 1], ['zRangeWithScores', 'sorted', 0, -1], ['zScore', 'sorted', 'a'], ['sMembers', 'set'],
    ['commandDocs', 'get'], ['functionList'], ['lRange', 'list', 0, -1], ['eval', 'return {1, {"a"}}'], ['sendCommand', ['CONFIG', 'GET', 'maxmemory']],
    ['sendCommand', ['LATENCY', 'DOCTOR']], ['geoPos', 'geo', 'a'],
  ];
  const maps = [{}, { 37: Map }, { 37: Array }, { 37: Object, 61: VerbatimString }, { 44: String, 126: Set }];
  for (const RESP of [2, 3]) {
    for (const typeMapping of [...maps, ...maps.map((mapping) => ({ ...mapping, 36: Buffer }))]) {
      const client = await createClient({ url, RESP, commandOptions: { typeMapping } }).connect();
      const fill = (multi) => commands.reduce((queue, [name, ...args]) => queue[name](...args), multi);
      try {
        await client.multi().xAdd('stream', '1-0', { a: 'b' }).xGroupCreate('stream', 'group', '0').hSet('plain', { a: 'b' })
          .zAdd('sorted', { score: 0.1, value: 'a' }).sAdd('set', 'm').rPush('list', 'x').geoAdd('geo', { longitude: 1, latitude: 2, member: 'a' }).exec();
        const r = plainNodeRedis(client);
        const [bare, read] = [await fill(client.multi()).execAsPipeline(), await fill(r.multi()).get('first:5').execAsPipeline()];
        assert.equal(text(read.pop()), value);
        assert.deepEqual(read, bare, util.inspect([RESP, typeMapping]));
        await client.del(['stream', 'plain', 'sorted', 'set', 'list', 'geo']);
      } finally {
        client.destroy();
      }
    }
  }
}));

test('node-redis, values as Buffers', { skip }, () => packed(async (url, value) => {
  const typeMapping = { 36: Buffer };
  const [client, mapped] = [createClient({ url }), createClient({ url, commandOptions: { typeMapping } })];
  try {
    await Promise.all([client.connect(), mapped.connect()]);
    const r = plainNodeRedis(client);
    const text = { 36: String };
    for (const [derived, want] of [
      [r, value],
      [r.asap(), value],
      [r.withTypeMapping(typeMapping), Buffer.from(value)],
      [r.withCommandOptions({ typeMapping }), Buffer.from(value)],
      [r.withCommandOptions({ asap: true }), value],
      [plainNodeRedis(mapped), Buffer.from(value)],
      [plainNodeRedis(mapped).asap(), Buffer.from(value)],
      [plainNodeRedis(client, { returnBuffers: true }).withTypeMapping({ 37: Map }), Buffer.from(value)],
      [plainNodeRedis(mapped).withTypeMapping(text), value],
      [plainNodeRedis(mapped, { returnBuffers: false }), value],
    ]) assert.deepEqual(await derived.get('first:5'), want);
    const pool = await r.createPool().connect();
    try {
      assert.equal(await pool.get('first:5'), value);
    } finally {
      pool.destroy();
    }
  } finally {
    client.destroy();
    mapped.destroy();
  }
}));

test('ioredis', { skip }, async () => {
  let phases = 0;
  let old;
  for await (const phase of run('fleet')) {
    phases++;
    old ??= new Redis(phase.url); // meets dictionaries as they come
    const client = new Redis(phase.url);
    try {
      await checkIORedis(plainIORedis(client), phase, true);
      await checkIORedis(plainIORedis(old), phase, true);
      if (phases > 1) assert.notDeepEqual(await client.getBuffer('first:5'), await plainIORedis(client).getBuffer('first:5'), 'it was packed');
    } finally {
      client.disconnect();
    }
  }
  old.disconnect();
  assert.equal(phases, 7);
});

test('ioredis, cluster', { skip }, async () => {
  for await (const phase of run('fleet', 'cluster')) {
    const client = new Cluster(startNode(phase.url));
    try {
      const r = plainIORedis(client);
      const [[key, value]] = split(phase)[0];
      const found = [[null, text(value)], [null, value]]; // also before the client knows the slots
      for (const kind of ['pipeline', 'multi']) assert.deepEqual(await r[kind]([['get', key]]).getBuffer(key).exec(), found);
      await checkIORedis(r, phase, false);
    } finally {
      client.disconnect();
    }
  }
});

for (const RESP of [2, 3]) {
  test(`node-redis, RESP${RESP}`, { skip }, async () => {
    for await (const phase of run('fleet')) {
      const client = await createClient({ url: phase.url, RESP }).connect();
      try {
        await checkNodeRedis(plainNodeRedis(client), phase, true);
        const binary = plainNodeRedis(client, { returnBuffers: true });
        assert.deepEqual(await binary.get('none:1'), split(phase)[0].get('none:1'));
      } finally {
        client.destroy();
      }
    }
  });
}

test('node-redis, cluster', { skip }, async () => {
  for await (const phase of run('fleet', 'cluster')) {
    const options = { rootNodes: [{ url: phase.url }] };
    const client = await createCluster(options).connect();
    const mapped = await createCluster({ ...options, RESP: 3, defaults: { commandOptions: { typeMapping: { 36: Buffer, 37: Map } } } }).connect();
    try {
      const r = plainNodeRedis(client);
      await checkNodeRedis(r, phase, false);
      const [[key, value]] = split(phase)[0];
      await assert.rejects(r.multi().get(key).execAsPipeline(), { name: 'UnreadableError', message: /decoded its bytes as text/ });
      const hash = `{${key}}`;
      await client.hSet(hash, new Map([['__proto__', 'x'], ['length', '3']]));
      const fields = Object.assign(Object.create(null), { ['__proto__']: 'x', length: '3' });
      const replies = await plainNodeRedis(mapped).multi().hLen(hash).get(key).hGetAll(hash).execAsPipeline();
      assert.deepEqual(replies, [2, text(value), fields]);
      await client.del(hash);
    } finally {
      client.destroy();
      mapped.destroy();
    }
  }
});

test('mirrors', { skip }, async () => {
  for await (const phase of run('fleet')) {
    if (phase.phase !== 'the first dictionary') continue;
    const client = new Redis(phase.url);
    const nowhere = new Redis({ port: 1, retryStrategy: null, lazyConnect: true });
    nowhere.on('error', () => {});
    try {
      await assert.rejects(plainIORedis(client, { registry: new Registry(client, { prefix: 'another:' }) }).get('first:5'), /dictionary/);
      const registry = new Registry(nowhere, { mirrors: [client] });
      assert.deepEqual(await plainIORedis(client, { registry }).getBuffer('first:5'), split(phase)[0].get('first:5'));
    } finally {
      client.disconnect();
    }
    break;
  }
});
