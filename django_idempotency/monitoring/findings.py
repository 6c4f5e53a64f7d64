"""What is wrong with a live system, as data. The health view, the doctor and the dashboard show the same findings.

`rules` finds them; `describe` says a finding in one sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy, override

from django_idempotency.core.links import docs_url
from django_idempotency.monitoring.units import format_duration, format_interval, format_number


class Code(StrEnum):
    """A kind of problem. Scripts compare these codes: they do not change."""

    STORE_UNAVAILABLE = "store-unavailable"
    LEASE_OVERDUE = "lease-overdue"
    WORK_WAITING = "work-waiting"
    DEAD_LETTERS = "dead-letters"
    UNATTENDED = "unknown-unattended"
    JOB_FAILED = "job-failed"
    JOB_NEVER_RAN = "job-never-ran"
    JOB_LATE = "job-late"
    UNKNOWN_OLD = "unknown-old"
    UNKNOWN_MANY = "unknown-many"
    FINGERPRINT_UNREADABLE = "fingerprint-unreadable"
    RETENTION_SHORT = "retention-short"
    OPERATION_RETENTION_SHORT = "operation-retention-short"
    LEASE_SHORT = "lease-short"
    HEARTBEAT_FAILED = "heartbeat-failed"
    POOLER = "pooler-unsafe"
    CLOCKS_APART = "clocks-apart"
    READ_ONLY = "read-only"
    UNIQUE_MISSING = "unique-missing"
    FOREIGN_KEY = "foreign-key-constraint"
    COMMITS_LOST = "commits-not-durable"
    STANDBYS_LATE = "standbys-asynchronous"
    READS_STALE = "reads-stale"
    NODE_NOT_SYNCED = "node-not-synced"
    PACKET_SMALL = "packet-too-small"
    CLIENTS_UNNOTICED = "lost-clients-unnoticed"
    LOOK_ALIKE = "engine-untested"
    PROMISE = "promise-broken"


# The health view returns 503 for these. The others can wait until morning.
URGENT: Final = frozenset({Code.LEASE_OVERDUE, Code.WORK_WAITING, Code.DEAD_LETTERS, Code.UNATTENDED, Code.JOB_FAILED})


# The section of the runbooks for the alert that has the same cause.
RUNBOOKS: Final = {
    Code.DEAD_LETTERS: "idempotencydeadletters",
    Code.UNATTENDED: "idempotencyunattended",
    Code.UNKNOWN_OLD: "idempotencyunknownold",
    Code.UNKNOWN_MANY: "idempotencyunknownmany",
    Code.LEASE_OVERDUE: "idempotencyleasesoverdue",
    Code.WORK_WAITING: "idempotencyworkwaiting",
    **dict.fromkeys((Code.JOB_FAILED, Code.JOB_NEVER_RAN, Code.JOB_LATE), "idempotencyjoblate"),
}

# A recommendation: nothing is wrong, and the doctor does not fail.
ADVICE: Final = frozenset({Code.CLIENTS_UNNOTICED, Code.LOOK_ALIKE})


class Severity(StrEnum):
    """How soon an operator has to act, the most serious first."""

    CRITICAL = "critical"  # now
    WARNING = "warning"  # in the morning
    ADVICE = "advice"  # nothing is wrong

    def is_from(self, threshold: str) -> bool:
        """True if this is as serious as the threshold; any text that is no severity is above all of them."""
        order = list(Severity)
        return threshold in order and order.index(self) <= order.index(Severity(threshold))


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem. Times are in seconds."""

    code: Code
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_urgent(self) -> bool:
        return self.code in URGENT

    @property
    def is_advice(self) -> bool:
        return self.code in ADVICE

    @property
    def severity(self) -> Severity:
        if self.is_urgent:
            return Severity.CRITICAL
        return Severity.ADVICE if self.is_advice else Severity.WARNING

    @property
    def url(self) -> str:
        """The section of the documentation that says what to do."""
        return docs_url("reference/findings", self.code.value)

    @property
    def runbook(self) -> str:
        """The runbook of the alert with the same cause; empty if there is none."""
        return docs_url("how-to/runbooks", RUNBOOKS[self.code]) if self.code in RUNBOOKS else ""


