"""What proves that nothing happened, and gets a 503; and what would only tell the client so, and gets a 409."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.views import APIView, exception_handler

from django_idempotency import STRIPE
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import NotExecuted, OutcomeUnknown
from django_idempotency.flow.worker import perform
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once
from django_idempotency.operations import Op, operation
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.calls import BOOKED
from tests.kit.http import Person, Ran

pytestmark = pytest.mark.django_db(transaction=True)

Ending = Callable[[Any], Any]


def plain(end: Ending, **policy: Any) -> Any:
    return idempotent(operation="tests.it", **policy)(end)


def asynchronous(end: Ending, **policy: Any) -> Any:
    async def view(request: HttpRequest) -> Any:
        return await sync_to_async(end)(request)

    return idempotent(operation="tests.it", **policy)(view)


def rest(end: Ending, **policy: Any) -> Any:
    class Rest(IdempotentMixin, APIView):
        authentication_classes = (SessionAuthentication,)
        idempotency = {"operation": "tests.it", **policy}

        def post(self, request: Any) -> Any:
            return end(request)

    return Rest.as_view()


def post(alice: Person, settings: Any, view: Any) -> Any:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})
    return alice.post("/it")


def statuses() -> list[str]:
    return [*IdempotencyKey.objects.filter(operation="tests.it").values_list("status", flat=True)]


# Proof


def refused(error: BaseException) -> bool:
    return isinstance(error, ConnectionRefusedError)


def fails_once(error: type[Exception]) -> Ending:
    def end(request: Any) -> HttpResponse:
        if Ran.again() == 1:
            if error is ConnectionRefusedError:
                request.idempotency.derive("charge")
            raise error("planned")
        return JsonResponse({"run": Ran.count}, status=201)

    return end


@pytest.mark.parametrize("error", [NotExecuted, ConnectionRefusedError])
@pytest.mark.parametrize(
    "policy",
    [{}, {"transaction": "late"}, {"mode": "atomic"}, {"on_error": "store"}, {"profile": STRIPE}],
    ids=["whole", "late", "atomic", "store", "stripe"],
)
@pytest.mark.parametrize("made", [plain, asynchronous, rest])
def test_proof_gets_the_same_503(alice: Person, settings: Any, made: Any, policy: Any, error: type[Exception]) -> None:
    if made is asynchronous and policy.get("mode") == "atomic":
        pytest.skip("an async view is never atomic")
    first = post(alice, settings, made(fails_once(error), not_executed=refused, **policy))
    assert (first.status_code, first.get("Retry-After")) == (503, "2")
    members = first.json()["error"] if policy.get("profile") else first.json()
    assert members["code"] == "idempotency_not_executed"
    assert statuses() == ([] if policy.get("mode") == "atomic" else ["failed_retryable"])
    assert (alice.post("/it").status_code, Ran.count) == (201, 2)


def test_what_is_not_proven_reaches_the_project(alice: Person, settings: Any) -> None:
    assert post(alice, settings, plain(fails_once(TimeoutError), not_executed=refused)).status_code == 500
    assert statuses() == ["unknown"]


# No proof of this key


class NotReached(Exception):
    """The project's own name for proof that the provider was not called."""


def raises(error: Exception) -> Any:
    raise error


def not_executed_after_derive(request: Any) -> Any:
    request.idempotency.derive("charge")
    raise NotExecuted("Somewhere below, something was not executed.")


def refuse_the_mail() -> None:
    once(scope="mails", key=uuid4().hex, run=lambda claim: raises(NotExecuted("The mail server was not reached.")))


def mail_refused(request: Any) -> Any:
    """The view has charged; then the mail server proves that it got nothing, under the mail's own key."""
    refuse_the_mail()


def mail_refused_within_a_batch(request: Any) -> Any:
    once(scope="batches", key=uuid4().hex, run=lambda claim: refuse_the_mail())


def mail_that_may_not_be_tried_yet(request: Any) -> Any:
    """The package itself says that nothing was executed: two tries failed a moment ago."""
    mail = partial(once, scope="mails", key=uuid4().hex, not_executed=[NotReached], attempts_span=timedelta(minutes=10))
    for _ in range(2):
        with suppress(NotReached):
            mail(run=lambda claim: raises(NotReached()))
    mail(run=lambda claim: raises(NotReached()))


