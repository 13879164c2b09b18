"""Reads packed values through redis-py: plain ones come back, dictionaries from the registry.

    r = balekv.redis.Plain(redis.Redis())          # or RedisCluster
    r = balekv.redis.AsyncPlain(redis.asyncio.Redis())
    r.get("user:1")
"""

from __future__ import annotations

import codecs
import functools
import threading
import time
from typing import Any, Generator, Iterable, Iterator, Optional

import redis
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
        encoder = client.get_encoder() if hasattr(client, "get_encoder") else None
        self._decodes = encoder is None or encoder.decode_responses
        if encoder and _lossy(encoder):
            raise ValueError("decode_responses=True needs encoding='utf-8', encoding_errors='surrogateescape': packed values are not text")
        self.client = client
        self._registry = registry or Registry(client)
        self._reader = reader or Reader()

    def __getattr__(self, name: str) -> Any:
        if name == "client":  # of an instance that copy or pickle makes, before it has one
            raise AttributeError(name)
        attribute = getattr(self.client, name)
        if name not in _SHAPES:
            return attribute

        def read(*args: Any, **options: Any) -> Any:
            args, options = tuple(map(_kept, args)), {option: _kept(a) for option, a in options.items()}
            return self._read(_called(name, args, options), attribute(*args, **options))

        return read

    def pipeline(self, *args: Any, **options: Any) -> Any:
        pipe = self.client.pipeline(*args, **options)
        _queue(pipe)  # finds the queue now, or raises
        pipe._plain, pipe.__class__ = self, _reading(self._pipeline, type(pipe))
        return pipe

    def _value(self, stored: Any, now: float, batch: Batch) -> Reads:
        """The content of a value; None for none, for a cached miss and for an expired one."""
        text = isinstance(stored, str)
        if not isinstance(stored, (bytes, bytearray, memoryview)) and not (text and self._decodes):
            if isinstance(stored, Iterable):  # which may hold packed bytes
                raise BaleError(f"a response callback has made it a {type(stored).__name__}; values must stay bytes")
            return stored  # None, or a number
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

    def _reply(self, words: list, reply: Any, batch: Optional[Batch] = None) -> Reads:
        shape, where = _SHAPES.get(words[0]), None
        if reply is None or shape is None:
            return reply
        now, batch = time.time(), batch or Batch()
        try:
            is_list = isinstance(reply, list)
            if shape is _MANY and is_list:
                values = []
                for where, stored in enumerate(reply):
                    values.append((yield from self._value(stored, now, batch)))
                return values
            if shape is _FIELDS and (isinstance(reply, dict) or is_list and len(reply) % 2 == 0):
                plain = []
                for where, stored in zip(reply[::2], reply[1::2]) if is_list else reply.items():
                    value = yield from self._value(stored, now, batch)
                    if value is not None:
                        plain.append((where, value))
                return [part for pair in plain for part in pair] if is_list else dict(plain)
            return (yield from self._value(reply, now, batch))
        except BaleError as e:
            raise UnreadableError(f"{_named(words, where)}: {e}") from e

    def _replies(self, queue: list, replies: list, raise_on_error: bool) -> Reads:
        if len(replies) != len(queue):
            raise UnreadableError(f"{len(replies)} replies to {len(queue)} commands: no value belongs to a key")
        batch = Batch()
        for i, args in enumerate(queue):
            if not isinstance(replies[i], Exception):
                try:
                    replies[i] = yield from self._reply(_sent(args), replies[i], batch)
                except UnreadableError as e:
                    if raise_on_error:
                        raise
                    replies[i] = e
        return replies


def _lossy(encoder: Any) -> bool:
    """Whether the bytes of a reply cannot be had back from its text."""
    lossless = codecs.lookup(encoder.encoding).name == "utf-8" and encoder.encoding_errors == "surrogateescape"
    return encoder.decode_responses and not lossless


def _kept(argument: Any) -> Any:
    """An argument that can be read again: the client uses iterators up."""
    return list(argument) if isinstance(argument, Iterator) else argument


def _called(name: str, args: tuple, options: dict) -> list:
    """The words of a command, by its method's arguments."""
    words: list = [name]
    for a in [options["name"]] if "name" in options else [*args, *options.values()]:
        words += a if isinstance(a, Iterable) and not isinstance(a, (str, bytes, bytearray, memoryview)) else [a]
    return words


def _sent(args: tuple) -> list:
    """The words of a command in a queue. redis-py splits the first argument, too."""
    first = args[0] if isinstance(args[0], str) else bytes(args[0]).decode("utf-8", "replace")
    name, *words = first.split()
    return [name.lower(), *words, *args[1:]]


