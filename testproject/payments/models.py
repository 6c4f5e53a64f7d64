"""What the service itself writes down; what was really charged stands in the gateway's ledger alone."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Payment(models.Model):
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="payments")
    amount = models.PositiveIntegerField(help_text="In the currency's smallest unit.")
    currency = models.CharField(max_length=3)
    customer = models.CharField(max_length=100)
    charge = models.CharField(max_length=100, db_index=True, help_text="The gateway's name for it.")
    created_at = models.DateTimeField(auto_now_add=True)
    settled_at = models.DateTimeField(null=True, blank=True, help_text="When the gateway's webhook confirmed it.")
    idempotency_key = models.ForeignKey(
        "django_idempotency.IdempotencyKey",
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        editable=False,
        related_name="payments",
        help_text="Which request made it; empty once the record has gone.",
    )

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.amount / 100:.2f} {self.currency} by {self.customer}"


class LedgerEntry(models.Model):
    """One side of a booking; all entries of one booking share their reference."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="entries")
    reference = models.CharField(max_length=100, db_index=True)
    account = models.CharField(max_length=100)
    amount = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "ledger entries"

    def __str__(self) -> str:
        return f"{self.account}: {self.amount / 100:+.2f}"


class Ride(models.Model):
    """Booked first, charged then: without a charge it is on its way, or it was refused."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="rides")
    origin = models.CharField(max_length=100)
    target = models.CharField(max_length=100)
    amount = models.PositiveIntegerField(help_text="In the currency's smallest unit.")
    charge = models.CharField(max_length=100, blank=True, help_text="The gateway's name for it.")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.origin} to {self.target}"


class RideEvent(models.Model):
    """Who did what to a ride, for whoever has to explain it one day."""

    ride = models.ForeignKey(Ride, on_delete=models.PROTECT, related_name="events")
    happened = models.CharField(max_length=100)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.happened


class Receipt(models.Model):
    """An outbox: the row is the promise to send, committed with what it promises."""

    ride = models.ForeignKey(Ride, on_delete=models.PROTECT, related_name="receipts")
    created_at = models.DateTimeField(auto_now_add=True)
    sent_at = models.DateTimeField(null=True, blank=True, help_text="Empty: a mailer still has to send it.")

    def __str__(self) -> str:
        return f"receipt for {self.ride}"


class Export(models.Model):
    """A report that somebody asked for; it is there as soon as the request was accepted."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="exports")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"export {self.pk}"


class ExportPage(models.Model):
    """What some of the payments came to, so that a worker that takes over need not add them up again."""

    export = models.ForeignKey(Export, on_delete=models.CASCADE, related_name="pages")
    number = models.PositiveIntegerField()
    totals = models.JSONField(help_text="By customer: how many payments, and how much they came to.")

    def __str__(self) -> str:
        return f"page {self.number} of {self.export}"
