"""The reader: stored bytes to plain ones."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import Any, Iterable, Optional

from . import frame
from .decode import DECODERS
from .errors import BaleError, CorruptError, NotFoundError, TooLargeError, UnknownAlgorithmError, UnknownDictionaryError

MAX_DICTIONARY = 1 << 20
_LAST_VERSION = 2
_MOST_DICTIONARIES = 256  # a context of zstd takes 100 KB and more, however small its dictionary


class Dictionary:
    """The bytes that packed values have in common, named by their content: 16 bytes to 1 MiB."""

    def __init__(self, content: bytes):
        if not 16 <= len(content) <= MAX_DICTIONARY:
            raise ValueError(f"a dictionary of {len(content)} bytes, must be 16 to {MAX_DICTIONARY}")
        self.content = bytes(content)
        digest = hashlib.sha256(content).digest()
        ids = (int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4))
        self.id: int = next(filter(None, ids), 1)
        self._prepared: dict[int, Any] = {}  # by algorithm

    def prepared(self, algorithm: int) -> Any:
        if algorithm not in self._prepared:
            prepare = DECODERS[algorithm].prepare
            assert prepare is not None
            self._prepared[algorithm] = prepare(self.content)
        return self._prepared[algorithm]


class Batch:
    """The packed values of one reply or pipeline."""

    decoded = 0  # bytes
    fetched = 0  # dictionaries

    def take(self, length: int, budget: int) -> None:
        if length > budget - self.decoded:
            raise TooLargeError(f"{length} bytes more than the {self.decoded} decoded so far, and budget is {budget}")
        self.decoded += length


class Reader:
    """Unpacks stored values. It may be shared by threads.

    dictionaries: those that values may need; more come with ``add``.
    max_size: the largest decoded value in bytes; a larger one is a TooLargeError.
    strict: a value that starts with BA 1E but has no valid header is a CorruptError. Use it where
        every writer packs. Without it the value is a plain one.
    cache_size: how many bytes of dictionaries to keep, at most 256 dictionaries. The least recently
        used ones go first; the last one stays. A dictionary in use takes several times its bytes.
    budget: how many bytes the packed values of one reply or pipeline may have together, decoded; at
        least max_size. Those beyond are a TooLargeError.
    """

    def __init__(
        self,
        dictionaries: Iterable[Dictionary] = (),
        *,
        max_size: int = 64 << 20,
        strict: bool = False,
        cache_size: int = 16 << 20,
        budget: int = 256 << 20,
    ):
        self.max_size = max_size
        self.budget = max(budget, max_size)
        self.strict = strict
        self._cache_size = cache_size
        self._lock = threading.Lock()
        self._dictionaries: OrderedDict[int, Dictionary] = OrderedDict()
        self._bytes = 0
        for dictionary in dictionaries:
            self.add(dictionary)

    def add(self, dictionary: Dictionary) -> None:
        """Keeps a dictionary, and drops others beyond cache_size."""
        with self._lock:
            if dictionary.id in self._dictionaries:
                return
            self._dictionaries[dictionary.id] = dictionary
            self._bytes += len(dictionary.content)
            while len(self._dictionaries) > (1 if self._bytes > self._cache_size else _MOST_DICTIONARIES):
                _, dropped = self._dictionaries.popitem(last=False)
                self._bytes -= len(dropped.content)

    def unpack(self, stored: bytes, *, now: Optional[float] = None) -> bytes:
        """The content of a stored value; a value that is no frame is its own content.

        With now, in seconds since 1970, an expired value is a NotFoundError, as for Cache.Get of
        Go. Without it expiries are ignored. A cached miss is a NotFoundError always.
        """
        return self._unpack(stored, now, None)

    def _unpack(self, stored: bytes, now: Optional[float], batch: Optional[Batch]) -> bytes:
        stored = bytes(stored)
        header = frame.parse(stored)
        if header is None:
            if self.strict and stored.startswith(frame.MAGIC):
                raise CorruptError("starts like a frame, but its header check is wrong")
            return stored
        payload = stored[header.payload :]
        expires = None
        if header.version == 2:
            trailer = frame.parse_trailer(payload)
            if trailer.absent:
                raise NotFoundError("the frame says that there is no value")
            expires, payload = trailer.expires, payload[: -trailer.size]
        content = self._decode(header, payload, batch)
        if now is not None and expires is not None and expires <= now:
            raise NotFoundError("the value has expired")
        return content

    def _decode(self, header: frame.Header, payload: bytes, batch: Optional[Batch]) -> bytes:
        if header.length > self.max_size:
            raise TooLargeError(f"{header.length} bytes decoded, and max_size is {self.max_size}")
        if header.version > _LAST_VERSION:
            raise UnknownAlgorithmError(f"frame version {header.version}: upgrade balekv")
        if header.algorithm == frame.CHUNKS:
            raise UnknownAlgorithmError("the value is a stream, in chunks under other keys, which only Go reads")
        decoder = DECODERS.get(header.algorithm)
        if decoder is None:
            raise UnknownAlgorithmError(f"algorithm {header.algorithm}: upgrade balekv")
        if len(payload) > header.length + header.length // 6 + 1024:
            raise CorruptError(f"a payload of {len(payload)} bytes for {header.length} decoded")
        if header.length == 0 and header.algorithm != frame.STORED:
            raise CorruptError("no bytes, and compressed all the same")  # no writer does so
        try:
            prepared = None
            if header.dictionary_id:
                if decoder.prepare is None:
                    raise UnknownDictionaryError(header.dictionary_id, f"{frame.NAMES[header.algorithm]} takes none")
                prepared = self._dictionary(header.dictionary_id).prepared(header.algorithm)
            if batch:
                batch.take(header.length, self.budget)
            content = decoder.decode(payload, header.length, prepared)
        except (BaleError, MemoryError):
            raise
        except Exception as e:  # each library has its own
            raise CorruptError(f"{frame.NAMES[header.algorithm]}: {e}") from e
        if len(content) != header.length:
            raise CorruptError(f"{len(content)} bytes decoded, {header.length} expected")
        if header.checksum is not None and frame.crc32c(content) != header.checksum:
            raise CorruptError("the checksum of the content differs")
        return content

    def _dictionary(self, dictionary_id: int) -> Dictionary:
        with self._lock:
            dictionary = self._dictionaries.get(dictionary_id)
            if dictionary is None:
                raise UnknownDictionaryError(dictionary_id)
            self._dictionaries.move_to_end(dictionary_id)
            return dictionary
