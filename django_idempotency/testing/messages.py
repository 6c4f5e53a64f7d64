"""What `assert_idempotent` says when it fails: what broke, why it matters, and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django_idempotency.core.links import docs_url


@dataclass(frozen=True, slots=True)
class Defect:
    """One way in which an endpoint fails its clients."""

    title: str
    why: str
    remedy: str


DEFECTS: Final[Mapping[str, Defect]] = {
    "first_failed": Defect(
        "The endpoint refused a request under a new key",
        "Nothing can be learned about retries of a request that does not succeed.",
        "Log the client in, and let `call` send data that can be sent several times: each check uses a new key.",
    ),
    "effect_not_seen": Defect(
        "The request succeeded, and no effect was seen",
        "Without an effect to count, a request that runs twice looks like one that runs once.",
        "Pass `effects`: a function that returns how often it happened, such as `Payment.objects.count`.",
    ),
    "executed_twice": Defect(
        "A retry was executed again",
        "A client that saw no response must retry. Its customer pays twice.",
        "Protect the view with `@idempotent` or its framework's equivalent, and check that no decorator runs outside.",
    ),
    "retry_failed": Defect(
        "A retry got a server error",
        "The client cannot tell whether its request took effect, and its next step is a guess.",
        "Look up the key before the work begins; do not let a unique constraint answer with a 500.",
    ),
    "different_response": Defect(
        "A retry got another response than the first request",
        "The client acts on what it is told: an order number that changes, or an error for a success, is acted upon.",
        "Store the response itself, status and bytes, and replay that.",
    ),
    "lost_headers": Defect(
        "A replay lacks a header of the first response, or changes it",
        "Clients read headers such as Location or ETag; the client that retried cannot continue.",
        "Store the headers with the response. If this one has another value for each request, name it in `varying`.",
    ),
    "key_reused": Defect(
        "A different request under the same key was not refused",
        "The client believes that its new request was done; it was not, or it was done under a used key.",
        "Compare the request with the one that the key was first used for, and answer 422 if they differ.",
    ),
    "replayed_unauthenticated": Defect(
        "A caller without credentials was served",
        "Anyone who sees a key in a log or a proxy can read the response that is stored for it.",
        "Authenticate before the key is looked up. If everyone may call this endpoint, pass `public=True`.",
    ),
    "shared_between_users": Defect(
        "Two users share one key",
        "One customer reads the response of another, or is told that a request was done which never was.",
        "Make the authenticated user, or the tenant, part of what a key is looked up by.",
    ),
    "retried_after_error": Defect(
        "A retry after an error repeated the effect",
        "The request had its effect before it failed, and the retry had it again: the customer pays twice.",
        "Release the key only if it is proven that nothing happened; leave it `unknown` otherwise.",
    ),
    "new_downstream_key": Defect(
        "A retry sent another downstream key to the provider",
        "The provider cannot recognize the retry, and does the work again.",
        "Send `request.idempotency.derive(step)`, which is the same for each attempt; never a new UUID.",
    ),
    "in_flight": Defect(
        "A duplicate of a running request was not told to wait",
        "Clients time out while the work goes on, and retry: both requests have the effect, or the second fails.",
        "Claim the key before the work begins, and answer 409 with Retry-After meanwhile.",
    ),
}


class NotIdempotent(AssertionError):
    """An endpoint failed a check of `assert_idempotent`; `defect` is the stable name of what is wrong."""

    def __init__(self, defect: str, seen: str) -> None:
        self.defect = defect
        known = DEFECTS[defect]
        super().__init__(
            f"{known.title} ({defect}).\n"
            f"  Seen: {seen}.\n"
            f"  Why it matters: {known.why}\n"
            f"  What to do: {known.remedy}\n"
            f"  More: {docs_url('reference/testing', defect.replace('_', '-'))}"
        )


class UntestedWarning(UserWarning):
    """A check of `assert_idempotent` could not be made; name it in `skip` if that is intended."""
