from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from shutil import get_terminal_size
from typing import Any, ClassVar, Final

from django_idempotency.core.policy import Mode, Policy
from django_idempotency.core.states import LostLease
from django_idempotency.flow.registry import find_reconciler
from django_idempotency.http.inventory import ListedEndpoint, Protection, take_inventory
from django_idempotency.management.base import CommandError, PackageCommand, add_json
from django_idempotency.management.tables import format_rows
from django_idempotency.monitoring.units import format_interval

HEADINGS: Final = {
    Protection.NOT_NEEDED: "Neither POST nor PATCH",
    Protection.PROTECTED: "Protected",
    Protection.EXEMPT: "Exempt",
    Protection.UNPROTECTED: "Unprotected",
}
WITHOUT_RECONCILER: Final = {
    LostLease.UNKNOWN: "no reconciler",
    LostLease.RESTART: "restarted",
    LostLease.RESUME: "resumed",
}
WHAT_TO_DO: Final = (
    "Protect each with @idempotent or IdempotentMixin, mark it with @exempt, or accept it with --allow and its path or "
    "name."
)


class Command(PackageCommand):
    section = "idempotency_endpoints"
    examples = ("", "--fail-unprotected --allow '/legacy/*'", "--json")
    exit_codes: ClassVar[Mapping[int, str]] = {
        0: "the endpoints are listed",
        1: "an endpoint is unprotected, with --fail-unprotected; or the URLconf cannot be read",
        2: "the arguments are wrong",
    }
    help = "List every endpoint of the project, and what protects it. Opens no database."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--all", action="store_true", help="also list the views of installed packages")
        parser.add_argument("--fail-unprotected", action="store_true", help="exit with 1 if an endpoint is unprotected")
        parser.add_argument(
            "--allow",
            action="append",
            default=[],
            metavar="PATTERN",
            help="with --fail-unprotected: accept endpoints with this path or route name, such as '/legacy/*'",
        )
        add_json(parser, "the list")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["allow"] and not options["fail_unprotected"]:
            raise CommandError("--allow needs --fail-unprotected.")
        try:
            found = take_inventory()
        except (TypeError, ValueError) as error:
            raise CommandError(str(error)) from error
        left_out = Counter(entry.package for entry in found if entry.is_foreign and not options["all"])
        listed = [entry for entry in found if options["all"] or not entry.is_foreign]
        if options["json"]:
            self.write_json({"endpoints": list(map(describe_entry, listed)), "not_listed": left_out})
        else:
            self.say("\n".join(format_list(listed, left_out, get_terminal_size().columns)))
        if options["fail_unprotected"]:
            _reject_unprotected(listed, options["allow"])


def _reject_unprotected(listed: Sequence[ListedEndpoint], allowed: Sequence[str]) -> None:
    found = [
        format_methods_and_paths(entry)
        for entry in listed
        if entry.protection is Protection.UNPROTECTED and not _is_allowed(entry, allowed)
    ]
    if found:
        raise CommandError(f"Unprotected endpoints ({len(found)}): {'; '.join(found)}. {WHAT_TO_DO}")


def _is_allowed(entry: ListedEndpoint, patterns: Sequence[str]) -> bool:
    names = (entry.endpoint.name, *entry.paths)
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def describe_entry(entry: ListedEndpoint) -> dict[str, Any]:
    """Return the entry with every option that it has. Times are in seconds."""
    facts: dict[str, Any] = {
        "paths": entry.paths,
        "methods": entry.methods or None,
        "name": entry.endpoint.name,
        "view": entry.view,
        "action": entry.action,
        "package": entry.package,
        "protection": entry.protection,
    }
    policy = entry.policy
    if policy is None:
        return facts
    leased = policy.mode is Mode.LEASED
    return facts | {
        "operation": entry.operation,
        "mode": policy.mode,
        "transaction": entry.transaction,
        "lease": policy.lease.total_seconds() if leased else None,
        "reconciler": find_reconciler(entry.operation) is not None if leased else None,
        "on_lost_lease": policy.on_lost_lease if leased else None,
        "retention": policy.retention and policy.retention.total_seconds(),
        "scope": name_scope(policy),
        "tenant": policy.tenant and _dotted(policy.tenant),
        "share_anonymous": policy.share_anonymous,
        "anonymous_unprotected": policy.anonymous_unprotected,
        "required": policy.required,
        "published": policy.published,
        "profile": policy.profile.name,
    }


def format_list(listed: Sequence[ListedEndpoint], left_out: Counter[str], width: int) -> Iterator[str]:
    """Yield the lines of a list for people: a heading for each kind of protection, and a row for each entry."""
    for protection, heading in HEADINGS.items():
        rows = [format_cells(entry) for entry in listed if entry.protection is protection]
        if rows:
            yield f"{heading}: {len(rows)}"
            yield from format_rows(rows, width)
    if left_out:
        counts = ", ".join(f"{package} ({count})" for package, count in sorted(left_out.items()))
        yield f"Not listed without --all: the views of {counts}"


def format_cells(entry: ListedEndpoint) -> list[str]:
    """Return the cells of an entry. Each says what it is, so that no heading is needed where a row is wrapped."""
    policy = entry.policy
    start = [entry.shown_methods, ", ".join(entry.paths)]
    if policy is None:
        return [*start, entry.view]
    return [
        *start,
        entry.operation,
        *_format_mode(entry, policy),
        f"retention {format_limit(policy.retention)}",
        f"scope {', '.join(_format_scope(policy))}",
        "key required" if policy.required else "key optional",
        policy.profile.name,
    ]


def _format_scope(policy: Policy) -> Iterator[str]:
    yield name_scope(policy)
    if policy.tenant:
        yield "tenant"
    if policy.share_anonymous:
        yield "anonymous shared"
    if policy.anonymous_unprotected:
        yield "anonymous unprotected"


def _format_mode(entry: ListedEndpoint, policy: Policy) -> tuple[str, str, str]:
    if policy.mode is Mode.ATOMIC:
        return policy.mode, "", ""
    reconciler = "reconciler" if find_reconciler(entry.operation) else WITHOUT_RECONCILER[policy.on_lost_lease]
    return f"{policy.mode}, {entry.transaction}", f"lease {format_interval(policy.lease)}", reconciler


def format_methods_and_paths(entry: ListedEndpoint) -> str:
    return f"{entry.shown_methods} {', '.join(entry.paths)}"


def format_limit(length: timedelta | None) -> str:
    return "for ever" if length is None else format_interval(length)


def name_scope(policy: Policy) -> str:
    """Return whose keys they are, or the function that tells."""
    if policy.scope is None:
        return "user"
    return policy.scope if isinstance(policy.scope, str) else _dotted(policy.scope)


def _dotted(function: Any) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
