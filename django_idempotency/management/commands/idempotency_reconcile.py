from django_idempotency.management.base import JobCommand


class Command(JobCommand):
    job = "reconcile"
