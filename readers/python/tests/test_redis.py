"""What a Go program writes through a roll-out of dictionaries, read through the real clients."""

import asyncio
from collections import defaultdict

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster

import balekv
from balekv.redis import AsyncPlain, Plain, Registry, UnreadableError


def content(entry):
    """None for a miss, an exception for what cannot be read."""
    if entry.get("error") == "not found":
        return None
    return UnreadableError if entry.get("error") else bytes.fromhex(entry["content"])


def split(phase):
    """The strings, and the hashes by field."""
    strings, hashes = {}, defaultdict(dict)
    for e in phase["values"]:
        if e.get("field"):
            hashes[e["key"]][e["field"]] = content(e)
        else:
            strings[e["key"]] = content(e)
    return strings, hashes


def outcome(read, *args):
    try:
        return read(*args)
    except UnreadableError as e:
        assert repr(args[0]) in str(e), "the error names the key"
        return UnreadableError


def kinds(replies):
    return [UnreadableError if isinstance(r, UnreadableError) else r for r in replies]


def check(r, phase, transactions):
    strings, hashes = split(phase)
    assert {k: outcome(r.get, k) for k in strings} == strings
    good = [k for k, v in strings.items() if v is not UnreadableError]
    if transactions:  # on a cluster the keys are in many slots
        assert r.mget(good) == [strings[k] for k in good]
        if len(good) < len(strings):
            with pytest.raises(UnreadableError, match=f"mget '{next(k for k in strings if k not in good)}': "):
                r.mget(list(strings))
    for key, fields in hashes.items():
        names = list(fields)
        assert {f: outcome(r.hget, key, f) for f in fields} == fields
        if UnreadableError in fields.values():
            with pytest.raises(UnreadableError):
                r.hgetall(key)
        else:
            assert r.hgetall(key) == {f.encode(): v for f, v in fields.items()}
            assert r.hmget(key, names) == list(fields.values())
            assert sorted(r.hvals(key)) == sorted(fields.values())
    for transaction in {False, transactions}:
        with r.pipeline(transaction=transaction) if transactions else r.pipeline() as pipe:
            for key in strings:
                pipe.get(key)
            for key in hashes:
                pipe.exists(key)
            assert kinds(pipe.execute(raise_on_error=False)) == [*strings.values(), *[1] * len(hashes)]
            assert len(pipe) == 0


def test_redis(fleet):
    phases = 0
    for phase in fleet:
        phases += 1
        with Plain(redis.Redis.from_url(phase["url"])) as new, redis.Redis.from_url(phase["url"]) as client:
            if phases == 1:
                old = Plain(redis.Redis.from_url(phase["url"]))  # meets dictionaries as they come
            check(new, phase, True)
            check(old, phase, True)
            assert phases == 1 or client.get("first:5") != new.get("first:5"), "it was packed"
    assert phases == 7
    old.client.close()


def test_decode_responses(fleet):
    phase = next(iter(fleet))
    options = {"decode_responses": True, "encoding_errors": "surrogateescape"}
    with Plain(redis.Redis.from_url(phase["url"], **options)) as r:
        for key, value in split(phase)[0].items():
            assert r.get(key) == value.decode("utf-8", "surrogateescape")


def test_watch(fleet):
    phase = next(iter(fleet))
    with Plain(redis.Redis.from_url(phase["url"])) as r, r.pipeline() as pipe:
        pipe.watch("none:5")
        assert pipe.get("none:5") == split(phase)[0]["none:5"]
        pipe.multi()
        pipe.get("none:6").get("none:7")
        assert pipe.execute() == [split(phase)[0]["none:6"], split(phase)[0]["none:7"]]


def test_mirrors(fleet):
    for phase in fleet:
        if phase["phase"] != "the first dictionary":
            continue
        with redis.Redis.from_url(phase["url"]) as client:
            elsewhere = Registry(client, prefix="another:")
            with pytest.raises(UnreadableError, match="dictionary"):
                Plain(client, registry=elsewhere).get("first:5")
            mirrored = Registry(redis.Redis(port=1), mirrors=[client])
            assert Plain(client, registry=mirrored).get("first:5") == split(phase)[0]["first:5"]
        return


def test_cluster(cluster):
    for phase in cluster:
        with Plain(redis.RedisCluster.from_url(phase["url"])) as r:
            check(r, phase, False)


async def check_async(r, phase, cluster):
    strings, hashes = split(phase)
    for key, want in strings.items():
        if want is UnreadableError:
            with pytest.raises(UnreadableError):
                await r.get(key)
        else:
            assert await r.get(key) == want
    for key, fields in hashes.items():
        if UnreadableError not in fields.values():
            assert await r.hgetall(key) == {f.encode(): v for f, v in fields.items()}
    for transaction in {False, not cluster}:
        async with r.pipeline() if cluster else r.pipeline(transaction=transaction) as pipe:
            for key in strings:
                pipe.get(key)
            assert kinds(await pipe.execute(raise_on_error=False)) == list(strings.values())


def test_asyncio(fleet):
    async def run():
        for phase in fleet:
            async with AsyncPlain(redis.asyncio.Redis.from_url(phase["url"])) as r:
                await check_async(r, phase, False)

    asyncio.run(run())


def test_asyncio_cluster(cluster):
    async def run():
        for phase in cluster:
            async with AsyncPlain(redis.asyncio.cluster.RedisCluster.from_url(phase["url"])) as r:
                await check_async(r, phase, True)

    asyncio.run(run())


class Fake:
    """A client whose keys all hold the same."""

    def __init__(self, content):
        self.content, self.asked = content, []

    def get(self, key):
        return bytes.fromhex("ba1e2543f4785634120478787878")  # of the dictionary 12345678

    def execute_command(self, *args, **_):
        self.asked.append(args)
        return self.content


@pytest.mark.parametrize(
    "content, why",
    [
        (b"", "does not hold it"),
        (b"not the bytes of this id", "holds other bytes"),
        (b"x" * (balekv.reader.MAX_DICTIONARY + 1), "must be 16 to 1048576"),
    ],
)
def test_registry(content, why):
    client = Fake(content)
    for _ in range(3):
        with pytest.raises(UnreadableError, match=why):
            Plain(client, registry=(registry := Registry(client))).get("k")
    asked = ("GETRANGE", "bale:dict:data:12345678", 0, 1 << 20), ("GETRANGE", "bale:dict:quarantine:12345678", 0, 1 << 20)
    assert tuple(client.asked) == asked * 3
    for _ in range(3):
        with pytest.raises(UnreadableError, match=why):
            Plain(client, registry=registry).get("k")
    assert len(client.asked) == 6, "it was asked for again within a second"


def test_bounded_cache():
    dictionaries = [balekv.Dictionary(bytes([i]) * 1000) for i in range(10)]
    reader = balekv.Reader(dictionaries, cache_size=3000)
    assert sorted(reader._dictionaries) == sorted(d.id for d in dictionaries[-3:])
