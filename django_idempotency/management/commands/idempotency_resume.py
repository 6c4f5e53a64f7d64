from django_idempotency.management.jobs import JobCommand


class Command(JobCommand):
    job = "resume"
