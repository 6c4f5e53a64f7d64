"""What the provider and its clients talk about, and what can go wrong between them.

GatewayError
├── Declined       the provider said no: nothing was charged
├── KeyReused      the key belongs to another order: nothing was charged
├── Unreachable    the request never left: nothing was charged
└── Unanswered     the request left and no answer came: nobody here knows
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Protocol


class GatewayError(Exception):
    """The gateway did not confirm a charge."""


class Declined(GatewayError):
    """The card was declined."""


class KeyReused(GatewayError):
    """This key was used for another order before."""


class Unreachable(GatewayError):
    """The gateway could not be reached: nothing was charged."""


class Unanswered(GatewayError):
    """The gateway did not answer: the charge may exist or not."""


@dataclass(frozen=True)
class Order:
    amount: int
    currency: str
    customer: str

    def __post_init__(self) -> None:
        if type(self.amount) is not int or self.amount < 1:
            raise ValueError("amount must be a positive integer, in the currency's smallest unit")
        for name in ("currency", "customer"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ValueError(f"{name} must be a text that is not empty")

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Charge:
    id: str
    key: str | None
    fingerprint: str
    amount: int
    currency: str
    customer: str
    time: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Gateway(Protocol):
    """What the service needs of a payment provider."""

    def charge(self, order: Order, *, key: str | None = None) -> Charge: ...

    def find(self, key: str) -> list[Charge]: ...