SENTENCES: Final[Mapping[Code, str | Promise]] = {
    Code.STORE_UNAVAILABLE: _("%(error)s"),
    Code.DEAD_LETTERS: ngettext_lazy(
        "%(number)s outcome needs a person, because reconciliation gave up on it; it is %(age)s old.",
        "%(number)s outcomes need a person, because reconciliation gave up on them; the oldest is %(age)s old.",
        "count",
    ),
    Code.UNATTENDED: ngettext_lazy(
        "%(number)s unknown outcome needs a person, because its operation has no reconciler; it is %(age)s old.",
        "%(number)s unknown outcomes need a person, because their operations have no reconciler; "
        "the oldest is %(age)s old.",
        "count",
    ),
    Code.LEASE_OVERDUE: _(
        "A lease expired, or deferred work was due, %(age)s ago and was not handled: check that the sweeper and a "
        "worker are running."
    ),
    Code.WORK_WAITING: _(
        "Accepted work has waited for %(age)s and no worker has begun it: check that a worker is running and reads "
        "this queue."
    ),
    Code.JOB_FAILED: _("The last run of %(job)s failed: %(error)s"),
    Code.JOB_NEVER_RAN: _(
        "The maintenance job %(job)s has never run to its end: schedule it with Celery beat or cron."
    ),
    Code.JOB_LATE: _("The last run of %(job)s ended %(age)s ago: check that its schedule is still active."),
    Code.UNKNOWN_OLD: ngettext_lazy(
        "%(number)s outcome is unknown and %(age)s old: check that its operation has a reconciler and that the "
        "provider answers. An operation that waits to be resumed needs a worker with its code.",
        "The oldest of %(number)s unknown outcomes is %(age)s old: check that its operation has a reconciler and that "
        "the provider answers. An operation that waits to be resumed needs a worker with its code.",
        "count",
    ),
    Code.UNKNOWN_MANY: _(
        "%(number)s outcomes are unknown at the same time: check that the provider answers, that the reconciler runs, "
        "and that no deployment kills handlers."
    ),
    Code.FINGERPRINT_UNREADABLE: _(
        "Records have fingerprints that were made with the secret %(secret)s, which this process lacks: it answers "
        "their retries with 409, because it cannot tell them from other requests. Add the old secret to "
        "IDEMPOTENCY['SECRETS'] until these records have expired."
    ),
    Code.RETENTION_SHORT: _(
        "IDEMPOTENCY['RETENTION'] is %(retention)s: a client that retries later runs the request again, or is "
        "rejected. Clients expect at least 24 hours."
    ),
    Code.OPERATION_RETENTION_SHORT: _(
        "Operation %(operation)s keeps its responses for %(retention)s: a client that retries later runs the request "
        "again, or is rejected. Clients expect at least 24 hours."
    ),
    Code.LEASE_SHORT: _(
        "Operation %(operation)s has a lease of %(lease)s, but its p99 is %(p99)s: make the lease at least %(needed)s."
    ),
    Code.HEARTBEAT_FAILED: ngettext_lazy(
        "The heartbeat of %(number)s attempt failed twice in a row in the last 24 hours: its lease may expire while it "
        "runs. Look for the error in the log, and for what locks the table.",
        "The heartbeats of %(number)s attempts failed twice in a row in the last 24 hours: their leases may expire "
        "while they run. Look for the errors in the log, and for what locks the table.",
        "count",
    ),
    Code.POOLER: _(
        "A connection pooler stands before PostgreSQL, and this process uses %(options)s: in transaction mode another "
        "client's statement can run instead of yours. Switch these off, or let the pooler keep whole sessions."
    ),
    Code.CLOCKS_APART: _(
        "The clocks of this machine and of the database differ by %(difference)s. Leases do not depend on it; "
        "message expiry, signatures and logs do: synchronize the clocks."
    ),
    Code.READ_ONLY: _("The database takes no writes (%(setting)s): no key can be claimed. Connect to the primary."),
    Code.UNIQUE_MISSING: _(
        "No unique constraint of idempotency_key is on id, or on key and scope, alone: a key can be won twice. A "
        "partitioned table has to be partitioned by scope."
    ),
    Code.FOREIGN_KEY: _(
        "%(field)s has a foreign key constraint, and id alone is not unique in this layout of idempotency_key: a "
        "migration that makes the constraint fails. Set db_constraint=False on the field."
    ),
    Code.COMMITS_LOST: _(
        "%(setting)s is %(value)s: after a crash of the server, keys that were claimed or completed are forgotten, and "
        "a retry runs again."
    ),
    Code.STANDBYS_LATE: ngettext_lazy(
        "%(number)s standby follows and no commit waits for it: if it is promoted, the last keys are forgotten, and a "
        "retry runs again. Name it in synchronous_standby_names, or never promote it.",
        "%(number)s standbys follow and no commit waits for any: if one is promoted, the last keys are forgotten, and "
        "a retry runs again. Name one in synchronous_standby_names, or never promote them.",
        "count",
    ),
    Code.READS_STALE: _(
        "wsrep_sync_wait is %(value)s: a node can read an older state than another one has committed. Set it to 1."
    ),
    Code.NODE_NOT_SYNCED: _("This node of the cluster is %(state)s, not synced."),
    Code.PACKET_SMALL: _(
        "max_allowed_packet is %(value)s bytes: the body of a response may not be stored, although IDEMPOTENCY"
        "['MAX_BODY'] allows %(body)s bytes. Its retries get a 409, and an operation with such a result stays "
        "unknown. Set max_allowed_packet to at least %(least)s, or MAX_BODY to less."
    ),
    Code.CLIENTS_UNNOTICED: _(
        "client_connection_check_interval is 0: a claim whose client was cut off while it waits for a lock stays until "
        "it gets the lock. Set it to a few seconds."
    ),
    Code.LOOK_ALIKE: _("This is %(engine)s, on which nothing was tested: run idempotency_doctor --prove."),
    Code.PROMISE: _("%(promise)s does not hold: %(reason)s"),
}
_FORMATS: Final = {
    "age": format_interval,
    **dict.fromkeys(("retention", "lease", "p99", "needed", "difference"), format_duration),
}


def describe(finding: Finding) -> str:
    """Return one sentence that says what is wrong and what to do, in the active language."""
    values = {**finding.values, "number": format_number(finding.values.get("count", 0))}
    values |= {name: write(values[name]) for name, write in _FORMATS.items() if name in values}
    if "operation" in values:
        values["operation"] = values["operation"] or "-"
    return str(SENTENCES[finding.code] % values)


def describe_plainly(finding: Finding) -> str:
    """Return the sentence in English, as monitors and scripts read it."""
    with override("en"):
        return describe(finding)