def mail_forbidden(request: Any) -> Any:
    once(scope="mails", key=uuid4().hex, run=lambda claim: raises(PermissionDenied()))


OF_ANOTHER_KEY = [mail_refused, mail_refused_within_a_batch, mail_that_may_not_be_tried_yet, mail_forbidden]


@pytest.mark.parametrize("end", [not_executed_after_derive, *OF_ANOTHER_KEY], ids=lambda end: end.__name__)
@pytest.mark.parametrize("made", [plain, asynchronous, rest])
def test_proof_about_something_else_is_an_unknown_outcome(alice: Person, settings: Any, made: Any, end: Any) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": f"{__name__}.as_429"}
    told = post(alice, settings, made(end, transaction="late", not_executed=[NotReached]))
    assert (told.status_code, statuses()) == (409, ["unknown"])
    assert (told.json()["code"], told.json()["safe_new_key"]) == ("idempotency_outcome_unknown", False)


def as_429(error: Exception, context: Any) -> Any:
    """A handler of the project's for DRF, which makes a response of NotExecuted."""
    return HttpResponse(status=429) if isinstance(error, NotExecuted) else exception_handler(error, context)


def mail_refused_by_name(request: Any) -> Any:
    once(scope="mails", key=uuid4().hex, run=lambda claim: raises(NotReached()), not_executed=[NotReached])


def wrapped_in_another_error(request: Any) -> Any:
    try:
        refuse_the_mail()
    except NotExecuted as error:
        raise RuntimeError from error


@pytest.mark.parametrize("end", [mail_refused_by_name, wrapped_in_another_error], ids=lambda end: end.__name__)
def test_an_error_of_the_project_is_no_proof_of_another_key(alice: Person, settings: Any, end: Any) -> None:
    told = post(alice, settings, plain(end, transaction="late", not_executed=[NotReached]))
    assert (told.status_code, statuses()) == (500, ["unknown"])


def test_after_derive_the_policy_may_name_what_is_proof(alice: Person, settings: Any) -> None:
    view = plain(not_executed_after_derive, not_executed=[NotExecuted])
    assert (post(alice, settings, view).status_code, statuses()) == (503, ["failed_retryable"])


def test_in_atomic_mode_a_refusal_after_derive_is_not_final(alice: Person, settings: Any) -> None:
    told = post(alice, settings, plain(not_executed_after_derive, mode="atomic"))
    assert (told.status_code, told.json()["code"], statuses()) == (409, "idempotency_outcome_unknown", [])


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_work_in_once_whose_proof_does_not_count_is_in_doubt(mode: str) -> None:
    def work(claim: Claim) -> None:
        claim.derive("charge")
        raise NotExecuted

    with pytest.raises(OutcomeUnknown):
        once(scope="tests", key="k", run=work, mode=mode, operation="tests.it")
    assert statuses() == (["unknown"] if mode == "leased" else [])


@pytest.mark.usefixtures("registrations")
@pytest.mark.parametrize("begun", [False, True], ids=["accepted", "request"])
def test_a_step_that_meets_the_proof_of_another_key_stays_in_doubt(alice: Person, settings: Any, begun: bool) -> None:
    @operation("tests.it")
    def work(op: Op) -> Any:
        op.effect("charge", mail_refused, in_doubt="reconcile")
        return BOOKED

    def end(request: Any) -> Any:
        return request.idempotency.run(work) if begun else request.idempotency.defer(work)

    told = post(alice, settings, plain(end, transaction="late"))
    if not begun:
        assert told.status_code == 202
        perform(IdempotencyKey.objects.get(operation="tests.it").id)
    row = IdempotencyKey.objects.get(operation="tests.it")
    assert (row.status, row.steps_done, row.recovery_point) == ("unknown", 1, "")


