"""The tables: records, their audit trail, runs of the maintenance jobs, counts. Only the store writes to them."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import DEFAULT_DB_ALIAS, models
from django.db.models import Q, Value
from django.utils.translation import gettext_lazy as _

from django_idempotency.core.audit import Kind
from django_idempotency.core.refs import Ref, derive_key
from django_idempotency.core.states import LostLease, Status
from django_idempotency.fields import ExactCharField, PresentIndex, StatementNow

__all__ = ["IdempotencyCount", "IdempotencyEvent", "IdempotencyKey", "MaintenanceRun"]

STATUSES = [(status.value, status.value.replace("_", " ")) for status in Status]
INSTALLATION = "installation"  # a row beside those of the maintenance jobs: it has an id in the place of counts
LOST_LEASE = [(each.value, each.value) for each in LostLease]


def _among(statuses: Iterable[Status]) -> Q:
    """Match the records in one of these states. Sorted, so that the migration stays the same."""
    return Q(status__in=sorted(status.value for status in statuses))


def _both_or_neither(one: Q, other: Q) -> Q:
    return (one & other) | (~one & ~other)


def _check(name: str, condition: Q) -> models.CheckConstraint:
    return models.CheckConstraint(name=f"idempotency_key_{name}", condition=condition)


class IdempotencyKeyQuerySet(models.QuerySet["IdempotencyKey"]):
    """Queries for monitoring. Never use its methods to change a record."""

    def with_time(self) -> "IdempotencyKeyQuerySet":
        """Read the database's time with each record, as `read_at`."""
        return self.annotate(read_at=StatementNow())  # type: ignore[no-redef] # declared on the model, set here

    def overdue(self) -> "IdempotencyKeyQuerySet":
        """Return records whose lease expired and that the sweeper has not handled yet."""
        return self.filter(locked_until__lte=StatementNow())

    def waiting(self, silent: timedelta) -> "IdempotencyKeyQuerySet":
        """Return work that no worker has begun; requeued work counts once it has waited for `silent`."""
        forgotten = Q(last_error_code="") | Q(last_run_at__lte=StatementNow() - Value(silent))
        return self.filter(forgotten, locked_until__isnull=False, status=Status.PENDING)

    def dead_letters(self) -> "IdempotencyKeyQuerySet":
        """Return records that the reconciler gave up on. They have no index, so they are found by their few events."""
        noted = IdempotencyEvent.objects.using(self.db).filter(kind=Kind.DEAD_LETTER).values("record_id")
        return self.filter(id__in=noted, status=Status.DEAD_LETTER)


