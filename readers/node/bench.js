// Microseconds a value of the reader and of the bare library, in turn: node bench.js

import assert from 'node:assert/strict';
import zstd from 'zstd-napi';
import { parse } from './lib/frame.js';
import { Reader } from './lib/index.js';
import { readDictionaries, readVectors } from './test/testdata.js';

const [rounds, values] = [51, 2000];

function took(work) {
  const start = performance.now();
  for (let i = 0; i < values; i++) work();
  return ((performance.now() - start) / values) * 1000;
}

const median = (times) => times.sort((a, b) => a - b)[times.length >> 1].toFixed(2);

const dictionaries = readDictionaries();
for (const [name, dictionary] of [['zstd', undefined], ['zstd with the trained dictionary', dictionaries[1]]]) {
  const v = readVectors('vectors.ndjson').find((v) => v.name === name);
  const stored = Buffer.from(v.stored, 'hex');
  const frame = Buffer.concat([Buffer.from([0x28, 0xb5, 0x2f, 0xfd]), stored.subarray(parse(stored).payload)]);
  const library = new zstd.Decompressor();
  if (dictionary) library.loadDictionary(dictionary.content);
  const reader = new Reader({ dictionaries });
  assert.equal(reader.unpack(stored).toString('hex'), v.content);
  assert.equal(library.decompress(frame).toString('hex'), v.content);
  const times = Array.from({ length: rounds }, () => [took(() => reader.unpack(stored)), took(() => library.decompress(frame))]);
  console.log(`${name}: ${median(times.map((t) => t[0]))} µs, library ${median(times.map((t) => t[1]))} µs`);
}
