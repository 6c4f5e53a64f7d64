"""What tests with real processes share: clients, servers, their workers, and a database of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

from django.db import connections
from django.db.utils import ConnectionHandler

from testproject.databases import from_url
from testproject.http import Answer, exchange, exchange_json
from testproject.servers import ROOT, Kind, Server, prepare_database, start_gateway, start_service

T = TypeVar("T")


def key_or_new(key: str | None) -> str | None:
    return key if key != "" else f'"{uuid4()}"'


@dataclass(frozen=True)
class Client:
    """Speaks to one server as one person; each write has a key of its own unless one is given, or None."""

    url: str
    authorization: str = ""
    timeout: float = 60

    def get(self, path: str, **headers: str) -> Answer:
        return exchange("GET", self.url + path, headers=self._headers(headers), timeout=self.timeout)

    def post(
        self, path: str, data: Any = None, *, key: str | None = "", headers: Mapping[str, str] | None = None
    ) -> Answer:
        given = self._headers(headers, key_or_new(key))
        return exchange_json("POST", self.url + path, data, headers=given, timeout=self.timeout)

    def post_bytes(self, path: str, body: bytes = b"", *, key: str | None = "", **headers: str) -> Answer:
        """Keyword arguments become headers: content_type is Content-Type."""
        return exchange(
            "POST", self.url + path, body=body, headers=self._headers(headers, key_or_new(key)), timeout=self.timeout
        )

    def _headers(self, headers: Mapping[str, str] | None, key: str | None = None) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        authorization = {"Authorization": self.authorization} if self.authorization else {}
        return {**authorization, **({"Idempotency-Key": key} if key else {}), **named}


@dataclass(frozen=True)
class Site:
    """A service and its gateway, running."""

    service: Server
    gateway: Server
    database_url: str

    @property
    def anyone(self) -> Client:
        return Client(self.service.url)

    @property
    def alice(self) -> Client:
        return replace(self.anyone, authorization="Token alice-token")

    @property
    def bob(self) -> Client:
        return replace(self.anyone, authorization="Token bob-token")

    def switch(self, **switches: Any) -> None:
        answer = Client(self.gateway.url).post("/switches", switches)
        assert answer.status == 200, answer.body

    def orders(self) -> list[dict[str, Any]]:
        """What reached the gateway, charged or not; never waits for the ledger."""
        found: list[dict[str, Any]] = Client(self.gateway.url).get("/orders").json()["orders"]
        return found

    def charges(self) -> list[dict[str, Any]]:
        """What the only witness saw."""
        found: list[dict[str, Any]] = Client(self.gateway.url).get("/ledger").json()["charges"]
        return found

    def executions(self) -> int:
        """How often a view of /conformance/ ran."""
        return int(self.anyone.get("/conformance/counter").json()["count"])

    def reset(self) -> None:
        assert Client(self.gateway.url).post("/reset").status == 200
        assert self.anyone.post("/conformance/reset").status == 204

    def record_of_payment(self, charge: str) -> UUID | None:
        """The record that the payment of this charge points at."""
        ((record,),) = self.rows("SELECT idempotency_key_id FROM payments_payment WHERE charge = %s", charge)
        return None if record is None else UUID(str(record))

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return query(self.database_url, sql, *parameters)


@contextmanager
def running_site(
    folder: Path,
    database_url: str,
    *,
    kind: Kind = "gunicorn",
    workers: int = 4,
    threads: int = 16,
    environment: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Iterator[Site]:
    with ExitStack() as stack:
        gateway = start_gateway(folder)
        stack.callback(gateway.stop)
        service = start_service(
            folder,
            database_url=database_url,
            gateway_url=gateway.url,
            kind=kind,
            workers=workers,
            threads=threads,
            environment=environment,
            options=options,
        )
        stack.callback(service.stop)
        yield Site(service, gateway, database_url)


@contextmanager
def database_beside(url: str, name: str, folder: Path) -> Iterator[str]:
    """A migrated and seeded database for server processes, on the same server as `url`, dropped afterwards."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        prepared, path = folder.parent / "prepared.sqlite3", folder / f"{name}.sqlite3"
        if not prepared.exists():  # the first of this run; the others are copies of it
            prepare_database(f"sqlite:///{prepared}")
        shutil.copyfile(prepared, path)
        yield f"sqlite:///{path}"
        return
    own = urlunsplit(parts._replace(path=f"{parts.path}_{name}"))
    drop(own)
    administer(f"CREATE DATABASE {quoted_name(own)}")
    try:
        prepare_database(own)
        yield own
    finally:
        drop(own)


def drop(url: str) -> None:
    force = " WITH (FORCE)" if connections["default"].vendor == "postgresql" else ""
    administer(f"DROP DATABASE IF EXISTS {quoted_name(url)}{force}")


def administer(statement: str) -> None:
    with connections["default"]._nodb_cursor() as cursor:
        cursor.execute(statement)


def quoted_name(url: str) -> str:
    return connections["default"].ops.quote_name(urlsplit(url).path[1:])


def query(database_url: str, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """Look into a database that belongs to server processes."""
    handler = ConnectionHandler({"default": from_url(database_url, base=ROOT)})
    try:
        with handler["default"].cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall()) if cursor.description else []
    finally:
        handler.close_all()
