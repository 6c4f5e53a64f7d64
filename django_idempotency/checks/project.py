"""System checks of the settings, the database and foreign keys. Each message has a number and says what to do."""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, Final

from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections, models, router
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist

from django_idempotency.conf import conf, entries, names, policy
from django_idempotency.core.links import docs_url
from django_idempotency.core.validation import suggest
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.findings import describe_plainly
from django_idempotency.monitoring.rules import find_small_packet
from django_idempotency.store.deletion import pointers
from django_idempotency.store.dialects import DIALECTS
from django_idempotency.store.records import alias
from django_idempotency.store.server import read_settings

# DB_CASCADE came with Django 6.1.
_DELETES_POINTERS: Final = (models.CASCADE, getattr(models, "DB_CASCADE", models.CASCADE))
_FORBIDS: Final = (models.PROTECT, models.RESTRICT, models.DO_NOTHING)
_POOL_TIMEOUT: Final = 30.0  # psycopg's own
_LEAST_CONNECT_TIMEOUT: Final = 2  # for each host; psycopg raises a shorter one
_SQLITE_HINT: Final = 'Add "transaction_mode": "IMMEDIATE" to the OPTIONS of this database.'


def check_settings(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E001-E004: the IDEMPOTENCY dictionary."""
    given = entries()
    if not isinstance(given, Mapping):
        hint = f"Write IDEMPOTENCY = {{...}} with entries such as {names()[0]!r}, or leave it out."
        return [Error("IDEMPOTENCY must be a dictionary.", hint=hint, id="django_idempotency.E001")]
    found = [*_unknown_entries(given), *_wrong_values(given)]
    return found or _impossible_policy()


def _unknown_entries(given: Mapping[str, Any]) -> Iterator[CheckMessage]:
    for name in given:
        if name not in names():
            known = suggest(name, names())
            hint = f"{known[0].upper()}{known[1:]}"
            yield Error(f"IDEMPOTENCY has no entry {name!r}.", hint=hint, id="django_idempotency.E002")


def _wrong_values(given: Mapping[str, Any]) -> Iterator[CheckMessage]:
    for name in given:
        if name in names():
            try:
                getattr(conf, name)
            except ValueError as error:
                yield Error(
                    str(error),
                    hint=f"Its values: {docs_url('reference/settings', name.lower().replace('_', '-'))}",
                    id="django_idempotency.E003",
                )


def _impossible_policy() -> list[CheckMessage]:
    try:
        policy()
    except ValueError as error:
        return [
            Error(
                f"IDEMPOTENCY: {error}",
                hint="Entries are policy arguments in capitals. Change one of those that the message names.",
                id="django_idempotency.E004",
            )
        ]
    return []


def check_database(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E010, W011-W013, E024, E035: the database of the records. No connection is opened, so `check` can run it."""
    alias = router.db_for_write(IdempotencyKey)
    try:
        return list(_database(alias))
    except ConnectionDoesNotExist:
        message = f"The router sends idempotency records to {alias!r}, which is not an alias in DATABASES."
        hint = f"Make db_for_write() return one of: {', '.join(connections)}."
        return [Error(message, hint=hint, id="django_idempotency.E024")]


def _database(alias: str) -> Iterator[CheckMessage]:
    connection = connections[alias]
    if connection.vendor not in DIALECTS:
        yield Error(
            f"The database {alias!r} ({connection.vendor}) cannot hold idempotency records.",
            hint=f"Route django_idempotency to one of: {', '.join(DIALECTS)}.",
            id="django_idempotency.E010",
        )
    if not connection.settings_dict["AUTOCOMMIT"]:
        yield Error(
            f"The database {alias!r} has AUTOCOMMIT: False: no claim would be committed before the work it protects.",
            hint="Leave AUTOCOMMIT out: Django's atomic() opens the transactions.",
            id="django_idempotency.E035",
        )
    transaction_mode = connection.settings_dict.get("OPTIONS", {}).get("transaction_mode") or "DEFERRED"
    if connection.vendor == "sqlite" and transaction_mode.upper() == "DEFERRED":
        yield Warning(
            f"The SQLite database {alias!r} uses deferred transactions: concurrent requests that read and then write "
            "fail with 'database is locked'.",
            hint=_SQLITE_HINT,
            id="django_idempotency.W011",
        )
    yield from _pool(connection)
    yield from _hosts(connection)


def _pool(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    pool = connection.settings_dict.get("OPTIONS", {}).get("pool")
    if not pool:
        return
    given = pool if isinstance(pool, Mapping) else {}
    timeout, limit = float(given.get("timeout", _POOL_TIMEOUT)), conf.CLAIM_LIMIT.total_seconds()
    if timeout > limit:
        yield Warning(
            f"The pool of the database {connection.alias!r} may let a request wait {timeout:g} s for a connection, and "
            f"a claim waits {limit:g} s at most: whatever asks first, such as authentication, holds the client up.",
            hint=f'Set "timeout" in OPTIONS["pool"] to {limit:g} or less, or raise IDEMPOTENCY["CLAIM_LIMIT"].',
            id="django_idempotency.W012",
        )


def _hosts(connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    before_last = str(connection.settings_dict["HOST"]).count(",")
    if not before_last:
        return
    given, limit = connection.settings_dict["OPTIONS"].get("connect_timeout"), conf.CLAIM_LIMIT.total_seconds()
    if max(float(given or inf), _LEAST_CONNECT_TIMEOUT) * before_last >= limit:
        yield Warning(
            f"The database {connection.alias!r} has {before_last + 1} hosts. If one of them is switched off, a claim "
            f"may spend its {limit:g} s on it and never try the last one.",
            hint='Set "connect_timeout" in OPTIONS to 2 seconds, and IDEMPOTENCY["CLAIM_LIMIT"] to more than that for '
            "each host but the last.",
            id="django_idempotency.W013",
        )


def check_pointers(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E028: foreign keys to records, which are deleted when their retention ends."""
    return [
        Error(
            f"{each.field}: the reaper would {'fail on' if each.on_delete in _FORBIDS else 'delete'} the rows that "
            "point at a record whose retention has ended.",
            hint="Use on_delete=models.SET_NULL, null=True.",
            obj=each.related_model,
            id="django_idempotency.E028",
        )
        for each in pointers()
        if _harms(each) and not each.related_model._meta.auto_created
    ]


def _harms(pointer: Any) -> bool:
    """True if the reaper could not delete a record that a row points at, or would delete the row too.

    DO_NOTHING leaves the check to the database, which does none without a constraint: for a database view, say.
    """
    constrained = pointer.related_model._meta.managed and getattr(pointer.field, "db_constraint", False)
    if pointer.on_delete is models.DO_NOTHING and not constrained:
        return False
    return pointer.on_delete in _DELETES_POINTERS + _FORBIDS


def check_packet(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """W062: MariaDB or MySQL would refuse to store the largest response."""
    using = alias()
    if using not in (databases or ()):
        return []
    return [
        Warning(
            describe_plainly(finding),
            hint="SET GLOBAL max_allowed_packet, and write it into the server's configuration.",
            id="django_idempotency.W062",
        )
        for finding in find_small_packet(read_settings(using))
    ]
