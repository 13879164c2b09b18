// Why a stored value cannot be read. No message holds the value.

/** The base of all errors of this package. */
export class BaleError extends Error {
  get name() {
    return this.constructor.name;
  }
}

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
  constructor(dictionaryId, why = 'add it to the reader, or read with a registry', options) {
    super(`unknown dictionary ${hex(dictionaryId)}: ${why}`, options);
    this.dictionaryId = dictionaryId;
  }
}

/** A value of a reply cannot be read: it names the key, and the cause is a BaleError. */
export class UnreadableError extends BaleError {}

/** A dictionary's id as the keys of a registry have it. */
export const hex = (id) => id.toString(16).padStart(8, '0');
