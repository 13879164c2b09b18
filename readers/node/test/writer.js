// The Go program that writes: testkit/campaign/writer, which readers/test builds.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { root } from './testdata.js';

export const writer = process.env.BALE_WRITER;

/** Why a test is skipped; with BALE_REQUIRE_READERS it fails. */
export const skip = writer || process.env.BALE_REQUIRE_READERS ? false : 'BALE_WRITER is not set: run readers/test';

/** The JSON lines of a run. Each asks for the next one. */
export async function* run(...args) {
  const child = spawn(writer, args, { cwd: fileURLToPath(root), stdio: ['pipe', 'pipe', 'inherit'] });
  child.stdin.on('error', () => {}); // it has ended
  const ended = new Promise((resolve) => child.on('close', resolve));
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      yield JSON.parse(line);
      if (args[0] === 'fleet') child.stdin.write('\n'); // else nobody reads it
    }
  } finally {
    child.stdin.end();
    child.stdout.destroy();
    const code = await ended;
    if (code !== 0) throw new Error(`writer ${args} ended with ${code}`);
  }
}
