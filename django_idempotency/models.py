"""The record, what happened to it, and when each duty last ran. No method here writes: the store does."""

from datetime import datetime, timedelta

from django.db import DEFAULT_DB_ALIAS, models
from django.db.models import Q, Value
from django.utils.translation import gettext_lazy as _

from django_idempotency.core.identity import Ref, derive_key
from django_idempotency.core.policy import LostLease
from django_idempotency.core.states import Status
from django_idempotency.fields import ExactCharField, PresentIndex, StatementNow

__all__ = [
    "DutyRun",
    "IdempotencyCount",
    "IdempotencyEvent",
    "IdempotencyKey",
]

STATUSES = [(status.value, status.value.replace("_", " ")) for status in Status]
LOST_LEASE = [(each.value, each.value) for each in LostLease]


class IdempotencyKeyQuerySet(models.QuerySet["IdempotencyKey"]):
    """Questions that people ask. Nothing here is used to change a record."""

    def with_time(self) -> "IdempotencyKeyQuerySet":
        """Read the database's time with each record, as `read_at`."""
        return self.annotate(read_at=StatementNow())  # type: ignore[no-redef] # declared on the model, set here

    def in_doubt(self) -> "IdempotencyKeyQuerySet":
        """Nobody knows whether the effect happened."""
        return self.filter(status__in=Status.IN_DOUBT)

    def needing_a_person(self) -> "IdempotencyKeyQuerySet":
        """Reconciliation gave up."""
        return self.filter(status=Status.DEAD_LETTER)

    def running(self) -> "IdempotencyKeyQuerySet":
        """An attempt holds a lease that is live."""
        return self.filter(status=Status.IN_PROGRESS, locked_until__gt=StatementNow())

    def overdue(self) -> "IdempotencyKeyQuerySet":
        """The lease ran out and the sweeper has not come by yet."""
        return self.filter(locked_until__lte=StatementNow())

    def due(self) -> "IdempotencyKeyQuerySet":
        """The reconciler may ask now."""
        return self.filter(reconcile_after__lte=StatementNow())

    def resumable(self) -> "IdempotencyKeyQuerySet":
        """An operation that the resumer goes on with."""
        return self.filter(status=Status.UNKNOWN, on_lost_lease=LostLease.RESUME).exclude(run_name="")

    def terminal(self) -> "IdempotencyKeyQuerySet":
        """The answer is stored."""
        return self.filter(status__in=Status.TERMINAL)

    def waiting(self, silent: timedelta) -> "IdempotencyKeyQuerySet":
        """Accepted work that no worker has begun. What was put back waits for its turn, but not for so long."""
        forgotten = Q(last_error_code="") | Q(last_run_at__lte=StatementNow() - Value(silent))
        return self.filter(forgotten, locked_until__isnull=False, status=Status.PENDING)

    def expired(self) -> "IdempotencyKeyQuerySet":
        """The retention is over, whether or not the reaper has come by."""
        return self.filter(expires_at__lte=StatementNow())