def _named(words: list, where: Any) -> str:
    """The command and the key of a value; where is its index or field in the reply, None for one value."""
    name, *keys = words
    if name == "mget":
        keys, where = keys[where:], None
    return " ".join([name, *map(_shown, keys[:1])]) + ("" if where is None else f", value {_shown(where)}")


def _shown(name: Any) -> str:
    """A name in a message: others choose the fields of a hash, whose names may have 512 MB."""
    if not isinstance(name, (str, bytes, int)):  # of a response callback, with values perhaps
        return type(name).__name__
    if not isinstance(name, int) and len(name) > _MAX_NAME:
        return f"{name[:_MAX_NAME]!r}..."
    return repr(name)


_ONE, _MANY, _FIELDS = range(3)
_SHAPES = {
    "get": _ONE, "getex": _ONE, "getdel": _ONE, "hget": _ONE,
    "mget": _MANY, "hmget": _MANY, "hvals": _MANY,
    "hgetall": _FIELDS,
}  # fmt: skip


def _queue(pipe: Any) -> list:
    """The arguments of each command in a pipeline's own queue, which differs by class and version of redis-py."""
    owner = getattr(pipe, "_execution_strategy", pipe)  # of clusters, from version 6 on
    for name in ("_command_queue", "_command_stack", "command_stack"):
        queue = getattr(owner, name, None)
        if isinstance(queue, list) and all(isinstance(command, tuple) or hasattr(command, "args") for command in queue):
            return [command[0] if isinstance(command, tuple) else command.args for command in queue]
    raise UnreadableError(f"redis-py {redis.__version__} has no queue of a pipeline that balekv knows: upgrade balekv")


class _Pipeline:
    """Comes before a pipeline's own class. Commands enter the queue in many ways, and end here in two."""

    _plain: Any

    def execute_command(self, *args: Any, **options: Any) -> Any:
        result = super().execute_command(*args, **options)
        return result if result is self else self._plain._read(_sent(args), result)  # after watch

    def execute(self, raise_on_error: bool = True, **options: Any) -> Any:
        queue = _queue(self)
        replies = super().execute(raise_on_error, **options)
        return _run(self._plain._replies(queue, replies, raise_on_error))


class _AsyncPipeline(_Pipeline):
    async def execute(self, raise_on_error: bool = True, **options: Any) -> Any:
        queue = _queue(self)
        replies = await super(_Pipeline, self).execute(raise_on_error, **options)
        return await _run_async(self._plain._replies(queue, replies, raise_on_error))


@functools.lru_cache(maxsize=None)
def _reading(pipeline: type, kind: type) -> type:
    return type(kind.__name__, (pipeline, kind), {})


class Plain(_Plain):
    """A redis.Redis or RedisCluster whose reads return plain values.

    These are get, getex, getdel, mget, hget, hmget, hvals and hgetall, and in pipelines these
    commands, however they are queued. A cached miss and an expired value are None, and left out of
    hgetall. A value that cannot be read is an UnreadableError. All else is the client's own. A
    client with decode_responses=True needs encoding_errors="surrogateescape" as well: with other
    settings it is a ValueError. It may be shared by threads, a pipeline may not.
    """

    _pipeline = _Pipeline

    def _read(self, words: list, reply: Any) -> Any:
        return _run(self._reply(words, reply))

    def __enter__(self) -> "Plain":
        return self

    def __exit__(self, *_: Any) -> None:
        self.client.close()


class AsyncPlain(_Plain):
    """Plain for redis.asyncio.Redis and RedisCluster."""

    _pipeline = _AsyncPipeline

    async def initialize(self) -> "AsyncPlain":
        await self.client.initialize()  # which returns itself
        return self

    async def _read(self, words: list, reply: Any) -> Any:
        return await _run_async(self._reply(words, await reply))

    async def __aenter__(self) -> "AsyncPlain":
        await self.client.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self.client.__aexit__(*exc)  # whose aclose came with version 5.0.1


def _dictionary(client: Any, key: str) -> Any:
    """A dictionary, and one byte more, by which a longer value is found out. Clients that cache want keys."""
    return client.execute_command("GETRANGE", key, 0, MAX_DICTIONARY, keys=[key], **{NEVER_DECODE: True})


def _run(reads: Reads) -> Any:
    try:
        client, key = next(reads)
        while True:
            try:
                content = _dictionary(client, key)
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
                content = await _dictionary(client, key)
            except Exception as e:
                client, key = reads.throw(e)
            else:
                client, key = reads.send(content)
    except StopIteration as end:
        return end.value
