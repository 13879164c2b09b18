"""Payloads, each decoded by its algorithm's stock library.

Each decoder takes a payload, the length that the header claims, and what a dictionary was prepared
to, None for none. It allocates no more than the length, and may return fewer or more bytes.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import Any, Callable, NamedTuple, Optional

import zstandard

from .errors import CorruptError, UnknownAlgorithmError
from .frame import GZIP, LZ4, S2, SNAPPY, STORED, ZSTD

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_LZ4_DICTIONARY = 64 << 10


class _Zstd:
    """Contexts of zstd with a dictionary. A context serves one thread at a time."""

    def __init__(self, dictionary: Optional[bytes] = None):
        self._dictionary = zstandard.ZstdCompressionDict(dictionary) if dictionary else None
        self._idle: deque[zstandard.ZstdDecompressor] = deque(maxlen=8)
        self._idle.append(self._new())  # a damaged dictionary fails here

    def _new(self) -> zstandard.ZstdDecompressor:
        return zstandard.ZstdDecompressor(dict_data=self._dictionary)

    def decode(self, frame: bytes) -> bytes:
        try:
            context = self._idle.pop()
        except IndexError:
            context = self._new()
        content = context.decompress(frame, read_across_frames=False, allow_extra_data=False)
        self._idle.append(context)
        return content


_plain_zstd = _Zstd()


def _zstd(payload: bytes, length: int, prepared: Optional[_Zstd]) -> bytes:
    return (prepared or _plain_zstd).decode(_zstd_frame(payload, length))


def _zstd_frame(payload: bytes, length: int) -> bytes:
    """A standard frame that states the length, so that the library allocates just that."""
    descriptor = payload[0]
    single = descriptor >> 5 & 1
    size = (single, 2, 4, 8)[descriptor >> 6]
    at = 2 - single + (0, 1, 2, 4)[descriptor & 3]
    stated = int.from_bytes(payload[at : at + size], "little") + (256 if size == 2 else 0)
    if size and stated != length:
        raise CorruptError(f"the zstd frame holds {stated} bytes, {length} expected")
    start = bytes([descriptor | 0xC0]) + payload[1:at]
    return b"".join((_ZSTD_MAGIC, start, length.to_bytes(8, "little"), payload[at + size :]))


def _lz4(payload: bytes, length: int, tail: Optional[bytes]) -> bytes:
    try:
        import lz4.block
    except ImportError:
        raise UnknownAlgorithmError("packed with lz4: pip install 'balekv[lz4]'") from None
    if length > 255 * len(payload):
        raise CorruptError(f"lz4: {len(payload)} bytes cannot hold {length}")
    return lz4.block.decompress(payload, uncompressed_size=length, dict=tail or b"")


def _snappy(payload: bytes, length: int, _: Any) -> bytes:
    try:
        import cramjam
    except ImportError:
        raise UnknownAlgorithmError("packed with snappy: pip install 'balekv[snappy]'") from None
    if length > 22 * len(payload):  # a copy of 64 bytes takes 3
        raise CorruptError(f"snappy: {len(payload)} bytes cannot hold {length}")
    return bytes(cramjam.snappy.decompress_raw(payload))


def _s2(payload: bytes, length: int, _: Any) -> bytes:
    raise UnknownAlgorithmError("packed with s2, which no Python library reads: pack with zstd, or read through bale proxy")


def _gzip(payload: bytes, length: int, _: Any) -> bytes:
    member = zlib.decompressobj(wbits=31)
    content = member.decompress(payload, length + 1)
    if not member.eof or member.unused_data:
        raise CorruptError("gzip: the member does not end where the payload does")
    return content


def _stored(payload: bytes, length: int, _: Any) -> bytes:
    return payload


class Decoder(NamedTuple):
    decode: Callable[[bytes, int, Any], bytes]
    prepare: Optional[Callable[[bytes], Any]] = None  # of a dictionary; None if it takes none


DECODERS = {
    STORED: Decoder(_stored),
    SNAPPY: Decoder(_snappy),
    S2: Decoder(_s2, bytes),
    LZ4: Decoder(_lz4, lambda dictionary: dictionary[-_LZ4_DICTIONARY:]),
    GZIP: Decoder(_gzip),
    ZSTD: Decoder(_zstd, _Zstd),
}
