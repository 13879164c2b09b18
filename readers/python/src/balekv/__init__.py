"""Reads the values that bale stores in Redis: frames, and plain values beside them.

``Reader`` turns stored bytes into plain ones. ``balekv.redis`` reads through redis-py and fetches
dictionaries. The format is the package comment of bale's Go package frame.
"""

from .errors import (
    BaleError,
    CorruptError,
    NotFoundError,
    TooLargeError,
    UnknownAlgorithmError,
    UnknownDictionaryError,
)
from .reader import Dictionary, Reader

__all__ = [
    "BaleError",
    "CorruptError",
    "Dictionary",
    "NotFoundError",
    "Reader",
    "TooLargeError",
    "UnknownAlgorithmError",
    "UnknownDictionaryError",
]
