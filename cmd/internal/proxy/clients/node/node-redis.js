import assert from 'node:assert/strict';
import { RESP_TYPES, WatchError, createClient } from 'redis';
import { bigValue, binaries, isPacked, prefix, refusal, run, to, value } from './check.js';

const connect = async (socket) => createClient({ socket, RESP: to.protocol }).on('error', () => {}).connect();

const r = await connect(to.proxy);
const second = await connect(to.proxy);
const buffers = { [RESP_TYPES.BLOB_STRING]: Buffer };
const raw = r.withTypeMapping(buffers);
const direct = (await connect(to.server)).withTypeMapping(buffers);

const other = `other:${prefix}`;
const key = (name) => prefix + name;

async function strings() {
  assert.equal(await r.set(key('a'), value(1), { expiration: { type: 'EX', value: 1000 } }), 'OK');
  assert.ok((await r.ttl(key('a'))) > 0);
  assert.ok(isPacked(await direct.get(key('a'))));
  assert.equal(await r.get(key('a')), value(1));
  assert.equal(await r.set(key('a'), value(2), { GET: true }), value(1));
  assert.equal(await r.getSet(key('a'), value(3)), value(2));
  assert.equal(await r.getEx(key('a'), { type: 'EX', value: 500 }), value(3));
  await r.mSet([[key('a'), value(4)], [key('b'), value(5)], [other, value(6)]]);
  assert.ok(isPacked(await direct.get(key('b'))));
  assert.equal((await direct.get(other)).toString(), value(6));
  assert.deepEqual(await r.mGet([key('b'), key('none'), other, key('a')]), [value(5), null, value(6), value(4)]);
  assert.equal(Number(await r.setNX(key('a'), value(7))), 0);
  await r.setEx(key('b'), 1000, value(8));
  assert.equal(await r.getDel(key('b')), value(8));
  assert.equal(await r.get(key('b')), null);
  await r.set(key('b'), '41');
  assert.deepEqual([await r.incr(key('b')), String(await direct.get(key('b')))], [42, '42']);
}

async function hashes() {
  const h = key('h');
  assert.equal(await r.hSet(h, { f: value(1), g: value(2), n: '1' }), 3);
  assert.ok(isPacked(await direct.hGet(h, 'f')) && isPacked(await direct.hGet(h, 'g')));
  assert.equal(await r.hGet(h, 'f'), value(1));
  assert.deepEqual(await r.hmGet(h, ['g', 'none', 'f']), [value(2), null, value(1)]);
  assert.equal(await r.hIncrBy(h, 'n', 2), 3);
  const want = { f: value(1), g: value(2), n: '3' };
  assert.deepEqual({ ...(await r.hGetAll(h)) }, want);
  assert.deepEqual((await r.hVals(h)).sort(), Object.values(want).sort());
  const { entries } = await r.hScan(h, '0');
  assert.deepEqual(Object.fromEntries(entries.map((e) => [e.field, e.value])), want);
  assert.equal(Number(await r.hSetNX(h, 'f', value(3))), 0);
}

// node-redis sends what is written in one turn of its loop together.
async function pipeline() {
  const all = [...Array(200).keys()];
  const replies = await Promise.all(all.flatMap((i) => [r.set(key(`p${i}`), value(i)), r.get(key(`p${i}`))]));
  assert.deepEqual(replies.filter((_, i) => i % 2), all.map(value));
  for (const stored of await direct.mGet(all.map((i) => key(`p${i}`)))) assert.ok(isPacked(stored));
}

async function transaction() {
  const replies = await r.multi().set(key('t'), value(1)).get(key('t')).hGetAll(key('h')).get(key('none')).exec();
  assert.deepEqual([replies[0], replies[1], replies[2].f, replies[3]], ['OK', value(1), value(1), null]);
  assert.ok(isPacked(await direct.get(key('t'))));
}

async function watch() {
  await second.watch(key('t'));
  assert.equal(await second.get(key('t')), value(1));
  await direct.set(key('t'), 'changed');
  await assert.rejects(second.multi().set(key('t'), value(2)).exec(), WatchError);
  assert.equal(await r.get(key('t')), 'changed');
}

async function blocking() {
  setTimeout(() => r.rPush(key('l'), value(1)), 50);
  assert.deepEqual({ ...(await second.blPop(key('l'), 30)) }, { key: key('l'), element: value(1) });
  assert.equal(await second.blPop(key('l'), 0.05), null);
}

async function pubsub() {
  const sub = await connect(to.proxy);
  const got = [];
  let done;
  const both = new Promise((resolve) => (done = resolve));
  const listen = (message) => got.push(message) === 2 && done();
  await sub.subscribe(key('ch'), listen);
  await sub.pSubscribe(key('c*'), listen);
  await r.publish(key('ch'), value(1));
  await both;
  assert.deepEqual(got, [value(1), value(1)]);
  if (to.protocol === 3) assert.equal(await sub.get(key('p1')), value(1), 'a command between pushes');
  await sub.unsubscribe();
  await sub.pUnsubscribe();
  assert.equal(String(await sub.get(key('p2'))), value(2)); // bytes with RESP2, also on Redis itself (6.3.1)
  sub.destroy();
}

async function binary() {
  for (const [n, v] of binaries(await direct.get(key('p0'))).entries()) {
    await raw.set(key(`bin${n}`), v);
    assert.deepEqual(await raw.get(key(`bin${n}`)), v);
  }
}

async function big() {
  await raw.set(key('big'), bigValue);
  assert.ok(bigValue.equals(await raw.get(key('big'))));
  const stored = await direct.get(key('big'));
  assert.ok(stored[0] === 0xba && stored.length < bigValue.length / 10);
}

async function refused() {
  await assert.rejects(r.append(key('a'), 'x'), refusal('APPEND'));
  await assert.rejects(r.getRange(key('a'), 0, 1), refusal('GETRANGE'));
  await assert.rejects(r.strLen(key('a')), refusal('STRLEN'));
  assert.equal(await r.get(key('a')), value(4));
  assert.equal(await r.append(other, 'x'), Buffer.byteLength(value(6)) + 1);
}

await run([strings, hashes, pipeline, transaction, watch, blocking, pubsub, binary, big, refused]);
process.exit(0);
