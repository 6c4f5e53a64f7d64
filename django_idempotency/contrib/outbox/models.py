"""The table of an outbox: calls to other services, with their keys and responses."""

from django.db import models

from django_idempotency.fields import ExactCharField


class OutboxCall(models.Model):
    """One named call."""

    name = ExactCharField(max_length=255, unique=True)
    key = models.CharField(max_length=300, help_text="The value of the header.")
    method = models.CharField(max_length=20)
    url = models.TextField()
    headers = models.JSONField(default=dict, help_text="Of the request, without credentials.")
    body = models.BinaryField()
    created = models.FloatField(db_index=True, help_text="In seconds since 1970.")
    response_status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="Empty: the call is open.")
    response_headers = models.JSONField(default=dict)
    response_body = models.BinaryField(default=b"")

    def __str__(self) -> str:
        return self.name