class IdempotencyKey(models.Model):
    """One (scope, key): who claimed it, for which request, and how it ended."""

    id = models.UUIDField(primary_key=True, editable=False)
    scope = ExactCharField(_("scope"), max_length=255)
    key = ExactCharField(_("key"), max_length=255)
    status = models.CharField(_("status"), max_length=16, choices=STATUSES)
    fingerprint = models.CharField(_("fingerprint"), max_length=160)
    principal = models.CharField(_("principal"), max_length=255, blank=True, db_default="")
    operation = models.CharField(_("operation"), max_length=255, blank=True, db_default="")
    request_method = models.CharField(_("method"), max_length=16, blank=True, db_default="")
    request_path = models.CharField(_("path"), max_length=255, blank=True, db_default="")

    attempt_token = models.UUIDField(_("attempt token"), null=True, blank=True)
    attempts = models.PositiveIntegerField(_("attempts"), db_default=1)
    tainted = models.BooleanField(_("an earlier attempt is in doubt"), db_default=False)
    locked_until = models.DateTimeField(_("locked until"), null=True, blank=True)
    grace_until = models.DateTimeField(_("grace until"), null=True, blank=True)
    on_lost_lease = models.CharField(_("on lost lease"), max_length=16, choices=LOST_LEASE, db_default="unknown")
    lease_seconds = models.PositiveIntegerField(_("lease"))
    grace_seconds = models.PositiveIntegerField(_("grace"))
    retention_seconds = models.PositiveIntegerField(_("retention"), null=True, blank=True)
    audit_seconds = models.PositiveIntegerField(_("audit time"), null=True, blank=True)

    deferred = models.BooleanField(_("a worker does the work"), db_default=False)
    run_name = models.CharField(_("registered operation"), max_length=255, blank=True, db_default="")
    arguments = models.TextField(_("arguments"), blank=True, db_default="")
    progress = models.TextField(_("progress"), blank=True, db_default="")
    steps_done = models.PositiveIntegerField(_("steps done"), db_default=0)
    recovery_point = models.CharField(_("recovery point"), max_length=255, blank=True, db_default="")

    reconcile_after = models.DateTimeField(_("reconcile after"), null=True, blank=True)
    reconcile_attempts = models.PositiveIntegerField(_("reconcile attempts"), db_default=0)
    last_error_code = models.CharField(_("last error"), max_length=64, blank=True, db_default="")

    response_status = models.PositiveSmallIntegerField(_("response status"), null=True, blank=True)
    response_headers = models.TextField(_("response headers"), blank=True, db_default="")
    response_body = models.BinaryField(_("response body"), null=True, blank=True)
    response_schema_version = models.PositiveIntegerField(_("response schema version"), null=True, blank=True)

    created_at = models.DateTimeField(_("created at"))
    last_run_at = models.DateTimeField(_("last run at"), null=True, blank=True)
    completed_at = models.DateTimeField(_("completed at"), null=True, blank=True)
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)

    objects = IdempotencyKeyQuerySet.as_manager()

    read_at: datetime  # the database's time, on what `with_time` read

    class Meta:
        db_table = "idempotency_key"
        verbose_name = _("idempotency key")
        verbose_name_plural = _("idempotency keys")
        # Nobody adds, changes or deletes a record: these are what an operator can be allowed to do.
        default_permissions = ("view",)
        permissions = [
            ("view_content", _("Can view stored bodies, arguments and results")),
            ("ask_reconciler", _("Can ask the reconciler at once")),
            ("resolve_landed", _("Can say that it happened and store the answer")),
            ("resolve_not_executed", _("Can say that it did not happen")),
            ("try_again", _("Can give a dead letter all its tries again")),
            ("enqueue", _("Can ask for a worker again")),
            ("expire_now", _("Can expire a stored answer now")),
        ]
        constraints = [
            # Key first: a person with nothing but a key from a log finds its records.
            models.UniqueConstraint(fields=["key", "scope"], name="idempotency_key_scope_key"),
            models.CheckConstraint(name="idempotency_key_status", condition=Q(status__in=[s.value for s in Status])),
            # A lease exists exactly while somebody owes work: an attempt, or the message that asks for one.
            models.CheckConstraint(
                name="idempotency_key_lease",
                condition=Q(status__in=["pending", "in_progress"], locked_until__isnull=False)
                | (~Q(status__in=["pending", "in_progress"]) & Q(locked_until__isnull=True)),
            ),
            # Only what was handed to a worker waits for one.
            models.CheckConstraint(name="idempotency_key_pending", condition=~Q(status="pending") | Q(deferred=True)),
            # Whoever runs, or ran and left doubt, can be told from everybody else.
            models.CheckConstraint(
                name="idempotency_key_token",
                condition=~Q(status__in=["in_progress", "unknown"]) | Q(attempt_token__isnull=False),
            ),
            # A doubt is always due at some time, so that it cannot be forgotten; nothing else is.
            models.CheckConstraint(
                name="idempotency_key_doubt_due",
                condition=Q(status="unknown", reconcile_after__isnull=False)
                | (~Q(status="unknown") & Q(reconcile_after__isnull=True)),
            ),
            # An answer exists exactly when the record has ended.
            models.CheckConstraint(
                name="idempotency_key_answer",
                condition=(
                    Q(status__in=["completed", "failed"], response_status__isnull=False, completed_at__isnull=False)
                    | Q(status="expired")
                    | (~Q(status__in=["completed", "failed", "expired"]) & Q(response_status__isnull=True))
                ),
            ),
            # What is open or in doubt has no expiry, so the reaper cannot even see it.
            models.CheckConstraint(
                name="idempotency_key_expiry",
                condition=~Q(status__in=["in_progress", "unknown", "dead_letter"]) | Q(expires_at__isnull=True),
            ),
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
        return derive_key(self.id, step)

    @property
    def ref(self) -> Ref:
        """Where this record is."""
        return Ref(self.scope, self.id, self._state.db or DEFAULT_DB_ALIAS)

    @property
    def grace_left(self) -> float:
        """Seconds until a message of a lost attempt can no longer arrive; 0 if there was none."""
        return 0.0 if self.grace_until is None else (self.grace_until - self.read_at).total_seconds()

    @property
    def lease_over(self) -> bool:
        """True if a lease was taken and has run out."""
        return self.locked_until is not None and self.locked_until <= self.read_at

    @property
    def retention_over(self) -> bool:
        """True if the response need not be kept any longer."""
        ended = self.status in Status.TERMINAL or self.status == Status.FAILED_RETRYABLE
        return self.status == Status.EXPIRED or (
            ended and self.expires_at is not None and self.expires_at <= self.read_at
        )

    @property
    def is_resumable(self) -> bool:
        """True if another attempt may restart the work or continue it."""
        return self.on_lost_lease != LostLease.UNKNOWN


class IdempotencyEvent(models.Model):
    """Something a person will want to know about a record. Append only; never on the plain path."""

    record_id = models.UUIDField(_("record"), db_index=True)
    at = models.DateTimeField(_("at"), db_default=StatementNow(), db_index=True)
    kind = models.CharField(_("kind"), max_length=32)
    transition = models.CharField(_("transition"), max_length=8, blank=True, db_default="")
    actor = models.CharField(_("actor"), max_length=255, blank=True, db_default="")
    reason = models.TextField(_("reason"), blank=True, db_default="")

    class Meta:
        db_table = "idempotency_event"
        verbose_name = _("idempotency event")
        verbose_name_plural = _("idempotency events")
        indexes = [models.Index(fields=["kind", "record_id"], name="idempotency_event_kind")]

    def __str__(self) -> str:
        return f"{self.kind} {self.transition}".strip()


class DutyRun(models.Model):
    """When a maintenance duty last ran and what it did. One row a duty."""

    duty = models.CharField(_("duty"), max_length=32, primary_key=True)
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    counts = models.TextField(_("counts"), blank=True, db_default="")
    error = models.TextField(_("error"), blank=True, db_default="")

    class Meta:
        db_table = "idempotency_duty_run"
        verbose_name = _("duty run")
        verbose_name_plural = _("duty runs")

    def __str__(self) -> str:
        return self.duty


class IdempotencyCount(models.Model):
    """How often something happened in one minute; added up by every process where counting is switched on."""

    minute = models.DateTimeField(_("minute"))
    operation = ExactCharField(_("operation"), max_length=255)
    outcome = models.CharField(_("outcome"), max_length=32)
    count = models.PositiveBigIntegerField(_("count"))

    class Meta:
        db_table = "idempotency_count"
        verbose_name = _("count of outcomes")
        verbose_name_plural = _("counts of outcomes")
        constraints = [
            models.UniqueConstraint(fields=["minute", "operation", "outcome"], name="idempotency_count_bucket"),
        ]

    def __str__(self) -> str:
        return f"{self.operation} {self.outcome}: {self.count}".strip()
