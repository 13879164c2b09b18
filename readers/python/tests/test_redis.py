"""What a Go program writes through a roll-out of dictionaries, read through the real clients."""

import asyncio
import copy
import datetime
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


def test_response_callback(fleet):
    phase = next(iter(fleet))
    client = redis.Redis.from_url(phase["url"], protocol=2)
    client.set("number", 7)
    client.set_response_callback("GET", int)
    with Plain(client) as r:
        assert r.get("number") == 7
    strings, _ = split(phase)
    key = next(k for k, v in strings.items() if isinstance(v, bytes) and client.getrange(k, 0, 1) == b"\xba\x1e")
    stored = client.getrange(key, 0, -1)
    client.hset("packed", mapping={"f": stored})
    for shape in (
        lambda r, **_: list(zip(r[::2], r[1::2])),
        lambda r, **_: [dict(zip(r[::2], r[1::2]))],
        lambda r, **_: {"f": {"nested": r[1]}},
        lambda r, **_: {"f": r[1].decode("latin-1")},
        lambda r, **_: iter(r),
    ):
        client.set_response_callback("HGETALL", shape)
        with pytest.raises(UnreadableError, match="a response callback"):
            Plain(client).hgetall("packed")
        with pytest.raises(UnreadableError, match="a response callback"):
            Plain(client).pipeline().hgetall("packed").execute()
    for shape in (lambda r: [r], lambda r: r.decode("latin-1"), lambda r: {"value": r}):
        client.set_response_callback("GET", shape)
        with pytest.raises(UnreadableError, match="a response callback"):
            Plain(client).get(key)
    client.set_response_callback("MGET", lambda r, **_: dict(enumerate(r)))
    with pytest.raises(UnreadableError, match="a response callback"):
        Plain(client).mget(key, key)
    client.set_response_callback("HGETALL", lambda r, **_: r)  # a list: fields are no values, and a cached miss is left out
    client.hset("packed", mapping={stored: b"x", "gone": bytes.fromhex("ba1e40851f00000000000000ffff01e39f")})
    assert Plain(client).hgetall("packed") == [b"f", strings[key], stored, b"x"]
    for value in (None, True, 1.5, datetime.timedelta(1)):
        client.set_response_callback("GET", lambda r, value=value: value)
        assert Plain(client).get(key) == value


@pytest.mark.parametrize("plain, client", [(Plain, redis.Redis), (AsyncPlain, redis.asyncio.Redis)])
def test_lossy_decoding(plain, client):
    for options in ({}, {"encoding_errors": "replace"}, {"encoding": "latin-1", "encoding_errors": "surrogateescape"}):
        with pytest.raises(ValueError, match="decode_responses=True needs encoding='utf-8'"):
            plain(client(decode_responses=True, **options))
        plain(client(**options))
    plain(client(decode_responses=True, encoding="UTF8", encoding_errors="surrogateescape"))


@pytest.mark.parametrize("plain", [Plain, AsyncPlain])
def test_copy(plain):
    client = redis.asyncio.Redis() if plain is AsyncPlain else redis.Redis()
    assert copy.copy(plain(client)).client is client


def test_watch(fleet):
    phase = next(iter(fleet))
    with Plain(redis.Redis.from_url(phase["url"])) as r, r.pipeline() as pipe:
        pipe.watch("none:5")
        assert pipe.get("none:5") == split(phase)[0]["none:5"]
        pipe.multi()
        pipe.get("none:6").get("none:7")
        assert pipe.execute() == [split(phase)[0]["none:6"], split(phase)[0]["none:7"]]


def packed(fleet):
    """Packed values and their contents by key, beside a damaged one, also in a hash."""
    phase = next(p for p in fleet if p["phase"] == "the first dictionary")
    with redis.Redis.from_url(phase["url"]) as client:
        bad = client.get("first:5")[:-1]
        client.set("bad", bad)
        client.hset("hash", "bad", bad)
    return phase["url"], {key: value for key, value in split(phase)[0].items() if key in ("first:5", "first:6")}


