"""The vectors of the format, and the damaged ones with Go's verdicts."""

import json
import pathlib

import pytest

import balekv

TESTDATA = pathlib.Path(__file__).parents[3] / "frame" / "testdata"
ERRORS = {
    "corrupt": balekv.CorruptError,
    "too large": balekv.TooLargeError,
    "unknown dictionary": balekv.UnknownDictionaryError,
    "unknown algorithm": balekv.UnknownAlgorithmError,
    "not found": balekv.NotFoundError,
}
DICTIONARIES = [balekv.Dictionary((TESTDATA / name).read_bytes()) for name in ("raw.dict", "trained.dict")]


def read(name):
    return [json.loads(line) for line in (TESTDATA / name).read_text().splitlines()]


def verdict(vector):
    """The content in hexadecimal, or the name of the error."""
    reader = balekv.Reader(DICTIONARIES, strict=vector.get("strict", False), max_size=vector.get("max_size", 64 << 20))
    try:
        return reader.unpack(bytes.fromhex(vector["stored"])).hex()
    except balekv.BaleError as e:
        return next(name for name, error in ERRORS.items() if isinstance(e, error))


def expected(vector):
    """Go's verdict. S2 cannot be decoded here, and reported only that."""
    want = vector.get("error", vector.get("content", ""))
    stored = bytes.fromhex(vector["stored"])
    header = balekv.frame.parse(stored)
    if header and header.algorithm == balekv.frame.S2 and want not in ("not found", "too large"):
        return {want, "unknown algorithm"} if vector.get("error") else {"unknown algorithm"}
    return {want}


@pytest.mark.parametrize("file, least", [("vectors.ndjson", 44), ("damaged.ndjson", 400)])
def test_vectors(file, least):
    vectors = read(file)
    assert len(vectors) >= least
    wrong = {v["name"]: verdict(v)[:60] for v in vectors if verdict(v) not in expected(v)}
    assert wrong == {}
