// That the types are those of programs: tsc reads this, and nobody runs it.

import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { Dictionary, Reader, UnknownDictionaryError } from 'balekv';
import { Registry, plainIORedis, plainNodeRedis } from 'balekv/redis';

export async function read(): Promise<Buffer> {
  const reader = new Reader({ dictionaries: [new Dictionary(new Uint8Array(16))], maxSize: 1 << 20 });
  const redis = plainIORedis(new Redis(), { reader });
  const text: string | null = await redis.get('user:1');
  const client = createClient();
  const other = plainNodeRedis(client, { registry: new Registry(client, { prefix: 'another:' }) });
  console.log(text, await other.get('user:1'));
  try {
    return reader.unpack(new Uint8Array(), { now: Date.now() });
  } catch (e) {
    throw e instanceof UnknownDictionaryError ? new Error(String(e.dictionaryId)) : e;
  }
}
