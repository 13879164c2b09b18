"""Why a stored value cannot be read. No message holds the value."""


class BaleError(Exception):
    """The base of all errors of this package."""


class CorruptError(BaleError):
    """The value is a frame, but its content does not match its header."""


class TooLargeError(BaleError):
    """The decoded value is larger than max_size, or than what budget leaves. Nothing was allocated for it."""


class NotFoundError(BaleError):
    """The frame is a cached miss, or has expired."""


class UnknownAlgorithmError(BaleError):
    """This reader cannot decode the value: see the message for what to install or upgrade."""


class UnknownDictionaryError(BaleError):
    """The reader does not have the dictionary of the value."""

    def __init__(self, dictionary_id: int, why: str = "add it to the reader, or read with a registry"):
        super().__init__(f"unknown dictionary {dictionary_id:08x}: {why}")
        self.dictionary_id = dictionary_id
