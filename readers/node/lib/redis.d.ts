import type { Dictionary, Reader } from './index.js';

export interface RegistryOptions {
  /** The prefix of the registry's keys. Default "bale:dict:". */
  prefix?: string;
  /** Clients of further registries, asked in turn for what the first one does not have. */
  mirrors?: unknown[];
}

/**
 * Where dictionaries come from: the registry of bale's package dict, which it never changes. client
 * is one of ioredis or node-redis, a cluster's included. It asks for a dictionary once at a time,
 * and for one that could not be had not again within a second.
 */
export class Registry {
  constructor(client: unknown, options?: RegistryOptions);
  /** The dictionary of an id, or an UnknownDictionaryError. */
  fetch(id: number): Promise<Dictionary>;
}

export interface PlainOptions {
  /** Default: the registry in the client's own Redis. */
  registry?: Registry;
  /** Default: one with default options. */
  reader?: Reader;
}

/**
 * A client whose reads return plain values: get, getex, getdel, mget, hget, hmget, hvals and
 * hgetall, their Buffer variants, and in pipeline() and multi() these commands, however they are
 * queued. A cached miss and an expired value are null, and left out of hgetall. A value that cannot
 * be read is an UnreadableError. Callbacks get the same. All else is the client's own.
 */
export function plainIORedis<Client extends object>(client: Client, options?: PlainOptions): Client;

/**
 * The same for node-redis from version 5 on: get, getEx, getDel, mGet, hGet, hmGet, hVals and
 * hGetAll, also in multi() with execAsPipeline. There, a value that cannot be read fails all of it.
 * node-redis decodes the replies of EXEC as text, so that exec with a read is an UnreadableError, and
 * nothing is sent. So is execAsPipeline of a cluster without a typeMapping of its own, once the
 * replies are there. Values are strings, or Buffers with returnBuffers. Its default is what the client's
 * type mapping asks for.
 */
export function plainNodeRedis<Client extends object>(client: Client, options?: PlainOptions & { returnBuffers?: boolean }): Client;
