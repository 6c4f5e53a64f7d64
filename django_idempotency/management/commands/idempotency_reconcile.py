from django_idempotency.maintenance import reconcile
from django_idempotency.management.base import DutyCommand


class Command(DutyCommand):
    help = "Ask about every doubt that is due."
    duty = staticmethod(reconcile)
