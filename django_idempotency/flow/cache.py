"""The replay cache: a Django cache in front of completed records. It replays, and decides nothing else.

The table has the last word. An entry is added after a replay was read from there, and lives for five minutes at most.
Every failure of the cache is a miss.
"""

from time import time
from typing import Any, Final

from django.core.cache import caches
from django.db import connections

from django_idempotency import signals
from django_idempotency.conf import cache_secret, conf
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Record, Replay, decide
from django_idempotency.core.entries import LONGEST_LIFE, CachedRecord, make_name, open_entry, seal_entry
from django_idempotency.core.refs import Ref
from django_idempotency.core.states import Status
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.schemas import current_schema
from django_idempotency.signals import announce, logger, security
from django_idempotency.store.installation import read_installation

FORGOTTEN: Final = b""  # stands in the place of an entry that an operator's change made wrong


class CachedReplay:
    """The place in the cache of the record of one call."""

    def __init__(self, call: Call, using: str) -> None:
        self.call = call
        self.using = using
        self.name = ""
        self.missed_at: float | None = None  # when the cache was asked, if it holds nothing under this name

    def read(self) -> Replay | None:
        """Return the replay that the cache holds for this call; None if the table has to be asked."""
        asked = time()
        try:
            self.name = _name(self.call.ref(self.using))
            found = _cache().get(self.name)
        except StoreUnavailable:
            return None  # the table, which is asked next, tells the client
        except Exception as error:  # noqa: BLE001 - backends raise all kinds of errors
            _report_failure(error, self.using)
            return None
        if found is None:
            self.missed_at = asked
        elif found != FORGOTTEN:
            entry = open_entry(found, self.name, cache_secret(), self.call)
            if entry is None:
                self._report_foreign()
                return None
            record = entry.record_at(asked)
            decision = None if record is None else decide(record, self.call)
            if isinstance(decision, Replay):
                announce(signals.cache_hit, call=self.call, using=self.using)
                return decision
        announce(signals.cache_missed, call=self.call, using=self.using)
        return None

    def fill(self, record: Record) -> None:
        """Add what the table held when the cache had missed. Nothing that stands there is replaced."""
        if self.missed_at is None or record.status is not Status.COMPLETED or record.id != self.call.id:
            return
        entry = CachedRecord.of(record, self.missed_at)
        timeout = int(entry.until - time())
        if timeout < 1:
            return
        try:
            _cache().add(self.name, seal_entry(entry, self.name, cache_secret()), timeout)
        except Exception as error:  # noqa: BLE001 - backends raise all kinds of errors
            _report_failure(error, self.using)

    def _report_foreign(self) -> None:
        security.warning(
            "The cache holds an entry for idempotency record %s that was not written with this installation's secret. "
            "It was ignored.",
            self.call.id,
        )
        announce(signals.cache_rejected, call=self.call, using=self.using)


def forget(ref: Ref) -> None:
    """Keep the cache from replaying a record. Call this before the change commits.

    A request that has read the record already cannot add it again: its entry would end before the mark does.
    """
    if conf.CACHE_ALIAS is None:
        return
    name = _name(ref)
    try:
        _cache().set(name, FORGOTTEN, int(2 * LONGEST_LIFE))
    except Exception as error:  # noqa: BLE001 - backends raise all kinds of errors
        _report_failure(error, ref.using)
        logger.warning("The cache may replay idempotency record %s for another %d seconds.", ref.id, LONGEST_LIFE)


def _cache() -> Any:
    return caches[conf.CACHE_ALIAS or ""]


def _name(ref: Ref) -> str:
    """Name the entry of a record. Installations, databases and tenants that share a cache have names of their own."""
    namespace, schema = conf.NAMESPACE, current_schema(ref.using)
    database = str(connections[ref.using].settings_dict["NAME"])
    installation = read_installation(ref.using, schema)
    environment = [installation, namespace if isinstance(namespace, str) else "", ref.using, database, schema]
    return "idempotency." + make_name(environment, ref.id, cache_secret())


def _report_failure(error: Exception, using: str) -> None:
    logger.warning("The cache %r failed: %s. The table was asked instead.", conf.CACHE_ALIAS, type(error).__name__)
    announce(signals.cache_failed, using=using, error=error)
