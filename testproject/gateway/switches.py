"""How the provider misbehaves on request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

MOST_WEBHOOKS = 3
KINDS: dict[str, tuple[type, ...]] = {"bool": (bool,), "float": (int, float), "int": (int,), "str": (str,)}


@dataclass(frozen=True)
class Switches:
    dedupe: bool = True  # the same key is the same charge
    delay: float = 0.0  # seconds before a charge is executed and answered
    refuse: bool = False  # every card is declined
    lose_answer: bool = False  # charge, then hang up without an answer
    late: float = 0.0  # answer 504 now, charge that many seconds later
    webhooks: int = 0  # how often each charge is told to webhook_url
    webhook_url: str = ""

    def changed(self, changes: Mapping[str, Any]) -> Switches:
        for name, value in changes.items():
            self._check(name, value)
        return replace(self, **changes)

    def _check(self, name: str, value: object) -> None:
        if name not in (known := asdict(self)):
            raise ValueError(f"there is no switch {name!r}; there are {', '.join(known)}")
        kind = type(known[name]).__name__
        if not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
            raise ValueError(f"{name} must be of type {kind}")
        if isinstance(value, int | float) and value < 0:
            raise ValueError(f"{name} must not be negative")
        if name == "webhooks" and isinstance(value, int) and value > MOST_WEBHOOKS:
            raise ValueError(f"webhooks must be 0 to {MOST_WEBHOOKS}")