class IdempotencyKey(models.Model):
    """The record of one key in one scope: who claimed it, for which request, and how it ended."""

    # The columns of the table have this order. Of an update PostgreSQL logs what lies between the first and the last
    # byte that differ, so the columns that the end of an attempt changes stand together. Wide columns come before
    # narrow ones and fixed ones before text, so that nothing is lost to alignment. What is narrow and seldom changes
    # stands behind the body.
    id = models.UUIDField(primary_key=True, editable=False)
    attempt_token = models.UUIDField(_("attempt token"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"))
    last_run_at = models.DateTimeField(_("last run at"), null=True, blank=True)
    grace_until = models.DateTimeField(_("grace until"), null=True, blank=True)
    lease_seconds = models.PositiveIntegerField(_("lease"))
    grace_seconds = models.PositiveIntegerField(_("grace"))
    retention_seconds = models.PositiveIntegerField(_("retention"), null=True, blank=True)
    steps_done = models.PositiveIntegerField(_("steps done"), db_default=0)

    locked_until = models.DateTimeField(_("locked until"), null=True, blank=True)
    reconcile_after = models.DateTimeField(_("reconcile after"), null=True, blank=True)
    completed_at = models.DateTimeField(_("completed at"), null=True, blank=True)
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    response_schema_version = models.PositiveIntegerField(_("response schema version"), null=True, blank=True)
    audit_seconds = models.PositiveIntegerField(_("audit time"), null=True, blank=True)
    response_status = models.PositiveSmallIntegerField(_("response status"), null=True, blank=True)
    tainted = models.BooleanField(_("an earlier attempt is in doubt"), db_default=False)
    derived = models.BooleanField(_("a downstream key was derived"), db_default=False)
    deferred = models.BooleanField(_("a worker does the work"), db_default=False)
    status = models.CharField(_("status"), max_length=16, choices=STATUSES)
    response_headers = models.TextField(_("response headers"), blank=True, db_default="")
    response_body = models.BinaryField(_("response body"), null=True, blank=True)

    attempts = models.PositiveSmallIntegerField(_("attempts"), db_default=1)
    reconcile_attempts = models.PositiveSmallIntegerField(_("reconcile attempts"), db_default=0)
    wrote = models.BooleanField(_("the acceptance committed writes"), db_default=False)
    arguments = models.TextField(_("arguments"), blank=True, db_default="")
    progress = models.TextField(_("progress"), blank=True, db_default="")
    run_name = models.CharField(_("registered operation"), max_length=255, blank=True, db_default="")
    recovery_point = models.CharField(_("recovery point"), max_length=255, blank=True, db_default="")
    last_error_code = models.CharField(_("last error"), max_length=64, blank=True, db_default="")
    request_path = models.CharField(_("path"), max_length=255, blank=True, db_default="")
    request_method = models.CharField(_("method"), max_length=16, blank=True, db_default="")
    operation = ExactCharField(_("operation"), max_length=255, blank=True, db_default="")
    principal = ExactCharField(_("principal"), max_length=255, blank=True, db_default="")
    tenant = ExactCharField(_("tenant"), max_length=255, blank=True, db_default="")
    on_lost_lease = models.CharField(_("on lost lease"), max_length=16, choices=LOST_LEASE, db_default="unknown")
    namespace = models.CharField(_("namespace"), max_length=12, blank=True, db_default="")
    fingerprint = models.CharField(_("fingerprint"), max_length=160)
    scope = ExactCharField(_("scope"), max_length=255)
    key = ExactCharField(_("key"), max_length=255)

    objects = IdempotencyKeyQuerySet.as_manager()

    read_at: datetime  # the database's time, on what `with_time` read
    key_is_cut = False  # True where `key` is only its beginning, for a person who may not see the whole

    class Meta:
        db_table = "idempotency_key"
        verbose_name = _("idempotency key")
        verbose_name_plural = _("idempotency keys")
        # No person adds, changes or deletes a record: these are what an operator can be allowed to do.
        default_permissions = ("view",)
        permissions = [
            ("view_content", _("Can view stored bodies, arguments and results")),
            ("ask_reconciler", _("Can ask the reconciler at once")),
            ("resolve_landed", _("Can mark a record as succeeded and store its response")),
            ("resolve_not_executed", _("Can mark a record as not executed")),
            ("try_again", _("Can reset a dead letter and retry reconciliation")),
            ("enqueue", _("Can re-queue deferred work")),
            ("expire_now", _("Can expire a stored response now")),
        ]
        constraints = [
            # Key first: a person who has nothing but a key from a log finds its records.
            models.UniqueConstraint(fields=["key", "scope"], name="idempotency_key_scope_key"),
            _check("status", _among(Status)),
            # A lease exists exactly while work is owed: by an attempt, or by the message that asks for one.
            _check("lease", _both_or_neither(_among(Status.LEASED), Q(locked_until__isnull=False))),
            # Only deferred work waits for a worker.
            _check("pending", ~Q(status=Status.PENDING.value) | Q(deferred=True)),
            # The attempt that runs, or whose outcome is unknown, can be told from every other attempt.
            _check("token", ~_among(Status.OWNED) | Q(attempt_token__isnull=False)),
            # An unknown outcome always has a time for its next check, so it cannot be forgotten; nothing else has one.
            _check("doubt_due", _both_or_neither(_among({Status.UNKNOWN}), Q(reconcile_after__isnull=False))),
            # A response exists exactly when the record has ended.
            _check(
                "answer",
                (
                    (_among(Status.TERMINAL) & Q(response_status__isnull=False, completed_at__isnull=False))
                    | Q(status=Status.EXPIRED.value)
                    | (~_among(Status.ENDED) & Q(response_status__isnull=True))
                ),
            ),
            # Open records do not expire, so the reaper cannot even see them. Waiting work does: it can be abandoned.
            _check("expiry", ~_among(Status.OPEN - {Status.PENDING}) | Q(expires_at__isnull=True)),
        ]
        indexes = [
            PresentIndex(fields=["locked_until"], name="idempotency_key_overdue"),
            PresentIndex(fields=["reconcile_after"], name="idempotency_key_due"),
            PresentIndex(fields=["expires_at"], name="idempotency_key_expired"),
            models.Index(fields=["created_at"], name="idempotency_key_created"),
        ]

    def __str__(self) -> str:
        return f"{self.operation or self.scope}: {self.status}"

    def derive(self, step: str) -> str:
        """Return the key of a downstream call, as the view derived it."""
        return derive_key(self.id, self.namespace, step)

    @property
    def ref(self) -> Ref:
        return Ref(self.scope, self.id, self._state.db or DEFAULT_DB_ALIAS)

    @property
    def grace_left(self) -> float:
        """Seconds until a late effect of the last attempt can no longer arrive; 0 if there was none."""
        return 0.0 if self.grace_until is None else (self.grace_until - self.read_at).total_seconds()

    @property
    def traced(self) -> bool:
        """True if an earlier attempt, a step, a downstream key or an acceptance may have left a part of the effect."""
        return self.tainted or self.derived or self.wrote or self.steps_done > 0

    @property
    def age(self) -> float:
        """Seconds since the key was claimed."""
        return (self.read_at - self.created_at).total_seconds()

    @property
    def lease_over(self) -> bool:
        """True if an attempt had a lease and it has expired."""
        return self.locked_until is not None and self.locked_until <= self.read_at

    @property
    def retention_over(self) -> bool:
        """True if the retention of the response has ended."""
        past = self.expires_at is not None and self.expires_at <= self.read_at
        expires = self.status in Status.TERMINAL or self.status == Status.FAILED_RETRYABLE
        return self.status == Status.EXPIRED or (past and expires)

    @property
    def is_resumable(self) -> bool:
        """True if another attempt may restart the work or continue it."""
        return self.on_lost_lease != LostLease.UNKNOWN


class Dashboard(IdempotencyKey):
    """The entry in the admin's index that leads to the dashboard. It has no table and no permissions of its own."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("dashboard")
        verbose_name_plural = _("dashboard")


class IdempotencyEvent(models.Model):
    """One event of the audit trail. Rows are only added, and none for a request without problems."""

    record_id = models.UUIDField(_("record"), db_index=True)
    at = models.DateTimeField(_("at"), db_default=StatementNow(), db_index=True)
    kind = models.CharField(_("kind"), max_length=32)
    transition = models.CharField(_("transition"), max_length=8, blank=True, db_default="")
    actor = models.CharField(_("actor"), max_length=255, blank=True, db_default="")
    reason = models.TextField(_("reason"), blank=True, db_default="")
    details = models.TextField(_("details"), blank=True, db_default="")  # JSON, for people

    class Meta:
        db_table = "idempotency_event"
        verbose_name = _("idempotency event")
        verbose_name_plural = _("idempotency events")
        default_permissions = ()
        indexes = [models.Index(fields=["kind", "record_id"], name="idempotency_event_kind")]

    def __str__(self) -> str:
        return f"{self.kind} {self.transition}".strip()


class MaintenanceRun(models.Model):
    """When a maintenance job last ran and what it did. There is one row per job."""

    job = models.CharField(_("job"), max_length=32, primary_key=True)
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    succeeded_at = models.DateTimeField(_("last finished without an error at"), null=True, blank=True)
    counts = models.TextField(_("counts"), blank=True, db_default="")
    error = models.TextField(_("error"), blank=True, db_default="")

    class Meta:
        db_table = "idempotency_maintenance_run"
        default_permissions = ()
        verbose_name = _("maintenance run")
        verbose_name_plural = _("maintenance runs")

    def __str__(self) -> str:
        return self.job


class IdempotencyCount(models.Model):
    """How often a request outcome occurred in one minute, summed over all processes."""

    minute = models.DateTimeField(_("minute"))
    operation = ExactCharField(_("operation"), max_length=255)
    outcome = models.CharField(_("outcome"), max_length=32)
    count = models.PositiveBigIntegerField(_("count"))

    class Meta:
        db_table = "idempotency_count"
        default_permissions = ()
        verbose_name = _("count of outcomes")
        verbose_name_plural = _("counts of outcomes")
        constraints = [
            models.UniqueConstraint(fields=["minute", "operation", "outcome"], name="idempotency_count_bucket"),
        ]

    def __str__(self) -> str:
        return f"{self.operation} {self.outcome}: {self.count}".strip()
