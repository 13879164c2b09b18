// What both programs of Node share. clients_test.go runs them, and expects a line for each check.

import assert from 'node:assert/strict';

const [proxy, server, protocol, prefix] = process.argv.slice(2);

const address = (s) => ({ host: s.split(':')[0], port: Number(s.split(':')[1]) });

export const to = { proxy: address(proxy), server: address(server), protocol: Number(protocol) };
export { prefix };

const VALUE = process.env.BALE_VALUE;

export const value = (n) => `${n} ${VALUE}`;

export const bigValue = Buffer.from(VALUE.repeat((8 << 20) / VALUE.length));

/** Values of bytes, with a frame, which a user could upload. */
export const binaries = (frame) => [
  Buffer.alloc(0), Buffer.from([0]), Buffer.from([...Array(1024).keys()].map((n) => n % 256)), Buffer.from('\r\n$5\r\n*1\r\n'.repeat(20)),
  Buffer.from([0xba, 0x1e]), frame,
];

export function isPacked(stored) {
  assert.ok(Buffer.isBuffer(stored), 'a stored value');
  return stored[0] === 0xba && stored[1] === 0x1e && stored.length < VALUE.length;
}

export const refusal = (command) => ({ message: new RegExp(`^BALE ${command} on a key in scope: `) });

/** Runs the checks in turn, and ends the program. */
export async function run(checks) {
  for (const check of checks) {
    await check();
    console.log(check.name);
  }
}
