"""What the guide about Stripe shows, run with Stripe's own library."""

import json
from time import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import stripe
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import RequestFactory

from django_idempotency import maintenance
from django_idempotency.models import IdempotencyKey
from django_idempotency.testing import grace_over
from testproject.servers import free_port
from tests.kit.http import KEY
from tests.repository.test_samples import PAGES, run

pytestmark = pytest.mark.django_db

PAGE = "docs/how-to/stripe-downstream.md"
DECLINE = "pm_card_visa_chargeDeclined"
SOMEBODY_ELSES = {"id": "pi_other", "object": "payment_intent", "metadata": {}, "status": "succeeded"}


class Provider(stripe.HTTPClient):
    """Stands for Stripe, below its library: it knows keys, declines one card, and may be busy or lose an answer."""

    name = "stand-in"

    def __init__(self) -> None:
        super().__init__()
        self.intents: dict[str, dict[str, Any]] = {}
        self.busy = self.loses_answers = False

    def request(self, method: str, url: str, headers: Any, post_data: Any = None, **_: Any) -> Any:
        assert urlsplit(url).path == "/v1/payment_intents"
        if method == "get":
            return json.dumps(self._listed(dict(parse_qsl(urlsplit(url).query)))), 200, {}
        if self.busy:
            return json.dumps({"error": {"type": "invalid_request_error", "code": "rate_limit"}}), 429, {}
        intent = self._intent(headers["Idempotency-Key"], dict(parse_qsl(post_data)))
        if self.loses_answers:
            raise stripe.APIConnectionError("Read timed out.")  # type: ignore[no-untyped-call] # of that library
        error = intent["last_payment_error"]
        return (json.dumps({"error": error}), 402, {}) if error else (json.dumps(intent), 200, {})

    def _listed(self, wanted: dict[str, str]) -> dict[str, Any]:
        around = range(int(wanted["created[gte]"]), int(wanted["created[lte]"]) + 1)
        found = [SOMEBODY_ELSES, *(intent for intent in self.intents.values() if intent["created"] in around)]
        return {"object": "list", "data": found, "has_more": False, "url": "/v1/payment_intents"}

    def _intent(self, key: str, form: dict[str, str]) -> dict[str, Any]:
        declined = form["payment_method"] == DECLINE
        made = {
            "id": f"pi_{len(self.intents)}",
            "object": "payment_intent",
            "created": int(time()),
            "metadata": {"idempotency_key": form["metadata[idempotency_key]"]},
            "status": "requires_payment_method" if declined else "succeeded",
            "last_payment_error": {"type": "card_error", "code": "card_declined"} if declined else None,
        }
        return self.intents.setdefault(key, made)


@pytest.fixture
def shown() -> dict[str, Any]:
    """The guide's view and its reconciler."""
    return run(PAGE, PAGES[PAGE])


@pytest.fixture
def provider(shown: dict[str, Any]) -> Provider:
    made = Provider()
    assert shown["client"]._requestor._options.max_network_retries == 0
    shown["client"] = stripe.StripeClient("sk_test_123", max_network_retries=0, http_client=made)
    return made


def pay(shown: dict[str, Any], card: str = "pm_card_visa") -> HttpResponse:
    request = RequestFactory().post("/", {"payment_method": card}, headers={"Idempotency-Key": KEY})
    request.user = User(pk=1)
    response: HttpResponse = shown["pay"](request)
    return response


def status() -> str:
    return IdempotencyKey.objects.get().status


def test_a_repeat_gets_the_same_answer_for_one_charge(shown: dict[str, Any], provider: Provider) -> None:
    first, second = pay(shown), pay(shown)
    assert (first.status_code, second.status_code, second.content) == (201, 201, first.content)
    ((sent, intent),) = provider.intents.items()
    assert sent == intent["metadata"]["idempotency_key"] == IdempotencyKey.objects.get().derive("charge")


def test_a_declined_card_is_an_answer(shown: dict[str, Any], provider: Provider) -> None:
    first, second = pay(shown, DECLINE), pay(shown, DECLINE)
    assert (first.status_code, json.loads(first.content)) == (402, {"error": "card_declined"})
    assert (second.status_code, second.content) == (402, first.content)
    assert status() == "completed"


def test_a_request_that_stripe_turned_away_may_be_sent_again(shown: dict[str, Any], provider: Provider) -> None:
    provider.busy = True
    assert pay(shown).status_code == 503
    provider.busy = False
    assert pay(shown).status_code == 201


@pytest.mark.parametrize(("card", "answer"), [("pm_card_visa", 201), (DECLINE, 402)])
def test_a_lost_answer_is_found_by_its_metadata(
    shown: dict[str, Any], provider: Provider, card: str, answer: int
) -> None:
    provider.loses_answers = True
    with pytest.raises(stripe.APIConnectionError):
        pay(shown, card)
    assert status() == "unknown"

    assert maintenance.reconcile() == {"landed": 1}

    provider.loses_answers = False
    assert pay(shown, card).status_code == answer
    assert len(provider.intents) == 1


def test_a_charge_that_never_arrived_may_be_made_after_grace(shown: dict[str, Any], provider: Provider) -> None:
    answering = shown["client"]
    address: Any = {"api": f"http://127.0.0.1:{free_port()}"}
    shown["client"] = stripe.StripeClient("sk_test_123", max_network_retries=0, base_addresses=address)
    with pytest.raises(stripe.APIConnectionError):
        pay(shown)
    shown["client"] = answering
    assert status() == "unknown"

    grace_over(IdempotencyKey.objects.get())
    assert maintenance.reconcile() == {"not_executed": 1}

    assert pay(shown).status_code == 201
