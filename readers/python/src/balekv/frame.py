"""The header and the trailer of a frame, as the comment of bale's Go package frame has them."""

from __future__ import annotations

from typing import NamedTuple, Optional

from google_crc32c import value as crc32c

from .errors import CorruptError, UnknownAlgorithmError

MAGIC = b"\xba\x1e"
STORED, SNAPPY, S2, LZ4, GZIP, ZSTD, CHUNKS = range(7)
NAMES = ("none", "snappy", "s2", "lz4", "gzip", "zstd", "chunks")

_TRAILER_SIZE = 11
_FRESHNESS = 1
_ABSENT = 0xFFFF


class Header(NamedTuple):
    version: int
    algorithm: int
    checksum: Optional[int]  # of the content, CRC-32C
    dictionary_id: int  # 0 for none
    length: int  # of the content, in bytes
    payload: int  # where it begins


def parse(stored: bytes) -> Optional[Header]:
    """The header of a frame, None for a value that was stored without bale."""
    if len(stored) <= 5 or not stored.startswith(MAGIC):
        return None
    tag = stored[2]
    version, algorithm = (tag >> 6) + 1, tag & 15
    at, checksum, dictionary_id = 5, None, 0
    if tag & 0x10:
        checksum = int.from_bytes(stored[at : at + 4], "little")
        at += 4
    if tag & 0x20:
        dictionary_id = int.from_bytes(stored[at : at + 4], "little")
        at += 4
        if dictionary_id == 0:
            return None
    length, end = 0, at
    while True:
        if end >= len(stored) or end - at == 9:
            return None
        byte = stored[end]
        length |= (byte & 127) << (7 * (end - at))
        end += 1
        if byte < 128:
            break
    if byte == 0 and end - at > 1:  # not the shortest form
        return None
    if _check(stored[:3] + stored[5:end]) != int.from_bytes(stored[3:5], "little"):
        return None
    if algorithm in (SNAPPY, S2):  # the length is the payload's own first field
        end = at
    return Header(version, algorithm, checksum, dictionary_id, length, end)


class Trailer(NamedTuple):
    expires: Optional[float]  # seconds since 1970, None for never
    absent: bool  # a cached miss
    size: int  # of the trailer, in bytes


def parse_trailer(payload: bytes) -> Trailer:
    """The trailer at the end of the payload of version 2."""
    if len(payload) >= 3 and payload[-3] != _FRESHNESS:
        raise UnknownAlgorithmError(f"the frame has a trailer of kind {payload[-3]}: upgrade balekv")
    trailer = payload[-_TRAILER_SIZE:]
    if len(trailer) < _TRAILER_SIZE or _check(trailer[:-2]) != int.from_bytes(trailer[-2:], "little"):
        raise CorruptError("trailer checksum mismatch: the value is damaged, or cut")
    expires = int.from_bytes(trailer[:6], "little")
    absent = int.from_bytes(trailer[6:8], "little") == _ABSENT
    return Trailer(expires / 1000 if expires else None, absent, _TRAILER_SIZE)


def _check(b: bytes) -> int:
    c = crc32c(b)
    return (c >> 16) ^ (c & 0xFFFF)
