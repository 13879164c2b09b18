"""Reads packed values through redis-py: plain ones come back, dictionaries from the registry.

    r = balekv.redis.Plain(redis.Redis())          # or RedisCluster
    r = balekv.redis.AsyncPlain(redis.asyncio.Redis())
    r.get("user:1")
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Generator, Iterable, Optional

from redis.client import NEVER_DECODE

from .errors import BaleError, NotFoundError, UnknownDictionaryError
from .reader import MAX_DICTIONARY, Batch, Dictionary, Reader

__all__ = ["AsyncPlain", "Plain", "Registry", "UnreadableError"]

_RETRY_AFTER = 1.0  # seconds before a dictionary that could not be had is asked for again
_MAX_NAME = 256  # of a key or a field, in a message
_MAX_FETCHED = 256  # dictionaries for a reply: as many as are kept. With more in turn each value would fetch one again
_REMEMBERED = 1000  # such dictionaries: forged frames can name as many as they like

# What reads values is a generator that yields a client and the key to read there: run and run_async
# do so, and send the bytes.
Reads = Generator[tuple[Any, str], bytes, Any]


class UnreadableError(BaleError):
    """A value of a reply cannot be read: it names the key, and the cause is a BaleError."""


class Registry:
    """Where dictionaries come from: the registry of bale's package dict, which it never changes.

    client: of the Redis with the registry; the same one as for values by default.
    prefix: of the registry's keys.
    mirrors: clients of further registries, asked in turn for what the first one does not have.
    """

    def __init__(self, client: Any, *, prefix: str = "bale:dict:", mirrors: Iterable[Any] = ()):
        self._clients = [client, *mirrors]
        self._prefix = prefix
        self._lock = threading.Lock()
        self._missing: dict[int, tuple[float, str]] = {}  # why: an error would keep the replies in its traceback

    def fetch(self, dictionary_id: int) -> Generator[tuple[Any, str], bytes, Dictionary]:
        until, why = self._missing.get(dictionary_id, (0.0, ""))
        if time.monotonic() < until:
            raise UnknownDictionaryError(dictionary_id, why)
        why = f"the registry (prefix {self._prefix}) does not hold it"
        cause: Optional[Exception] = None
        for client in self._clients:
            for kind in ("data", "quarantine"):
                try:
                    content = yield client, f"{self._prefix}{kind}:{dictionary_id:08x}"
                    if content:
                        dictionary = Dictionary(content)
                        if dictionary.id == dictionary_id:
                            return dictionary
                        why = f"key {self._prefix}{kind}:{dictionary_id:08x} holds other bytes"
                except Exception as e:  # of the client, and of a size that no dictionary has
                    why, cause = f"it could not be fetched: {e}", e
        with self._lock:
            if len(self._missing) >= _REMEMBERED:
                self._missing.clear()
            self._missing[dictionary_id] = time.monotonic() + _RETRY_AFTER, why
        raise UnknownDictionaryError(dictionary_id, why) from cause


class _Plain:
    """What Plain and AsyncPlain have in common."""

    def __init__(self, client: Any, *, registry: Optional[Registry] = None, reader: Optional[Reader] = None):
        self.client = client
        self._registry = registry or Registry(client)
        self._reader = reader or Reader()

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.client, name)
        return self._reading(name, attribute) if name in _SHAPES else attribute

    def _value(self, stored: Any, now: float, batch: Batch) -> Reads:
        """The content of a value; None for none, for a cached miss and for an expired one."""
        if stored is None:
            return None
        text = isinstance(stored, str)  # by decode_responses
        if text:
            stored = stored.encode("utf-8", "surrogateescape")
        for last in (False, True):
            try:
                content = self._reader._unpack(stored, now, batch)
                break
            except NotFoundError:
                return None
            except UnknownDictionaryError as e:
                if last:
                    raise
                batch.fetched += 1
                if batch.fetched > _MAX_FETCHED:
                    raise UnknownDictionaryError(e.dictionary_id, f"the reply has asked for {_MAX_FETCHED} others") from None
                self._reader.add((yield from self._registry.fetch(e.dictionary_id)))
        return content.decode("utf-8", "surrogateescape") if text else content

    def _reply(self, name: str, args: tuple, reply: Any, batch: Optional[Batch] = None) -> Reads:
        if reply is None:
            return None
        now, batch = time.time(), batch or Batch()
        shape, where = _SHAPES[name], None
        try:
            if shape is _ONE:
                return (yield from self._value(reply, now, batch))
            if shape is _MANY:
                values = []
                for where, stored in enumerate(reply):
                    values.append((yield from self._value(stored, now, batch)))
                return values
            plain = {}
            for where, stored in reply.items():
                value = yield from self._value(stored, now, batch)
                if value is not None:
                    plain[where] = value
            return plain
        except BaleError as e:
            raise UnreadableError(f"{_named(name, args, where)}: {e}") from e

    def _replies(self, queued: list, replies: list, raise_on_error: bool) -> Reads:
        batch = Batch()
        for i, (name, args) in enumerate(queued):
            if name in _SHAPES and not isinstance(replies[i], Exception):
                try:
                    replies[i] = yield from self._reply(name, args, replies[i], batch)
                except UnreadableError as e:
                    if raise_on_error:
                        raise
                    replies[i] = e
        return replies


def _named(name: str, args: tuple, where: Any) -> str:
    """The command and the key of a value; where is its index or field in the reply, None for one value."""
    words = [word for a in args for word in (a if isinstance(a, (list, tuple, set)) else (a,))]
    if name == "mget":
        return f"{name} {_shown(words[where])}"
    return f"{name} {_shown(words[0])}" + ("" if where is None else f", value {_shown(where)}")


def _shown(name: Any) -> str:
    """A name in a message: others choose the fields of a hash, whose names may have 512 MB."""
    if isinstance(name, (str, bytes)) and len(name) > _MAX_NAME:
        return f"{name[:_MAX_NAME]!r}..."
    return repr(name)


_ONE, _MANY, _FIELDS = range(3)
_SHAPES = {
    "get": _ONE, "getex": _ONE, "getdel": _ONE, "hget": _ONE,
    "mget": _MANY, "hmget": _MANY, "hvals": _MANY,
    "hgetall": _FIELDS,
}  # fmt: skip


class Plain(_Plain):
    """A redis.Redis or RedisCluster whose reads return plain values.

    These are get, getex, getdel, mget, hget, hmget, hvals and hgetall, also in pipelines. A cached
    miss and an expired value are None, and left out of hgetall. A value that cannot be read is an
    UnreadableError. All else is the client's own. A client with decode_responses=True needs
    encoding_errors="surrogateescape" as well. It may be shared by threads, a pipeline may not.
    """

    def _reading(self, name: str, method: Callable) -> Callable:
        return lambda *args, **options: _run(self._reply(name, args, method(*args, **options)))

    def pipeline(self, *args: Any, **options: Any) -> "_Pipeline":
        return _Pipeline(self, self.client.pipeline(*args, **options))

    def __enter__(self) -> "Plain":
        return self

    def __exit__(self, *_: Any) -> None:
        self.client.close()


class AsyncPlain(_Plain):
    """Plain for redis.asyncio.Redis and RedisCluster."""

    def _reading(self, name: str, method: Callable) -> Callable:
        async def read(*args: Any, **options: Any) -> Any:
            return await _run_async(self._reply(name, args, await method(*args, **options)))

        return read

    def pipeline(self, *args: Any, **options: Any) -> "_AsyncPipeline":
        return _AsyncPipeline(self, self.client.pipeline(*args, **options))

    async def __aenter__(self) -> "AsyncPlain":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.client.aclose()


class _Queue:
    """A pipeline that knows what was queued."""

    def __init__(self, plain: Any, pipe: Any):
        self._plain, self._pipe, self._queued = plain, pipe, []

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._pipe, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **options: Any) -> Any:
            result = attribute(*args, **options)
            if result is self._pipe:
                self._queued.append((name, args))
                return self
            if name in _SHAPES:  # after watch, commands run at once
                return self._plain._reading(name, lambda: result)()
            return result

        return call

    def __len__(self) -> int:
        return len(self._queued)

    def _taken(self) -> list:
        queued, self._queued = self._queued, []
        return queued


class _Pipeline(_Queue):
    def execute(self, raise_on_error: bool = True) -> list:
        queued = self._taken()
        return _run(self._plain._replies(queued, self._pipe.execute(raise_on_error), raise_on_error))

    def reset(self) -> None:
        self._taken()
        self._pipe.reset()

    def __enter__(self) -> "_Pipeline":
        return self

    def __exit__(self, *_: Any) -> None:
        self.reset()


class _AsyncPipeline(_Queue):
    async def execute(self, raise_on_error: bool = True) -> list:
        queued = self._taken()
        replies = await self._pipe.execute(raise_on_error)
        return await _run_async(self._plain._replies(queued, replies, raise_on_error))

    async def reset(self) -> None:
        self._taken()
        await self._pipe.reset()

    async def __aenter__(self) -> "_AsyncPipeline":
        await self._pipe.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        self._taken()
        await self._pipe.__aexit__(*exc)


# A dictionary, and one byte more, by which a longer value is found out.
_RANGE = (0, MAX_DICTIONARY)


def _run(reads: Reads) -> Any:
    try:
        client, key = next(reads)
        while True:
            try:
                content = client.execute_command("GETRANGE", key, *_RANGE, **{NEVER_DECODE: True})
            except Exception as e:
                client, key = reads.throw(e)
            else:
                client, key = reads.send(content)
    except StopIteration as end:
        return end.value


async def _run_async(reads: Reads) -> Any:
    try:
        client, key = next(reads)
        while True:
            try:
                content = await client.execute_command("GETRANGE", key, *_RANGE, **{NEVER_DECODE: True})
            except Exception as e:
                client, key = reads.throw(e)
            else:
                client, key = reads.send(content)
    except StopIteration as end:
        return end.value
