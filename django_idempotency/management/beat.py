"""The maintenance jobs as entries of django-celery-beat. Imported only where that is installed."""

from typing import Any

from django_celery_beat.models import IntervalSchedule, PeriodicTask

from django_idempotency.tasks import beat_schedule


def install_entries(*, dry_run: bool) -> dict[str, list[str]]:
    """Add the entries that are missing. Return the names of the added and of the kept ones."""
    there = set(PeriodicTask.objects.filter(name__in=beat_schedule()).values_list("name", flat=True))
    missing = {name: entry for name, entry in beat_schedule().items() if name not in there}
    if not dry_run:
        for name, entry in missing.items():
            _add(name, entry)
    return {"added": sorted(missing), "kept": sorted(there)}


def _add(name: str, entry: dict[str, Any]) -> None:
    turn = {"every": int(entry["schedule"]), "period": IntervalSchedule.SECONDS}
    there = IntervalSchedule.objects.filter(**turn).order_by("pk").first()  # there may be several equal intervals
    interval = there or IntervalSchedule.objects.create(**turn)
    expires = entry["options"]["expire_seconds"]
    PeriodicTask.objects.get_or_create(
        name=name, defaults={"task": entry["task"], "interval": interval, "expire_seconds": expires}
    )
