/** Reads the values that bale stores in Redis: frames, and plain values beside them. */

/** The base of all errors of this package. No message holds a value. */
export class BaleError extends Error {}
/** The value is a frame, but its content does not match its header. */
export class CorruptError extends BaleError {}
/** The decoded value is larger than maxSize, or than what budget leaves. Nothing was allocated for it. */
export class TooLargeError extends BaleError {}
/** The frame is a cached miss, or has expired. */
export class NotFoundError extends BaleError {}
/** This reader cannot decode the value: the message says what to install or upgrade. */
export class UnknownAlgorithmError extends BaleError {}
/** The reader does not have the dictionary of the value. */
export class UnknownDictionaryError extends BaleError {
  readonly dictionaryId: number;
}
/** A value of a reply cannot be read: it names the key, and the cause is a BaleError. */
export class UnreadableError extends BaleError {}

/** The bytes that packed values have in common, named by their content. */
export class Dictionary {
  /** Copies 16 bytes to 1 MiB; otherwise a RangeError. */
  constructor(content: Uint8Array);
  readonly id: number;
  readonly content: Buffer;
}

export interface ReaderOptions {
  /** Those that values may need; more come with add. */
  dictionaries?: Iterable<Dictionary>;
  /** The largest decoded value in bytes; a larger one is a TooLargeError. Default 64 MiB. */
  maxSize?: number;
  /** A value that starts with BA 1E but has no valid header is a CorruptError. Use it where every writer packs. Default false: it is plain. */
  strict?: boolean;
  /** How many bytes of dictionaries to keep, at most 256 dictionaries. The least recently used ones go first; the last one stays. Default 16 MiB. */
  cacheSize?: number;
  /** How many bytes the packed values of one reply or pipeline may have together, decoded; at least maxSize. Those beyond are a TooLargeError. Default 256 MiB. */
  budget?: number;
}

export class Reader {
  constructor(options?: ReaderOptions);
  /** Keeps a dictionary, and drops others beyond cacheSize. */
  add(dictionary: Dictionary): void;
  /**
   * The content of a stored value, or a BaleError. A plain value is returned as it is: the result
   * may share its memory with stored.
   *
   * With now, in milliseconds since 1970, an expired value is a NotFoundError, as for Cache.Get of
   * Go. Without it expiries are ignored. A cached miss is a NotFoundError always.
   */
  unpack(stored: Uint8Array, options?: { now?: number }): Buffer;
}