@pytest.mark.usefixtures("registrations")
def test_a_step_that_was_not_executed_is_called_again_whatever_the_view_derived(alice: Person, settings: Any) -> None:
    @operation("tests.it")
    def work(op: Op) -> Any:
        op.effect("charge", lambda key: raises(NotExecuted()), in_doubt="reconcile")

    def end(request: Any) -> Any:
        request.idempotency.derive("mail")
        return request.idempotency.run(work)

    assert post(alice, settings, plain(end, transaction="late")).status_code == 409
    row = IdempotencyKey.objects.get()
    assert (row.status, row.steps_done, row.on_lost_lease) == ("unknown", 0, "resume")


# Responses after a downstream key was derived


class GatewayTimeout(APIException):
    status_code = 504


def returns(status: int, **how: bool) -> Ending:
    def end(request: Any) -> Any:
        response = JsonResponse({}, status=status)
        if how.get("derived", True):
            request.idempotency.derive("charge")
        return request.idempotency.finish(lambda: response) if how.get("finished") else response

    return end


def refuses(error: Exception, derived: bool = True) -> Ending:
    def end(request: Any) -> Any:
        if derived:
            request.idempotency.derive("charge")
        raise error

    return end


FINAL, DOUBT = "completed", "unknown"


@pytest.mark.parametrize(
    ("end", "policy", "status", "record"),
    [
        (returns(504), {}, 409, DOUBT),
        (returns(504), {"transaction": "late"}, 409, DOUBT),
        (returns(504, derived=False), {}, 504, FINAL),
        (returns(504, finished=True), {"transaction": "late"}, 504, FINAL),
        (returns(504), {"store": [504]}, 504, FINAL),
        (returns(504), {"store": lambda status: status == 504}, 504, FINAL),
        (returns(504), {"store": [402]}, 409, DOUBT),
        (returns(402), {}, 402, FINAL),
        (refuses(Http404()), {}, 409, DOUBT),
        (refuses(Http404(), derived=False), {}, 404, FINAL),
        (refuses(PermissionDenied()), {"transaction": "late"}, 409, DOUBT),
        (refuses(PermissionDenied()), {"refusals": [PermissionDenied]}, 403, FINAL),
        (refuses(PermissionDenied()), {"on_error": "store"}, 403, FINAL),
    ],
)
@pytest.mark.parametrize("made", [plain, asynchronous, rest])
def test_after_derive_an_error_is_final_only_if_the_view_or_its_policy_says_so(
    alice: Person, settings: Any, made: Any, end: Ending, policy: Any, status: int, record: str
) -> None:
    told = post(alice, settings, made(end, **policy))
    assert (told.status_code, statuses()) == (status, [record])


@pytest.mark.parametrize(
    ("error", "policy", "status", "record"),
    [
        (ValidationError("wrong"), {}, 409, DOUBT),
        (ValidationError("wrong"), {"refusals": [ValidationError]}, 400, FINAL),
        (GatewayTimeout(), {}, 504, DOUBT),
        (GatewayTimeout(), {"refusals": [GatewayTimeout]}, 504, FINAL),
    ],
)
def test_after_derive_the_same_is_true_of_the_exceptions_of_rest_framework(
    alice: Person, settings: Any, error: Exception, policy: Any, status: int, record: str
) -> None:
    told = post(alice, settings, rest(refuses(error), **policy))
    assert (told.status_code, statuses()) == (status, [record])


@pytest.mark.parametrize("end", [returns(504), refuses(Http404())], ids=["returned", "raised"])
def test_after_derive_an_atomic_error_is_not_final(alice: Person, settings: Any, end: Ending) -> None:
    told = post(alice, settings, plain(end, mode="atomic"))
    assert (told.status_code, statuses()) == (409, [])


# Two requests at once


def test_an_atomic_request_that_was_rolled_back_gets_the_response_that_is_there_by_then(
    alice: Person, settings: Any
) -> None:
    def view(request: Any) -> HttpResponse:
        if Ran.again() == 1:
            raise ConnectionRefusedError
        return JsonResponse({}, status=201)

    def proves(error: BaseException) -> bool:
        """The policy is asked after the first request was rolled back: now the second one runs."""
        assert alice.post("/it").status_code == 201
        return True

    told = post(alice, settings, plain(view, mode="atomic", not_executed=proves))
    assert (told.status_code, told.get("Idempotency-Replayed"), Ran.count) == (201, "true", 2)