def others(pipe):
    """Commands that enter the queue, but not by a method of the pipeline that returns it."""
    yield lambda: pipe.json().set("doc", "$", {"a": 1})
    yield lambda: pipe.ts().add("series", 1700000000000, 1.0)
    yield lambda: pipe.register_script("return 1")()
    yield lambda: pipe.execute_command("SET x", 1)
    if hasattr(pipe, "vset"):  # from redis-py 6 on
        yield lambda: pipe.vset().vadd("vectors", [1.0, 2.0], "a")


def queue(pipe, others, key):
    """Queues reads in many ways among other commands: the indexes of the reads."""
    reads = []
    for other in others:
        other()
        reads.append(len(pipe))
        pipe.get(name=key)
    for words in (("get", key), (b"GET", key), (f"GET {key}",)):
        reads.append(len(pipe))
        pipe.execute_command(*words)
    pipe.json().set("doc", "$", 1).get(key)
    return [*reads, len(pipe) - 1]


@pytest.mark.parametrize("protocol", [2, 3])
def test_queues(fleet, protocol):
    url, values = packed(fleet)
    with Plain(redis.Redis.from_url(url, protocol=protocol)) as r:
        pipe = r.pipeline(transaction=False)
        for _ in range(2):  # it can be used again
            reads = queue(pipe, others(pipe), "first:5")
            replies = pipe.execute(raise_on_error=False)
            assert [replies[i] for i in reads] == [values["first:5"]] * len(reads)
        pipe = r.pipeline()
        pipe.register_script("return redis.call('set', 'x', 1)")()
        pipe.get("first:5")
        pipe.execute_command("HGETALL", "hash")
        pipe.execute_command(b"HGETALL", "hash")
        _, good, *bad = pipe.execute(raise_on_error=False)
        assert good == values["first:5"] and kinds(bad) == [UnreadableError] * 2
        pipe.get("first:5").execute_command("DISCARD")
        pipe.reset()
        assert pipe.get("first:6").execute() == [values["first:6"]]


@pytest.mark.parametrize("protocol", [2, 3])
def test_queues_asyncio(fleet, protocol):
    url, values = packed(fleet)

    async def run():
        async with AsyncPlain(redis.asyncio.Redis.from_url(url, protocol=protocol)) as r:
            async with r.pipeline(transaction=False) as pipe:
                queues = [w for i, w in enumerate(others(pipe)) if i != 2]  # a script there is a coroutine
                reads = queue(pipe, queues, "first:5")
                replies = await pipe.execute(raise_on_error=False)
                assert [replies[i] for i in reads] == [values["first:5"]] * len(reads)
            async with r.pipeline() as pipe:
                await pipe.watch("bad")
                assert await pipe.get(name="first:5") == values["first:5"]
                with pytest.raises(UnreadableError, match="^get 'bad': "):
                    await pipe.get("bad")
                pipe.multi()
                await pipe.register_script("return 1")()
                assert await pipe.get("first:5").execute() == [1, values["first:5"]]
            with pytest.raises(UnreadableError, match="^mget 'bad': "):
                await r.mget(key for key in [*values, "bad"])

    asyncio.run(run())


def test_queues_cluster(cluster):
    phase = next(p for p in cluster if p["phase"] == "the first dictionary")
    value = split(phase)[0]["first:5"]

    async def run():
        async with AsyncPlain(redis.asyncio.cluster.RedisCluster.from_url(phase["url"])) as r:
            assert await r.pipeline(transaction=True).get("first:5").execute() == [value]
            pipe = r.pipeline().mset_nonatomic({"a": 1, "b": 2, "c": 3})  # as many commands as there are slots
            assert await pipe.get("first:5").execute() == [True] * 3 + [value]

    with Plain(redis.RedisCluster.from_url(phase["url"])) as r, r.pipeline() as pipe:
        pipe.delete("gone")  # in some versions it does not return the pipeline
        pipe.get("first:5")
        assert pipe.execute() == [0, value]
        with r.pipeline(transaction=True) as pipe:
            pipe.watch("first:5")
            assert pipe.get("first:5") == value
            pipe.multi()
            pipe.get("first:5")
            assert pipe.execute() == [value]
    asyncio.run(run())
    with redis.RedisCluster.from_url(phase["url"], decode_responses=True) as client, pytest.raises(ValueError):
        Plain(client)
    with pytest.raises(ValueError):
        AsyncPlain(redis.asyncio.cluster.RedisCluster.from_url(phase["url"], decode_responses=True))


