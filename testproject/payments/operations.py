"""What the service does in steps; imported when Django starts, so that any process can go on with them."""

from __future__ import annotations

import csv
import time
from collections import defaultdict
from functools import partial
from io import StringIO
from typing import Any

from django.db.models import Count, Sum

from django_idempotency import Reply, json_reply
from django_idempotency.operations import Op, operation
from testproject.gateway.charges import Order
from testproject.payments.charging import charge
from testproject.payments.errors import CardDeclined
from testproject.payments.killing import KillableSteps, current
from testproject.payments.models import ExportPage, Payment, Receipt, Ride, RideEvent

RIDE_STEPS = ("ride_created", "event_written", "charge_created", "receipt_queued")


@operation("rides.create")
def create_ride(op: Op, *, owner: int, origin: str, target: str, amount: int) -> Reply:
    steps = KillableSteps(op)
    ride = steps.phase("ride_created", book_ride, owner, origin, target, amount)
    steps.phase("event_written", write_event, ride, "booked")
    paid = steps.effect("charge_created", partial(charge_ride, ride, amount), in_doubt="repeat")
    if "declined" in paid:
        steps.phase("refusal_written", write_event, ride, "card declined")
        return json_reply(402, {"ride": ride, "detail": paid["declined"]})
    receipt = steps.phase("receipt_queued", queue_receipt, ride, paid["charge"])
    body = {"ride": ride, "origin": origin, "target": target, "amount": amount}
    return json_reply(201, {**body, "charge": paid["charge"], "receipt": receipt})


def book_ride(owner: int, origin: str, target: str, amount: int) -> int:
    return Ride.objects.create(owner_id=owner, origin=origin, target=target, amount=amount).pk


def write_event(ride: int, happened: str) -> None:
    RideEvent.objects.create(ride_id=ride, happened=happened)


def charge_ride(ride: int, amount: int, key: str) -> dict[str, Any]:
    """A declined card is a result as good as any; it is written down, and the next step depends on it."""
    try:
        charged = charge(Order(amount, "EUR", f"ride {ride}"), key=key)
    except CardDeclined as refusal:
        return {"declined": str(refusal.detail)}
    current().pause()
    current().fail_after()
    return {"charge": charged.id}


def queue_receipt(ride: int, charged: str) -> int:
    Ride.objects.filter(pk=ride).update(charge=charged)
    return Receipt.objects.create(ride_id=ride).pk


@operation("exports.create")
def export_payments(op: Op, *, export: int, owner: int, page: int, pause: float) -> Reply:
    edges = op.phase("pages_cut", cut_pages, owner, page)
    for number, (first, last) in enumerate(edges, start=1):
        op.phase(f"page_{number}", add_up, export, number, owner, first, last)
        op.progress(number, len(edges))
        time.sleep(pause)
    return Reply(201, (("Content-Type", "text/csv"),), as_csv(export).encode())


def cut_pages(owner: int, size: int) -> list[tuple[int, int]]:
    """The first and last payment of each page: cut once, so that payments made meanwhile change no page."""
    ids = list(Payment.objects.filter(owner_id=owner).order_by("id").values_list("id", flat=True))
    return [(ids[start], ids[start : start + size][-1]) for start in range(0, len(ids), size)]


def add_up(export: int, number: int, owner: int, first: int, last: int) -> None:
    payments = Payment.objects.filter(owner_id=owner, id__range=(first, last)).order_by().values("customer")
    sums = payments.annotate(count=Count("id"), sum=Sum("amount"))
    totals = {each["customer"]: [each["count"], each["sum"]] for each in sums}
    ExportPage.objects.create(export_id=export, number=number, totals=totals)


def as_csv(export: int) -> str:
    totals: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for page in ExportPage.objects.filter(export_id=export):
        for customer, (count, amount) in page.totals.items():
            totals[customer][0] += count
            totals[customer][1] += amount
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(["customer", "payments", "amount"])
    writer.writerows([customer, *sums] for customer, sums in sorted(totals.items()))
    return text.getvalue()
