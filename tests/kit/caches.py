"""Caches in front of the records: a Redis of the tests' own, and a cache that fails when it is told."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache

from testproject.servers import free_port
from tests.kit.threads import wait_until

ALIAS = "replays"
QUICK = {"socket_timeout": 0.2, "socket_connect_timeout": 0.2}  # of Django's cache for Redis
CHAOS = f"{__name__}.Chaos"


class Redis:
    """A server that keeps nothing on disk: stopped, it has lost everything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        options = ("--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", str(self.folder))
        self.process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        wait_until(self.answers)

    def answers(self) -> bool:
        import redis

        try:
            return bool(redis.Redis(port=self.port).ping())
        except redis.RedisError:
            return False

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """It accepts connections and answers nothing."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def fill_up(self) -> None:
        """It answers, deletes, and takes nothing more."""
        self.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        self.command("CONFIG", "SET", "maxmemory", "1")

    def command(self, *words: str) -> Any:
        import redis

        with redis.Redis(port=self.port) as client:
            return client.execute_command(*words)


def has_redis() -> bool:
    return shutil.which("redis-server") is not None


@contextmanager
def running_redis(folder: Path) -> Iterator[Redis]:
    server = Redis(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Trouble(Enum):
    """What is wrong with the cache."""

    NONE = "none"
    AWAY = "every operation raises"
    FULL = "nothing can be written"
    DEAF = "writes are lost without an error"


class Chaos(LocMemCache):
    """The memory of this process as a cache, with the trouble that a server can have."""

    trouble = Trouble.NONE
    asked = 0

    def get(self, key: Any, default: Any = None, version: Any = None) -> Any:
        type(self).asked += 1
        if self.trouble is Trouble.AWAY:
            raise ConnectionError("away")
        return super().get(key, default, version)

    def add(self, *arguments: Any, **named: Any) -> bool:
        return self._takes_writes() and super().add(*arguments, **named)

    def set(self, *arguments: Any, **named: Any) -> None:
        if self._takes_writes():
            super().set(*arguments, **named)

    def _takes_writes(self) -> bool:
        type(self).asked += 1
        if self.trouble in (Trouble.AWAY, Trouble.FULL):
            raise ConnectionError(self.trouble.value)
        return self.trouble is not Trouble.DEAF


@contextmanager
def in_trouble(trouble: Trouble) -> Iterator[None]:
    Chaos.trouble = trouble
    try:
        yield
    finally:
        Chaos.trouble = Trouble.NONE


def entries() -> dict[str, Any]:
    """Every entry of a cache in memory, by its name."""
    cache: Any = caches[ALIAS]
    names = [name.split(":", 2)[2] for name in cache._cache]
    return {name: cache.get(name) for name in names}


class Memory:
    """A cache in memory, for histories."""

    def is_well(self) -> bool:
        return Chaos.trouble is Trouble.NONE

    def disturb(self, chance: random.Random) -> None:
        Chaos.trouble = chance.choice([Trouble.AWAY, Trouble.FULL, Trouble.DEAF])

    def recover(self) -> None:
        Chaos.trouble = Trouble.NONE

    def flush(self) -> None:
        caches[ALIAS].clear()

    def names(self) -> list[str]:
        return [*entries()]


class Server:
    """A Redis, for histories. Stopped, it loses everything."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.trouble = Trouble.NONE

    def is_well(self) -> bool:
        return self.trouble is Trouble.NONE

    def disturb(self, chance: random.Random) -> None:
        self.recover()
        self.trouble = chance.choice([Trouble.AWAY, Trouble.FULL])
        if self.trouble is Trouble.AWAY:
            self.redis.stop()
        else:
            self.redis.fill_up()

    def recover(self) -> None:
        if self.trouble is Trouble.AWAY:
            self.redis.start()
        elif self.trouble is Trouble.FULL:
            self.redis.command("CONFIG", "SET", "maxmemory", "0")
        self.trouble = Trouble.NONE

    def flush(self) -> None:
        if self.trouble is not Trouble.AWAY:
            self.redis.command("FLUSHALL")

    def names(self) -> list[str]:
        return sorted(name.decode().split(":", 2)[2] for name in self.redis.command("KEYS", "*"))


def poison(names: list[str], chance: random.Random) -> None:
    """Whatever the cache holds stands under the name of something else, is cut off, or is something else."""
    values = [caches[ALIAS].get(name) for name in names]
    for name in names:
        value = chance.choice(values)
        if isinstance(value, bytes) and chance.random() < 0.5:
            at = chance.randrange(len(value) + 1)
            changed = value[:at] + b"x" + value[at + 1 :]
            value = chance.choice([value[:at], changed, value.decode("latin-1"), 7, [value]])
        caches[ALIAS].set(name, value, None)
