from django_idempotency.maintenance import sweep
from django_idempotency.management.base import DutyCommand


class Command(DutyCommand):
    help = "Make expired leases unknown, so that they are looked into."
    duty = staticmethod(sweep)
