"""What redis-py does through the proxy. clients_test.go runs it, and expects a line for each check."""

import asyncio
import os
import sys
import threading

import redis
import redis.asyncio

proxy, server, protocol, prefix = sys.argv[1:]
VALUE = os.environ["BALE_VALUE"].encode()


def options(address):
    host, port = address.split(":")
    return {"host": host, "port": int(port), "protocol": int(protocol)}


r, direct = redis.Redis(**options(proxy)), redis.Redis(**options(server))


def value(n):
    return b"%d %s" % (n, VALUE)


def is_packed(stored):
    return stored[:2] == b"\xba\x1e" and len(stored) < len(VALUE)


def equal(got, want):
    assert got == want, f"{got!r}, want {want!r}"


def strings():
    a, b, other = prefix + "a", prefix + "b", "other:" + prefix
    assert r.set(a, value(1), ex=1000) and 0 < r.ttl(a) <= 1000
    assert is_packed(direct.get(a))
    equal(r.get(a), value(1))
    equal(r.set(a, value(2), get=True), value(1))
    equal(r.getset(a, value(3)), value(2))
    equal(r.getex(a, ex=500), value(3))
    assert r.mset({a: value(4), b: value(5), other: value(6)})
    assert is_packed(direct.get(b)) and direct.get(other) == value(6)
    equal(r.mget(b, prefix + "none", other, a), [value(5), None, value(6), value(4)])
    assert not r.setnx(a, value(7)) and r.setex(b, 1000, value(8))
    equal(r.getdel(b), value(8))
    equal(r.get(b), None)
    equal((r.set(b, 41), r.incr(b), direct.get(b)), (True, 42, b"42"))


def hashes():
    h = prefix + "h"
    equal(r.hset(h, mapping={"f": value(1), "g": value(2), "n": 1}), 3)
    assert is_packed(direct.hget(h, "f")) and is_packed(direct.hget(h, "g"))
    equal(r.hget(h, "f"), value(1))
    equal(r.hmget(h, "g", "none", "f"), [value(2), None, value(1)])
    equal(r.hincrby(h, "n", 2), 3)
    want = {b"f": value(1), b"g": value(2), b"n": b"3"}
    equal(r.hgetall(h), want)
    equal(sorted(r.hvals(h)), sorted(want.values()))
    equal(dict(r.hscan_iter(h)), want)
    assert not r.hsetnx(h, "f", value(3))


def pipeline():
    with r.pipeline(transaction=False) as p:
        for i in range(200):
            p.set(f"{prefix}p{i}", value(i)).get(f"{prefix}p{i}")
        replies = p.execute()
    equal(replies[1::2], [value(i) for i in range(200)])
    assert all(is_packed(direct.get(f"{prefix}p{i}")) for i in range(200))


def transaction():
    with r.pipeline() as p:
        replies = p.set(prefix + "t", value(1)).get(prefix + "t").hgetall(prefix + "h").get(prefix + "none").execute()
    equal(replies[:2] + replies[3:], [True, value(1), None])
    equal(replies[2][b"f"], value(1))
    assert is_packed(direct.get(prefix + "t"))


def watch():
    with r.pipeline() as p:
        p.watch(prefix + "t")
        equal(p.get(prefix + "t"), value(1))
        direct.set(prefix + "t", "changed")
        p.multi()
        p.set(prefix + "t", value(2))
        try:
            p.execute()
            raise AssertionError("EXEC in spite of a change")
        except redis.WatchError:
            pass
    equal(r.get(prefix + "t"), b"changed")


def blocking():
    pushed = threading.Timer(0.05, lambda: r.rpush(prefix + "l", value(1)))
    pushed.start()
    equal(list(r.blpop([prefix + "l"], timeout=30)), [(prefix + "l").encode(), value(1)])
    pushed.join()
    equal(r.blpop([prefix + "l"], timeout=0.05), None)


def pubsub():
    with r.pubsub() as p:
        p.subscribe(prefix + "ch")
        p.psubscribe(prefix + "c*")
        got = []
        while len(got) < 2:
            m = p.get_message(timeout=30)
            assert m, "no message"
            if "message" in m["type"]:
                got.append(m["data"])
            elif m["type"] == "psubscribe":
                r.publish(prefix + "ch", value(1))
        equal(got, [value(1)] * 2)


def binary():
    packed = direct.get(prefix + "p0")  # a frame, which a user could upload
    for n, v in enumerate((b"", b"\x00", bytes(range(256)) * 4, b"\r\n$5\r\n*1\r\n" * 20, b"\xba\x1e", packed, os.urandom(5000))):
        r.set(f"{prefix}bin{n}", v)
        equal(r.get(f"{prefix}bin{n}"), v)


def big():
    v = VALUE * ((8 << 20) // len(VALUE))
    r.set(prefix + "big", v)
    assert r.get(prefix + "big") == v
    stored = direct.get(prefix + "big")
    assert stored[:2] == b"\xba\x1e" and len(stored) < len(v) // 10


def refused():
    for command, args in (("APPEND", ("x",)), ("GETRANGE", (0, 1)), ("STRLEN", ())):
        try:
            r.execute_command(command, prefix + "a", *args)
            raise AssertionError(command + " on a key in scope")
        except redis.ResponseError as e:
            assert str(e).startswith(f"BALE {command} on a key in scope: "), e
    equal(r.get(prefix + "a"), value(4))
    equal(r.append("other:" + prefix, "x"), len(value(6)) + 1)


def concurrently():
    async def main():
        async with redis.asyncio.Redis(**options(proxy)) as a:
            await asyncio.gather(*(a.set(f"{prefix}async{i}", value(i)) for i in range(50)))
            equal(await asyncio.gather(*(a.get(f"{prefix}async{i}") for i in range(50))), [value(i) for i in range(50)])
            async with a.pipeline(transaction=True) as p:
                equal(await p.get(prefix + "async1").get(prefix + "async2").execute(), [value(1), value(2)])

    asyncio.run(main())


for check in strings, hashes, pipeline, transaction, watch, blocking, pubsub, binary, big, refused, concurrently:
    check()
    print(check.__name__, flush=True)
