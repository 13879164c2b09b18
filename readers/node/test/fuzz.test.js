// Values that were changed as faults do, with Go's verdicts.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LZ4, S2, ZSTD } from '../lib/frame.js';
import { Reader } from '../lib/index.js';
import { header, readDictionaries, verdict } from './testdata.js';
import { run, skip } from './writer.js';

test('fuzz', { skip }, async () => {
  const n = process.env.BALE_FUZZ_N ?? '20000';
  const reader = new Reader({ dictionaries: readDictionaries(), maxSize: 1 << 20 });
  let [verdicts, lenient, strict] = [0, 0, 0];
  for await (const v of run('fuzz', n, process.env.BALE_FUZZ_SEED ?? '1')) {
    const got = verdict(reader, v);
    verdicts++;
    if (/[g-z]/.test(got)) strict += !v.error && header(v).algorithm !== S2; // an error
    else if (v.error === 'corrupt' && [LZ4, ZSTD].includes(header(v).algorithm)) lenient++; // these libraries overlook bits that Go's look at
    else assert.deepEqual([got, undefined], [v.content ?? '', v.error], v.stored);
  }
  assert.equal(verdicts, Number(n));
  assert.ok(lenient + strict <= verdicts / 1000, `${lenient} lenient, ${strict} strict`);
});
