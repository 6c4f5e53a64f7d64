"""A provider that keeps a ledger, with and without downstream keys, and loses what it is told to lose."""

from __future__ import annotations

import pytest

from django_idempotency.testing import AnswerLost, FakeProvider


def test_a_provider_does_the_work_once_per_key() -> None:
    provider = FakeProvider()
    first, again, other = provider.send({"a": 1}, "k"), provider.send({"a": 1}, "k"), provider.send({"a": 1}, "l")
    assert first == again != other
    assert provider.ledger == [first, other]
    assert provider.keys == ["k", "k", "l"]


def test_a_request_without_a_key_is_always_new() -> None:
    provider = FakeProvider()
    assert provider.send(1) != provider.send(1)
    assert provider.find(None) is None


def test_a_provider_may_know_no_keys() -> None:
    provider = FakeProvider(deduplicates=False)
    assert provider.send(1, "k") != provider.send(1, "k")


def test_a_key_has_one_payload() -> None:
    provider = FakeProvider()
    provider.send(1, "k")
    with pytest.raises(ValueError, match="another payload"):
        provider.send(2, "k")


@pytest.mark.parametrize(("what", "done"), [("answers", 1), ("requests", 0)])
def test_an_answer_is_lost_after_the_work_and_a_request_before_it(what: str, done: int) -> None:
    provider = FakeProvider()
    with provider.losing(what), pytest.raises(AnswerLost):
        provider.send(1, "k")
    assert (len(provider.ledger), len(provider.keys)) == (done, done)
    assert (provider.find("k") is not None) == bool(done)
    assert provider.send(1, "k") in provider.ledger


def test_nothing_else_can_be_lost() -> None:
    with pytest.raises(ValueError, match="not 'money'"), FakeProvider().losing("money"):
        pass
