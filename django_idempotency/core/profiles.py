"""How APIs differ in the headers, statuses and error bodies of idempotency keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from django_idempotency.core.validation import require_codes, require_function, to_member


class Shape(StrEnum):
    """The JSON of an error response."""

    PROBLEM = "problem"  # RFC 9457
    STRIPE = "stripe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The status codes, header names and error bodies that an API uses."""

    name: str
    header: str = "Idempotency-Key"
    replayed_header: str = "Idempotency-Replayed"
    mark_first: bool = False  # send that header as "false" with the response that is stored
    strict: bool = False  # accept only the quoted form of RFC 9651; reject a bare key
    missing: int = 400
    invalid: int = 400
    mismatch: int = 422
    in_flight: int = 409
    unknown: int = 409
    gone: int = 410
    not_stored: int = 409  # a success whose response could not be stored
    unavailable: int = 503
    shape: Shape = Shape.PROBLEM
    reshape: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None  # a problem's members -> your own JSON
    codes: Mapping[str, str] = field(default_factory=dict, hash=False)  # your own `code` for each code of the package
    documentation: str = ""  # URL of the published rules, sent as Link
    release_invalid: bool = False  # validation errors release the key

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", to_member("shape", Shape, self.shape))
        for each in ("missing", "invalid", "mismatch", "in_flight", "unknown", "gone", "not_stored", "unavailable"):
            status = getattr(self, each)
            allowed = range(200, 600) if each == "in_flight" else range(400, 600)
            if status not in allowed:
                raise ValueError(f"{each} must be a status from {allowed[0]} to {allowed[-1]}; it is {status!r}.")
        require_function("reshape", self.reshape)
        object.__setattr__(self, "codes", require_codes(self.codes))
        for each in ("name", "header", "replayed_header"):
            if not getattr(self, each):
                raise ValueError(f"{each} must not be empty.")


IETF: Final = Profile(name="ietf")
STRIPE: Final = Profile(
    name="stripe",
    replayed_header="Idempotent-Replayed",
    mismatch=400,
    shape=Shape.STRIPE,
    release_invalid=True,
)
