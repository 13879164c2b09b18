// The vectors of the format, and the damaged ones with Go's verdicts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decoders, engines, zstdDecoder } from '../lib/decode.js';
import { ZSTD } from '../lib/frame.js';
import { Reader } from '../lib/index.js';
import { expected, readDictionaries, readVectors, verdict } from './testdata.js';

for (const engine of engines) {
  const made = engine();
  for (const [file, least] of [['vectors.ndjson', 44], ['damaged.ndjson', 400]]) {
    test(`${file}, zstd of ${engine.name}`, { skip: !made }, (t) => {
      const usual = decoders[ZSTD];
      t.after(() => (decoders[ZSTD] = usual));
      decoders[ZSTD] = zstdDecoder(made);
      const vectors = readVectors(file);
      assert.ok(vectors.length >= least);
      const wrong = vectors.flatMap((v) => {
        const reader = new Reader({ dictionaries: readDictionaries(), strict: v.strict, maxSize: v.max_size });
        const got = verdict(reader, v);
        return expected(v).includes(got) ? [] : [[v.name, got.slice(0, 60)]];
      });
      assert.deepEqual(wrong, []);
    });
  }
}

test('no engine for zstd', () => {
  const v = readVectors('vectors.ndjson').find((v) => v.name === 'zstd');
  assert.throws(() => zstdDecoder(undefined).decode(Buffer.from(v.stored, 'hex'), 389), { name: 'UnknownAlgorithmError' });
});

test('bounded cache', () => {
  const vectors = readVectors('vectors.ndjson');
  const named = (name) => Buffer.from(vectors.find((v) => v.name === `zstd with the ${name} dictionary`).stored, 'hex');
  const [raw, trained] = readDictionaries();
  const reader = new Reader({ dictionaries: [raw, trained], cacheSize: trained.content.length });
  assert.equal(reader.unpack(named('trained')).length, 389);
  assert.throws(() => reader.unpack(named('raw')), { name: 'UnknownDictionaryError', dictionaryId: raw.id });
  reader.add(raw);
  assert.equal(reader.unpack(named('raw')).length, 389);
});
