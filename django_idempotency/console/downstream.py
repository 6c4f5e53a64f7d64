"""The downstream keys that a record has sent, or may have sent, to external services."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from django_idempotency.conf import conf
from django_idempotency.console.bodies import replace_surrogates
from django_idempotency.console.timeline import load_details
from django_idempotency.core.progress import Step, StepState
from django_idempotency.models import IdempotencyEvent, IdempotencyKey

KEYS_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class DownstreamKey:
    """A key, the step that it was derived for, and where the provider shows it."""

    step: str
    key: str
    in_doubt: bool
    url: str


@dataclass(frozen=True, slots=True)
class Downstream:
    """The keys that are known, and what every other one begins with."""

    keys: list[DownstreamKey]
    more: int
    prefix: str


def list_downstream(row: IdempotencyKey, steps: Sequence[Step], events: Sequence[IdempotencyEvent]) -> Downstream:
    """Return the keys of effects, and those that the attempts in doubt had asked for."""
    names = list(dict.fromkeys([*_list_effects(steps), *list_derived(events)]))
    in_doubt = {step.name for step in steps if step.state is StepState.STARTED}
    names.sort(key=lambda name: name not in in_doubt)
    keys = [_make_key(row, name, name in in_doubt) for name in names[:KEYS_SHOWN]]
    return Downstream(keys, len(names) - len(keys), row.derive("-")[:-1])


def _list_effects(steps: Sequence[Step]) -> Iterator[str]:
    """Return the steps that called an external service: only those are recorded when they begin."""
    for step in steps:
        if step.begun is not None or step.state is StepState.STARTED:
            yield step.name


def list_derived(events: Iterable[IdempotencyEvent]) -> list[str]:
    """Return the steps that the attempts had derived keys for before their outcome became unknown, each once."""
    recorded = [load_details(event).get("derived") for event in events]
    names = [name for each in recorded if isinstance(each, list) for name in each if isinstance(name, str)]
    return list(dict.fromkeys(map(replace_surrogates, names)))


def _make_key(row: IdempotencyKey, step: str, in_doubt: bool) -> DownstreamKey:
    key, template = row.derive(step), conf.PROVIDER_URL
    return DownstreamKey(step, key, in_doubt, (template or "").replace("{key}", quote(key, safe="")))
