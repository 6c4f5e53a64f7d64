from django_idempotency.maintenance import resume
from django_idempotency.management.base import DutyCommand


class Command(DutyCommand):
    help = "Go on with every operation whose process is gone."
    duty = staticmethod(resume)
