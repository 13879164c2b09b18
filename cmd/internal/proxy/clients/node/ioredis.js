import assert from 'node:assert/strict';
import { Redis } from 'ioredis';
import { bigValue, binaries, isPacked, prefix, refusal, run, to, value } from './check.js';

const connect = (address) => new Redis({ ...address, maxRetriesPerRequest: 0 });

const r = connect(to.proxy);
const second = connect(to.proxy);
const direct = connect(to.server);

const other = `other:${prefix}`;
const key = (name) => prefix + name;

async function strings() {
  assert.equal(await r.set(key('a'), value(1), 'EX', 1000), 'OK');
  assert.ok((await r.ttl(key('a'))) > 0);
  assert.ok(isPacked(await direct.getBuffer(key('a'))));
  assert.equal(await r.get(key('a')), value(1));
  assert.equal(await r.set(key('a'), value(2), 'GET'), value(1));
  assert.equal(await r.getset(key('a'), value(3)), value(2));
  assert.equal(await r.getex(key('a'), 'EX', 500), value(3));
  await r.mset(key('a'), value(4), key('b'), value(5), other, value(6));
  assert.ok(isPacked(await direct.getBuffer(key('b'))));
  assert.equal(await direct.get(other), value(6));
  assert.deepEqual(await r.mget(key('b'), key('none'), other, key('a')), [value(5), null, value(6), value(4)]);
  assert.equal(await r.setnx(key('a'), value(7)), 0);
  await r.setex(key('b'), 1000, value(8));
  assert.equal(await r.getdel(key('b')), value(8));
  assert.equal(await r.get(key('b')), null);
  await r.set(key('b'), 41);
  assert.deepEqual([await r.incr(key('b')), await direct.get(key('b'))], [42, '42']);
}

async function hashes() {
  const h = key('h');
  assert.equal(await r.hset(h, { f: value(1), g: value(2), n: 1 }), 3);
  assert.ok(isPacked(await direct.hgetBuffer(h, 'f')) && isPacked(await direct.hgetBuffer(h, 'g')));
  assert.equal(await r.hget(h, 'f'), value(1));
  assert.deepEqual(await r.hmget(h, 'g', 'none', 'f'), [value(2), null, value(1)]);
  assert.equal(await r.hincrby(h, 'n', 2), 3);
  const want = { f: value(1), g: value(2), n: '3' };
  assert.deepEqual({ ...(await r.hgetall(h)) }, want);
  assert.deepEqual((await r.hvals(h)).sort(), Object.values(want).sort());
  const [, page] = await r.hscan(h, 0);
  assert.deepEqual(page.sort(), Object.entries(want).flat().sort());
  assert.equal(await r.hsetnx(h, 'f', value(3)), 0);
}

async function pipeline() {
  const all = [...Array(200).keys()];
  const p = r.pipeline();
  for (const i of all) p.set(key(`p${i}`), value(i)).get(key(`p${i}`));
  const replies = await p.exec();
  assert.deepEqual(replies.filter((_, i) => i % 2), all.map((i) => [null, value(i)]));
  for (const stored of await direct.mgetBuffer(all.map((i) => key(`p${i}`)))) assert.ok(isPacked(stored));
}

async function transaction() {
  const replies = await r.multi().set(key('t'), value(1)).get(key('t')).hgetall(key('h')).get(key('none')).exec();
  assert.deepEqual(replies.map(([error]) => error), [null, null, null, null]);
  assert.deepEqual([replies[0][1], replies[1][1], replies[2][1].f, replies[3][1]], ['OK', value(1), value(1), null]);
  assert.ok(isPacked(await direct.getBuffer(key('t'))));
}

async function watch() {
  await second.watch(key('t'));
  assert.equal(await second.get(key('t')), value(1));
  await direct.set(key('t'), 'changed');
  assert.equal(await second.multi().set(key('t'), value(2)).exec(), null);
  assert.equal(await r.get(key('t')), 'changed');
}

async function blocking() {
  setTimeout(() => r.rpush(key('l'), value(1)), 50);
  assert.deepEqual(await second.blpop(key('l'), 30), [key('l'), value(1)]);
  assert.equal(await second.blpop(key('l'), 0.05), null);
}

async function pubsub() {
  const sub = connect(to.proxy);
  const got = [];
  const both = new Promise((resolve) => {
    const listen = (message) => got.push(message) === 2 && resolve();
    sub.on('message', (_, message) => listen(message));
    sub.on('pmessage', (_, __, message) => listen(message));
  });
  await sub.subscribe(key('ch'));
  await sub.psubscribe(key('c*'));
  await r.publish(key('ch'), value(1));
  await both;
  assert.deepEqual(got, [value(1), value(1)]);
  await sub.unsubscribe(key('ch')); // without a name, ioredis 6.0.0 waits for ever, also on Redis itself
  await sub.punsubscribe(key('c*'));
  assert.equal(await sub.get(key('p2')), value(2));
  sub.disconnect();
}

async function binary() {
  for (const [n, v] of binaries(await direct.getBuffer(key('p0'))).entries()) {
    await r.set(key(`bin${n}`), v);
    assert.deepEqual(await r.getBuffer(key(`bin${n}`)), v);
  }
}

async function big() {
  await r.set(key('big'), bigValue);
  assert.ok(bigValue.equals(await r.getBuffer(key('big'))));
  const stored = await direct.getBuffer(key('big'));
  assert.ok(stored[0] === 0xba && stored.length < bigValue.length / 10);
}

async function refused() {
  await assert.rejects(r.append(key('a'), 'x'), refusal('APPEND'));
  await assert.rejects(r.getrange(key('a'), 0, 1), refusal('GETRANGE'));
  await assert.rejects(r.strlen(key('a')), refusal('STRLEN'));
  assert.equal(await r.get(key('a')), value(4));
  assert.equal(await r.append(other, 'x'), Buffer.byteLength(value(6)) + 1);
}

await run([strings, hashes, pipeline, transaction, watch, blocking, pubsub, binary, big, refused]);
process.exit(0);
