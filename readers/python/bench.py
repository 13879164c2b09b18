"""Microseconds a value of the reader and of the bare library, in turn: python bench.py"""

import statistics
import sys
import time

import zstandard

sys.path.insert(0, "tests")
from test_vectors import DICTIONARIES, balekv, read  # noqa: E402

ROUNDS, VALUES = 51, 2000


def took(work, value):
    start = time.perf_counter()
    for _ in range(VALUES):
        work(value)
    return (time.perf_counter() - start) / VALUES * 1e6


vectors = {v["name"]: v for v in read("vectors.ndjson")}
for name, dictionary in (("zstd", None), ("zstd with the trained dictionary", DICTIONARIES[1])):
    v = vectors[name]
    stored = bytes.fromhex(v["stored"])
    frame = b"\x28\xb5\x2f\xfd" + stored[balekv.frame.parse(stored).payload :]
    library = zstandard.ZstdDecompressor(dict_data=dictionary and zstandard.ZstdCompressionDict(dictionary.content))
    reader = balekv.Reader(DICTIONARIES)
    assert reader.unpack(stored).hex() == library.decompress(frame).hex() == v["content"]
    times = [(took(reader.unpack, stored), took(library.decompress, frame)) for _ in range(ROUNDS)]
    print(f"{name}: {statistics.median(t[0] for t in times):.2f} µs, library {statistics.median(t[1] for t in times):.2f} µs")
