"""Values that somebody wrote to do harm."""

import gc
import weakref

import pytest
from google_crc32c import value as crc32c

import balekv
from balekv.redis import Plain, UnreadableError


def frame(algorithm, length, payload, dictionary_id=0):
    fields = dictionary_id.to_bytes(4, "little") if dictionary_id else b""
    size = b""
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    header = b"\xba\x1e" + bytes([algorithm | (0x20 if dictionary_id else 0)])
    size = fields + size + bytes([length])
    check = crc32c(header + size)
    return header + (check >> 16 ^ check & 0xFFFF).to_bytes(2, "little") + size + payload


def repeated(blocks):
    """A frame of zstd with blocks of 128 KiB, each in four bytes."""
    block = [((128 << 10) << 3 | 1 << 1 | (i == blocks - 1)).to_bytes(3, "little") + b"x" for i in range(blocks)]
    return frame(5, blocks << 17, b"\x00" + bytes([7 << 3]) + b"".join(block))


class Client:
    def __init__(self, *values):
        self.values = values

    def get(self, key):
        return self.values[0]

    def mget(self, *keys):
        return list(self.values)

    def hgetall(self, key):
        return dict(enumerate(self.values))

    def pipeline(self):
        return Pipe(self.values)


class Pipe:
    def __init__(self, values):
        self.values, self.command_stack = values, []

    def get(self, key):
        return self.execute_command("GET", key)

    def execute_command(self, *args):
        self.command_stack.append((args, {}))
        return self

    def execute(self, raise_on_error):
        return list(self.values)


def test_budget():
    mib = repeated(8)
    reader = balekv.Reader(max_size=1 << 20, budget=3 << 20)
    r = Plain(Client(mib, mib, mib), reader=reader)
    for _ in range(2):  # for each reply anew
        assert [len(v) for v in r.mget("a", "b", "c")] == [1 << 20] * 3
    r = Plain(Client(mib, mib, b"plain", mib, mib), reader=reader)
    for read in (lambda: r.mget("a", "b", "c", "d", "e"), lambda: r.hgetall("h")):
        with pytest.raises(UnreadableError, match="decoded so far, and budget is 3145728"):
            read()
    pipe = r.pipeline()
    for key in "abcde":
        pipe.get(key)
    *good, last = pipe.execute(raise_on_error=False)
    assert [len(v) for v in good] == [1 << 20, 1 << 20, 5, 1 << 20] and isinstance(last, UnreadableError)
    assert len(Plain(Client(mib), reader=balekv.Reader(budget=1)).get("a")) == 1 << 20, "max_size bounds a single value"


@pytest.mark.parametrize("commands", [1, 4])
def test_replies_that_do_not_fit(commands):
    pipe = Plain(Client(*[b"plain"] * 3)).pipeline()
    for key in range(commands):
        pipe.get(key)
    with pytest.raises(UnreadableError, match=f"3 replies to {commands} commands"):
        pipe.execute(raise_on_error=False)


def test_pipeline_of_another_version():
    class Elsewhere(Client):
        def pipeline(self):
            return object()

    with pytest.raises(UnreadableError, match="no queue of a pipeline that balekv knows"):
        Plain(Elsewhere()).pipeline()


def test_long_names():
    class Long(Client):
        def hgetall(self, key):
            return {b"\x00" * (1 << 20): self.values[0]}

    r = Plain(Long(frame(5, 5, b"\x00")))
    for read in (lambda: r.hgetall("h"), lambda: r.get("\x00" * (1 << 20)), lambda: r.mget("\x00" * (1 << 20))):
        with pytest.raises(UnreadableError, match="x00'\\.\\.\\.") as e:
            read()
        assert len(str(e.value)) < 1200


def test_no_memory(monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setitem(balekv.reader.DECODERS, 5, balekv.decode.Decoder(fail))
    with pytest.raises(MemoryError):
        balekv.Reader().unpack(repeated(1))


def test_tiny_dictionaries():
    reader = balekv.Reader(balekv.Dictionary(b"%016d" % i) for i in range(1000))
    assert len(reader._dictionaries) == 256


def test_unknown_dictionary_keeps_no_reply():
    class Reply(dict):
        pass

    class Empty(Client):
        def hgetall(self, key):
            reply = Reply(a=repeated(1), z=frame(5, 5, b"\x00", 7))
            kept.append(weakref.ref(reply))
            return reply

        def execute_command(self, *_, **__):
            return b""

    kept = []
    r = Plain(Empty())
    for _ in range(2):  # the second one is not asked for
        with pytest.raises(UnreadableError, match="unknown dictionary 00000007: the registry"):
            r.hgetall("h")
    gc.collect()
    assert [ref() for ref in kept] == [None, None]


def test_fetched_dictionaries():
    dictionaries = [balekv.Dictionary(b"%016d" % i) for i in range(2)]

    class Fetching(Client):
        fetched = 0

        def execute_command(self, _, key, *__, **___):
            self.fetched += 1
            return next(d.content for d in dictionaries if key.endswith(f"{d.id:08x}"))

    client = Fetching(*(frame(5, 1, b"\x00\x00\x09\x00\x00x", dictionaries[i % 2].id) for i in range(1000)))
    r = Plain(client, reader=balekv.Reader(cache_size=16))  # which keeps one
    with pytest.raises(UnreadableError, match="the reply has asked for 256 others"):
        r.mget(*map(str, range(1000)))
    assert client.fetched == 256
