"""A policy or a profile that cannot hold is refused where it is written, by a message that names the argument."""

from dataclasses import FrozenInstanceError
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from django_idempotency import IETF, STRIPE, FingerprintRule, KeyRule, Policy, Profile, ReplyRule
from django_idempotency.core.policy import AfterExpiry, Expiry, Mode, OnError, Streaming, Transaction
from django_idempotency.core.profiles import Shape
from django_idempotency.core.states import LostLease
from tests.kit.corpus import all_as_said, complaint

SECOND = timedelta(seconds=1)

BAD_POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("lease", {"lease": timedelta(0)}),
    ("lease", {"lease": timedelta(milliseconds=999)}),
    ("lease", {"lease": timedelta(seconds=1, microseconds=1)}),
    ("grace", {"grace": -SECOND}),
    *((name, {name: timedelta(seconds=2**30)}) for name in ("lease", "grace", "audit", "retention")),
    ("retry_hint", {"retry_hint": timedelta(0)}),
    ("audit", {"audit": timedelta(0)}),
    ("retention", {"retention": timedelta(0)}),
    ("heartbeat", {"heartbeat": timedelta(0), "transaction": "late"}),
    ("heartbeat", {"heartbeat": SECOND}),
    ("claim_limit", {"claim_limit": timedelta(milliseconds=9)}),
    ("wait", {"wait": timedelta(microseconds=-1)}),
    ("attempts", {"attempts": 0}),
    ("methods", {"methods": ()}),
    ("methods", {"methods": ["post"]}),
    ("mode", {"mode": "both"}),
    ("on_lost_lease", {"on_lost_lease": "retry"}),
    ("expiry", {"expiry": "never"}),
    ("after_expiry", {"after_expiry": "replay"}),
    ("after_expiry", {"after_expiry": "gone"}),
    ("after_expiry", {"after_expiry": "gone", "expiry": "hard"}),
    ("on_error", {"on_error": "ignore"}),
    ("transaction", {"transaction": "never"}),
    ("streaming", {"streaming": "store"}),
    ("on_lost_lease", {"mode": "atomic", "on_lost_lease": "restart"}),
    ("on_error", {"mode": "atomic", "on_error": "store"}),
    ("transaction", {"mode": "atomic", "transaction": "late"}),
]

GOOD_POLICIES: list[dict[str, Any]] = [
    {"lease": SECOND, "grace": SECOND, "retry_hint": SECOND, "audit": SECOND, "retention": SECOND},
    {"retention": None},
    {name: timedelta(seconds=2**30 - 1) for name in ("lease", "grace", "audit", "retention")},
    {"heartbeat": SECOND, "transaction": "late"},
    {"claim_limit": timedelta(milliseconds=10)},
    {"wait": timedelta(0)},
    {"attempts": 1},
    {"after_expiry": "gone", "expiry": "soft"},
    {"methods": ["PUT"]},
    {"store": frozenset({404})},
    {"store": bool},
    {"refusals": (LookupError,)},
    {"refusals": [LookupError]},
    {"scope": str, "tenant": str, "authorize": bool, "upgrade": str, "not_executed": bool},
    {"key": KeyRule(), "fingerprint": FingerprintRule(), "reply": ReplyRule(), "profile": STRIPE},
    {"mode": "atomic"},
    {"mode": "atomic", "on_error": "release"},
    {"authorize": "object"},
]

REFUSALS = ("missing", "invalid", "mismatch", "unknown", "gone", "unavailable")
BAD_PROFILES: list[tuple[str, dict[str, Any]]] = [
    *((name, {name: 399}) for name in REFUSALS),
    *(
        (name, {name: 600})
        for name in ("missing", "invalid", "mismatch", "in_flight", "unknown", "gone", "unavailable")
    ),
    ("in_flight", {"in_flight": 199}),
    ("name", {"name": ""}),
    ("header", {"header": ""}),
    ("replayed_header", {"replayed_header": ""}),
    ("shape", {"shape": "xml"}),
]

GOOD_PROFILES: list[dict[str, Any]] = [
    *({name: 400} for name in REFUSALS),
    *({name: 599} for name in (*REFUSALS, "in_flight")),
    {"in_flight": 200},
    {"shape": "stripe"},
]


