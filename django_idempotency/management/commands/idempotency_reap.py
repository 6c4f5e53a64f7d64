from django_idempotency.maintenance import reap
from django_idempotency.management.base import DutyCommand


class Command(DutyCommand):
    help = "Delete, or expire for audit, the answers whose retention is over."
    duty = staticmethod(reap)
