"""The first release. PostgreSQL compresses stored bodies with lz4 if it can: large inserts are several times faster."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

import django_idempotency.fields


def compress_bodies(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    connection = schema_editor.connection
    if connection.vendor != "postgresql":
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY(enumvals)")
        if cursor.fetchone():
            cursor.execute("ALTER TABLE idempotency_key ALTER COLUMN response_body SET COMPRESSION lz4")


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="MaintenanceRun",
            fields=[
                ("job", models.CharField(max_length=32, primary_key=True, serialize=False, verbose_name="job")),
                ("started_at", models.DateTimeField(blank=True, null=True, verbose_name="started at")),
                ("finished_at", models.DateTimeField(blank=True, null=True, verbose_name="finished at")),
                (
                    "succeeded_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="last finished without an error at"),
                ),
                ("counts", models.TextField(blank=True, db_default="", verbose_name="counts")),
                ("error", models.TextField(blank=True, db_default="", verbose_name="error")),
            ],
            options={
                "verbose_name": "maintenance run",
                "verbose_name_plural": "maintenance runs",
                "db_table": "idempotency_maintenance_run",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="IdempotencyCount",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("minute", models.DateTimeField(verbose_name="minute")),
                ("operation", django_idempotency.fields.ExactCharField(max_length=255, verbose_name="operation")),
                ("outcome", models.CharField(max_length=32, verbose_name="outcome")),
                ("count", models.PositiveBigIntegerField(verbose_name="count")),
            ],
            options={
                "verbose_name": "count of outcomes",
                "verbose_name_plural": "counts of outcomes",
                "db_table": "idempotency_count",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("minute", "operation", "outcome"), name="idempotency_count_bucket")
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyEvent",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("record_id", models.UUIDField(db_index=True, verbose_name="record")),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django_idempotency.fields.StatementNow(), db_index=True, verbose_name="at"
                    ),
                ),
                ("kind", models.CharField(max_length=32, verbose_name="kind")),
                ("transition", models.CharField(blank=True, db_default="", max_length=8, verbose_name="transition")),
                ("actor", models.CharField(blank=True, db_default="", max_length=255, verbose_name="actor")),
                ("reason", models.TextField(blank=True, db_default="", verbose_name="reason")),
                ("details", models.TextField(blank=True, db_default="", verbose_name="details")),
            ],
            options={
                "verbose_name": "idempotency event",
                "verbose_name_plural": "idempotency events",
                "db_table": "idempotency_event",
                "default_permissions": (),
                "indexes": [models.Index(fields=["kind", "record_id"], name="idempotency_event_kind")],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                ("id", models.UUIDField(editable=False, primary_key=True, serialize=False)),
                ("attempt_token", models.UUIDField(blank=True, null=True, verbose_name="attempt token")),
                ("created_at", models.DateTimeField(verbose_name="created at")),
                ("last_run_at", models.DateTimeField(blank=True, null=True, verbose_name="last run at")),
                ("grace_until", models.DateTimeField(blank=True, null=True, verbose_name="grace until")),
                ("lease_seconds", models.PositiveIntegerField(verbose_name="lease")),
                ("grace_seconds", models.PositiveIntegerField(verbose_name="grace")),
                ("retention_seconds", models.PositiveIntegerField(blank=True, null=True, verbose_name="retention")),
                ("steps_done", models.PositiveIntegerField(db_default=0, verbose_name="steps done")),
                ("locked_until", models.DateTimeField(blank=True, null=True, verbose_name="locked until")),
                ("reconcile_after", models.DateTimeField(blank=True, null=True, verbose_name="reconcile after")),
                ("completed_at", models.DateTimeField(blank=True, null=True, verbose_name="completed at")),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires at")),
                (
                    "response_schema_version",
                    models.PositiveIntegerField(blank=True, null=True, verbose_name="response schema version"),
                ),
                ("audit_seconds", models.PositiveIntegerField(blank=True, null=True, verbose_name="audit time")),
                (
                    "response_status",
                    models.PositiveSmallIntegerField(blank=True, null=True, verbose_name="response status"),
                ),
                ("tainted", models.BooleanField(db_default=False, verbose_name="an earlier attempt is in doubt")),
                ("derived", models.BooleanField(db_default=False, verbose_name="a downstream key was derived")),
                ("deferred", models.BooleanField(db_default=False, verbose_name="a worker does the work")),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("in_progress", "in progress"),
                            ("completed", "completed"),
                            ("failed", "failed"),
                            ("failed_retryable", "failed retryable"),
                            ("unknown", "unknown"),
                            ("dead_letter", "dead letter"),
                            ("expired", "expired"),
                        ],
                        max_length=16,
                        verbose_name="status",
                    ),
                ),
                ("response_headers", models.TextField(blank=True, db_default="", verbose_name="response headers")),
                ("response_body", models.BinaryField(blank=True, null=True, verbose_name="response body")),
                ("attempts", models.PositiveSmallIntegerField(db_default=1, verbose_name="attempts")),
                (
                    "reconcile_attempts",
                    models.PositiveSmallIntegerField(db_default=0, verbose_name="reconcile attempts"),
                ),
                ("wrote", models.BooleanField(db_default=False, verbose_name="the acceptance committed writes")),
                ("arguments", models.TextField(blank=True, db_default="", verbose_name="arguments")),
                ("progress", models.TextField(blank=True, db_default="", verbose_name="progress")),
                (
                    "run_name",
                    models.CharField(blank=True, db_default="", max_length=255, verbose_name="registered operation"),
                ),
                (
                    "recovery_point",
                    models.CharField(blank=True, db_default="", max_length=255, verbose_name="recovery point"),
                ),
                (
                    "last_error_code",
                    models.CharField(blank=True, db_default="", max_length=64, verbose_name="last error"),
                ),
                ("request_path", models.CharField(blank=True, db_default="", max_length=255, verbose_name="path")),
                ("request_method", models.CharField(blank=True, db_default="", max_length=16, verbose_name="method")),
                (
                    "operation",
                    django_idempotency.fields.ExactCharField(
                        blank=True, db_default="", max_length=255, verbose_name="operation"
                    ),
                ),
                (
                    "principal",
                    django_idempotency.fields.ExactCharField(
                        blank=True, db_default="", max_length=255, verbose_name="principal"
                    ),
                ),
                (
                    "tenant",
                    django_idempotency.fields.ExactCharField(
                        blank=True, db_default="", max_length=255, verbose_name="tenant"
                    ),
                ),
                (
                    "on_lost_lease",
                    models.CharField(
                        choices=[("unknown", "unknown"), ("restart", "restart"), ("resume", "resume")],
                        db_default="unknown",
                        max_length=16,
                        verbose_name="on lost lease",
                    ),
                ),
                ("namespace", models.CharField(blank=True, db_default="", max_length=12, verbose_name="namespace")),
                ("fingerprint", models.CharField(max_length=160, verbose_name="fingerprint")),
                ("scope", django_idempotency.fields.ExactCharField(max_length=255, verbose_name="scope")),
                ("key", django_idempotency.fields.ExactCharField(max_length=255, verbose_name="key")),
            ],
            options={
                "verbose_name": "idempotency key",
                "verbose_name_plural": "idempotency keys",
                "db_table": "idempotency_key",
                "permissions": [
                    ("view_content", "Can view stored bodies, arguments and results"),
                    ("ask_reconciler", "Can ask the reconciler at once"),
                    ("resolve_landed", "Can mark a record as succeeded and store its response"),
                    ("resolve_not_executed", "Can mark a record as not executed"),
                    ("try_again", "Can reset a dead letter and retry reconciliation"),
                    ("enqueue", "Can re-queue deferred work"),
                    ("expire_now", "Can expire a stored response now"),
                ],
                "default_permissions": ("view",),
                "indexes": [
                    django_idempotency.fields.PresentIndex(fields=["locked_until"], name="idempotency_key_overdue"),
                    django_idempotency.fields.PresentIndex(fields=["reconcile_after"], name="idempotency_key_due"),
                    django_idempotency.fields.PresentIndex(fields=["expires_at"], name="idempotency_key_expired"),
                    models.Index(fields=["created_at"], name="idempotency_key_created"),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("key", "scope"), name="idempotency_key_scope_key"),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "status__in",
                                [
                                    "completed",
                                    "dead_letter",
                                    "expired",
                                    "failed",
                                    "failed_retryable",
                                    "in_progress",
                                    "pending",
                                    "unknown",
                                ],
                            )
                        ),
                        name="idempotency_key_status",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status__in", ["in_progress", "pending"]), ("locked_until__isnull", False)),
                            models.Q(
                                models.Q(("status__in", ["in_progress", "pending"]), _negated=True),
                                models.Q(("locked_until__isnull", False), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="idempotency_key_lease",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "pending"), _negated=True), ("deferred", True), _connector="OR"
                        ),
                        name="idempotency_key_pending",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status__in", ["in_progress", "unknown"]), _negated=True),
                            ("attempt_token__isnull", False),
                            _connector="OR",
                        ),
                        name="idempotency_key_token",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status__in", ["unknown"]), ("reconcile_after__isnull", False)),
                            models.Q(
                                models.Q(("status__in", ["unknown"]), _negated=True),
                                models.Q(("reconcile_after__isnull", False), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="idempotency_key_doubt_due",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("status__in", ["completed", "failed"]),
                                ("completed_at__isnull", False),
                                ("response_status__isnull", False),
                            ),
                            ("status", "expired"),
                            models.Q(
                                models.Q(("status__in", ["completed", "expired", "failed"]), _negated=True),
                                ("response_status__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="idempotency_key_answer",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status__in", ["dead_letter", "in_progress", "unknown"]), _negated=True),
                            ("expires_at__isnull", True),
                            _connector="OR",
                        ),
                        name="idempotency_key_expiry",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Dashboard",
            fields=[],
            options={
                "verbose_name": "dashboard",
                "verbose_name_plural": "dashboard",
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("django_idempotency.idempotencykey",),
        ),
        migrations.RunPython(compress_bodies, migrations.RunPython.noop),
    ]