@pytest.mark.parametrize("protocol", [2, 3])
def test_damaged(fleet, protocol):
    url, values = packed(fleet)
    good = list(values)
    with Plain(redis.Redis.from_url(url, protocol=protocol)) as r:
        for why, read in (
            ("get 'bad': ", lambda: r.get(name="bad")),
            ("hget 'hash': ", lambda: r.hget(key="bad", name="hash")),
            ("hmget 'hash', value 0: ", lambda: r.hmget(keys=["bad"], name="hash")),
            ("mget 'bad': ", lambda: r.mget(keys=[*good, "bad"])),
            ("mget 'bad': ", lambda: r.mget({**values, "bad": 1}.keys())),
            ("mget 'bad': ", lambda: r.mget(key for key in [*good, "bad"])),
            ("mget 'bad': ", lambda: r.mget(iter(good), "bad")),
        ):
            with pytest.raises(UnreadableError, match=f"^{why}"):
                read()
        pipe = r.pipeline(transaction=False)
        pipe.get(good[0]).get(name="bad").mget({good[0]: 1, "bad": 2}.keys()).get(good[1])
        first, *bad, last = pipe.execute(raise_on_error=False)
        assert [first, last] == list(values.values()) and kinds(bad) == [UnreadableError] * 2
        assert [str(e).split(":")[0] for e in bad] == ["get 'bad'", "mget 'bad'"]
        with pytest.raises(UnreadableError, match="^get 'bad': "):
            pipe.get("bad").execute()
        pipe = r.pipeline()
        pipe.watch("bad")
        for read in (lambda: pipe.get("bad"), lambda: pipe.get(name="bad")):
            with pytest.raises(UnreadableError, match="^get 'bad': "):
                read()
        pipe.reset()


def test_client_side_caching(fleet):
    url, values = packed(fleet)
    cache = pytest.importorskip("redis.cache")
    with redis.Redis.from_url(url) as client:
        major, minor = client.info("server")["redis_version"].split(".")[:2]
        if (int(major), int(minor)) < (7, 4):
            pytest.skip("redis-py caches from Redis 7.4 on")
        stored = client.get("first:5")
        client.hset("fields", "f", stored)
        value, options = values["first:5"], {"protocol": 3, "cache_config": cache.CacheConfig()}
        for decoding in ({}, {"decode_responses": True, "encoding_errors": "surrogateescape"}):
            field, want = ("f", value.decode()) if decoding else (b"f", value)
            with Plain(redis.Redis.from_url(url, **options, **decoding)) as r:
                for _ in range(2):
                    assert r.get("first:5") == r.hget("fields", "f") == want
                    assert r.mget("first:5", "none") == [want, None] and r.hmget("fields", ["f"]) == r.hvals("fields") == [want]
                    assert r.hgetall("fields") == {field: want}
                    assert r.pipeline().get("first:5").hgetall("fields").execute() == [want, {field: want}]
                client.set("first:5", "new")
                client.hset("fields", "f", "new")
                new = "new" if decoding else b"new"
                while (r.get("first:5"), r.hget("fields", "f")) != (new, new):  # until the invalidations are there
                    pass
                client.set("first:5", stored)
                client.hset("fields", "f", stored)
        assert Plain(redis.Redis.from_url(url, **options)).getdel("first:5") == value


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
                assert await r.initialize() is r
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

    def execute_command(self, *args, keys, **_):  # caching clients need keys
        assert keys == [args[1]]
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
