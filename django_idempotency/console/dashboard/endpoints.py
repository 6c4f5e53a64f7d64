"""The dashboard's list of endpoints, protected or not, with the figures of their operations."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.console.dashboard.links import Link, Links
from django_idempotency.console.dashboard.numbers import Figures
from django_idempotency.http.inventory import ListedEndpoint, Protection, take_inventory
from django_idempotency.monitoring.units import format_duration, format_number

PROTECTION_LABELS: Final[dict[Protection, str | Promise]] = {  # those that may need a change come first
    Protection.UNPROTECTED: gettext_lazy("unprotected"),
    Protection.EXEMPT: gettext_lazy("exempt"),
    Protection.PROTECTED: gettext_lazy("protected"),
}


def list_by_protection() -> list[ListedEndpoint]:
    """Return the endpoints that take POST or PATCH, or are protected; none if the settings or a policy are wrong."""
    try:
        found = [entry for entry in take_inventory() if entry.protection in PROTECTION_LABELS and not entry.is_foreign]
    except (TypeError, ValueError):  # `manage.py check` reports it
        return []
    return sorted(found, key=lambda entry: list(PROTECTION_LABELS).index(entry.protection))


def count_by_protection(listed: Sequence[ListedEndpoint]) -> str:
    counts = Counter(entry.protection for entry in listed)
    return ", ".join(
        f"{label}: {format_number(counts[each])}" for each, label in PROTECTION_LABELS.items() if counts[each]
    )


def build_row(entry: ListedEndpoint, found: Figures, links: Links) -> list[str | Link]:
    start: list[str | Link] = [f"{entry.shown_methods} {entry.paths[0]}", str(PROTECTION_LABELS[entry.protection])]
    if entry.policy is None:
        return [*start, "-", "-", "-"]
    stats = found.operations.get(entry.operation)
    runs = "-" if stats is None else format_number(len(stats.seconds))
    p99 = "-" if stats is None or stats.p99 is None else format_duration(stats.p99)
    return [*start, Link(entry.operation, links.list(operation=entry.operation)), runs, p99]


def head_of_endpoints() -> list[str]:
    return [_("endpoint"), _("protection"), _("operation"), _("runs"), _("p99")]