def test_a_policy_that_cannot_hold_names_the_argument() -> None:
    assert all_as_said((given, complaint(Policy, given), (ValueError, name)) for name, given in BAD_POLICIES)


BAD_KINDS: list[dict[str, Any]] = [
    {"operation": 1},
    {"profile": "stripe"},
    {"required": "yes"},
    {"methods": "POST"},
    {"methods": [1]},
    {"lease": 30},
    {"retention": 30},
    {"attempts": "10"},
    {"refusals": LookupError},
    {"refusals": (LookupError, "KeyError")},
    {"refusals": (KeyboardInterrupt,)},
    {"not_executed": True},
    {"store": 404},
    {"store": ["404"]},
    {"key": {"min_length": 16}},
    {"fingerprint": {}},
    {"reply": {}},
    {"scope": "a.b"},
    {"authorize": "a.b"},
    {"upgrade": 1},
    {"share_anonymous": None},
]


def test_a_value_of_another_kind_is_told_before_the_first_request() -> None:
    assert all_as_said((given, complaint(Policy, given), (TypeError, next(iter(given)))) for given in BAD_KINDS)


def test_the_other_side_of_each_limit_is_fine() -> None:
    made = [(given, Policy(**given)) for given in GOOD_POLICIES]
    assert all_as_said((given, {name: getattr(policy, name) for name in given}, given) for given, policy in made)


def test_a_profile_that_cannot_hold_names_the_argument() -> None:
    own = partial(Profile, name="own")
    assert all_as_said((given, complaint(own, given), (ValueError, name)) for name, given in BAD_PROFILES)


def test_the_other_side_of_each_status_is_fine() -> None:
    made = [(given, Profile(name="own", **given)) for given in GOOD_PROFILES]
    assert all_as_said((given, {name: getattr(profile, name) for name in given}, given) for given, profile in made)


def test_words_become_members() -> None:
    policy = Policy(
        mode="leased",  # type: ignore[arg-type]
        on_lost_lease="resume",  # type: ignore[arg-type]
        expiry="soft",  # type: ignore[arg-type]
        after_expiry="gone",  # type: ignore[arg-type]
        on_error="store",  # type: ignore[arg-type]
        transaction="late",  # type: ignore[arg-type]
        streaming="buffer",  # type: ignore[arg-type]
    )
    assert (policy.mode, policy.on_lost_lease, policy.expiry) == (Mode.LEASED, LostLease.RESUME, Expiry.SOFT)
    assert (policy.after_expiry, policy.on_error) == (AfterExpiry.GONE, OnError.STORE)
    assert (policy.transaction, policy.streaming) == (Transaction.LATE, Streaming.BUFFER)
    assert Profile(name="own", shape="stripe").shape is Shape.STRIPE  # type: ignore[arg-type]


def test_a_wrong_word_is_told_the_right_ones() -> None:
    with pytest.raises(ValueError, match=r"mode must be one of 'leased', 'atomic'; it is 'both'\."):
        Policy(mode="both")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("store", "kept", "not_kept"),
    [
        (None, [200, 404, 500], []),
        ({201, 404}, [201, 404], [200, 500]),
        (lambda status: status < 500, [200, 404], [500, 503]),
    ],
)
def test_which_answers_are_kept(store: Any, kept: list[int], not_kept: list[int]) -> None:
    policy = Policy(store=store)
    assert all(policy.keeps(status) for status in kept)
    assert not any(policy.keeps(status) for status in not_kept)


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Policy().attempts = 3  # type: ignore[misc]


def test_the_two_profiles_differ_where_the_two_texts_do() -> None:
    assert (IETF.mismatch, IETF.replayed_header, IETF.shape) == (422, "Idempotency-Replayed", Shape.PROBLEM)
    assert (STRIPE.mismatch, STRIPE.replayed_header, STRIPE.shape) == (400, "Idempotent-Replayed", Shape.STRIPE)
    assert STRIPE.release_invalid
    assert not IETF.release_invalid


@pytest.mark.parametrize("wrong", [5, "", None])
def test_a_tenant_outside_http_is_a_text(wrong: Any) -> None:
    with pytest.raises(TypeError, match="tenant must return a str that is not empty"):
        Policy(tenant=lambda: wrong).tenant_without_request()
    assert Policy(tenant=lambda: "acme").tenant_without_request() == "acme"
