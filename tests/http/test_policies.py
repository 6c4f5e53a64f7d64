"""What a policy's arguments do over HTTP, on plain views."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import BadRequest
from django.db import OperationalError, connection, connections
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.test import Client, RequestFactory
from django.urls import path

from django_idempotency import STRIPE, Reply, ReplyRule, signals
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import LostFence, Misplaced, NotExecuted
from django_idempotency.http import waiting
from django_idempotency.models import IdempotencyKey
from django_idempotency.testing import retention_over
from tests.kit.http import KEY, Person, Ran, atomic_requests, same_answer

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

View = Callable[[HttpRequest], HttpResponse]


def counted(status: int = 201) -> View:
    def view(request: HttpRequest) -> HttpResponse:
        User.objects.create(username=f"written {Ran.again()}")
        return JsonResponse({"run": Ran.count}, status=status)

    return view


@pytest.fixture
def serve(settings: Any) -> Callable[[View], None]:
    """Put a view at /it."""

    def at(view: View) -> None:
        settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})

    return at


Serve = Callable[[View], None]


def put_back_to_running(**changes: Any) -> None:
    """As if the first request were not done yet."""
    IdempotencyKey.objects.update(
        status="in_progress",
        response_status=None,
        completed_at=None,
        expires_at=None,
        locked_until="2099-01-01T00:00Z",
        **changes,
    )


# Whose key it is


def test_s1_two_users_share_nothing(alice: Person, serve: Serve) -> None:
    serve(idempotent(counted()))
    first, other = alice.post("/it"), Person("bob").post("/it")
    assert (first.status_code, other.status_code) == (201, 201)
    assert first.content != other.content
    assert "Idempotency-Replayed" not in other


def test_s2_anonymous_callers_are_refused_by_default(anonymous: Person, serve: Serve) -> None:
    serve(idempotent(counted()))
    refused = [anonymous.post("/it", key=str(uuid4())) for _ in range(2)]
    assert {response.status_code for response in refused} == {403}
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)


@pytest.mark.parametrize(
    ("key", "accepted"),
    [
        (str(uuid4()), True),
        (uuid4().hex, True),
        ("9GkX2pQ7rLw4TzB8nVc5Yd", True),
        ("9GkX2pQ7rLw4TzB8nVc5Y", False),
        ("x" * 22, False),
        ("order-2026-11-19-000001", False),
        ("order-1", False),
        ("1", False),
    ],
)
def test_s2_anonymous_callers_may_share_a_scope_with_keys_that_nobody_guesses(
    anonymous: Person, serve: Serve, key: str, accepted: bool
) -> None:
    serve(idempotent(share_anonymous=True)(counted()))
    first, second = (anonymous.post("/it", key=key) for _ in range(2))
    assert first.status_code == second.status_code == (201 if accepted else 400)
    assert ("Idempotency-Replayed" in second) is accepted
    assert IdempotencyKey.objects.count() == accepted


def test_s2_an_endpoint_may_waive_that(anonymous: Person, serve: Serve) -> None:
    serve(idempotent(share_anonymous=True, guessable_anonymous=True)(counted()))
    first, second = (anonymous.post("/it", key="1") for _ in range(2))
    assert same_answer(first, second)


def test_the_scope_may_be_a_tenant(alice: Person, serve: Serve) -> None:
    serve(idempotent(scope=lambda request: request.headers.get("X-Tenant", ""))(counted()))
    bob = Person("bob")
    first = alice.post("/it", headers={"X-Tenant": "acme"})
    assert same_answer(first, bob.post("/it", headers={"X-Tenant": "acme"}), Vary="Authorization, Cookie")
    assert bob.post("/it", headers={"X-Tenant": "other"}).json() == {"run": 2}
    assert bob.post("/it").status_code == 403


def test_a_long_tenant_is_a_scope_of_its_own(alice: Person, serve: Serve) -> None:
    serve(idempotent(scope=lambda request: request.headers["X-Tenant"])(counted()))
    for tenant in ("a" * 400, "a" * 401):
        first, second = (alice.post("/it", headers={"X-Tenant": tenant}) for _ in range(2))
        assert same_answer(first, second, Vary="Authorization, Cookie")
    assert Ran.count == 2


def test_a_request_that_no_resolver_saw_is_scoped_by_its_path(alice: Person) -> None:
    request = RequestFactory().post("/by/hand", b"{}", "application/json", headers={"Idempotency-Key": KEY})
    request.user = alice.user or AnonymousUser()
    assert idempotent(counted())(request).status_code == 201
    assert IdempotencyKey.objects.get().operation == "/by/hand"


def test_csrf_refuses_before_the_key_is_looked_up(alice: Person, serve: Serve) -> None:
    serve(idempotent(counted()))
    assert alice.user is not None
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(alice.user)
    refused = strict.post("/it", "{}", "application/json", headers={"Idempotency-Key": KEY})
    assert (refused.status_code, IdempotencyKey.objects.count()) == (403, 0)
    assert alice.post("/it").status_code == 201


# What is stored, and who may see it again


@pytest.mark.parametrize("mode", ["leased", "atomic"])
@pytest.mark.parametrize("store", [lambda status: status < 500, frozenset({201, 404})], ids=["callable", "collection"])
@pytest.mark.parametrize(("status", "kept"), [(201, True), (404, True), (503, False)])
def test_only_the_declared_statuses_are_stored(
    alice: Person, serve: Serve, mode: str, store: Any, status: int, kept: bool
) -> None:
    serve(idempotent(mode=mode, store=store)(counted(status)))
    first, second = (alice.post("/it") for _ in range(2))
    assert (first.status_code, second.status_code, Ran.count) == (status, status, 1 if kept else 2)
    assert User.objects.filter(username__startswith="written").count() == kept


@pytest.mark.parametrize("declared", [{"store": {201}}, {"profile": STRIPE}], ids=["store", "profile"])
@pytest.mark.parametrize("transaction", ["whole", "late"])
@pytest.mark.parametrize("reached", [True, False], ids=["after a call", "before any"])
def test_a_refusal_after_a_call_to_somebody_else_is_stored_whatever_is_declared(
    alice: Person, serve: Serve, declared: Any, transaction: str, reached: bool
) -> None:
    """The call may have had an effect: a free key would have it again."""

    def view(request: HttpRequest) -> HttpResponse:
        if reached:
            request.idempotency.derive("charge")  # type: ignore[attr-defined]
        return JsonResponse({"run": Ran.again()}, status=422)

    serve(idempotent(transaction=transaction, **declared)(view))
    first, second = (alice.post("/it") for _ in range(2))
    assert (first.status_code, second.status_code, Ran.count) == (422, 422, 1 if reached else 2)
    assert IdempotencyKey.objects.get().status == ("completed" if reached else "failed_retryable")


@pytest.mark.parametrize("transaction", ["whole", "late"])
def test_a_server_error_after_a_call_that_is_not_to_be_stored_is_doubt(
    alice: Person, serve: Serve, transaction: str
) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        request.idempotency.derive("charge")  # type: ignore[attr-defined]
        return JsonResponse({"run": Ran.again()}, status=503)

    serve(idempotent(transaction=transaction, store=lambda status: status < 500)(view))
    codes = [alice.post("/it").json()["code"] for _ in range(2)]
    assert (codes, Ran.count) == (["idempotency_outcome_unknown"] * 2, 1)
    assert IdempotencyKey.objects.get().status == "unknown"


def test_a_refusal_in_atomic_mode_leaves_a_doubt_in_doubt(alice: Person, serve: Serve) -> None:
    """The endpoint was leased when the doubt came up."""

    def view(request: HttpRequest) -> HttpResponse:
        if Ran.again() == 1:
            raise RuntimeError("planned")
        if Ran.count == 2:
            raise Http404
        return JsonResponse({"run": Ran.count}, status=201)

    serve(idempotent(on_lost_lease="restart")(view))
    assert alice.post("/it").status_code == 500
    serve(idempotent(mode="atomic")(view))
    refused = alice.post("/it")
    assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_outcome_unknown")
    assert IdempotencyKey.objects.get().status == "unknown"
    assert alice.post("/it").status_code == 201
    assert IdempotencyKey.objects.get().status == "completed"


def not_executed() -> HttpResponse:
    raise NotExecuted


def bad() -> HttpResponse:
    raise BadRequest


@pytest.mark.parametrize("mode", [{"on_lost_lease": "restart"}, {"mode": "atomic"}], ids=["leased", "atomic"])
@pytest.mark.parametrize(
    ("declared", "second"),
    [
        ({"store": {201}}, lambda: JsonResponse({}, status=422)),
        ({"profile": STRIPE}, lambda: JsonResponse({}, status=422)),
        ({"profile": STRIPE}, bad),
        ({}, not_executed),
    ],
    ids=["store", "profile", "raised", "not executed"],
)
def test_what_is_not_kept_leaves_a_doubt_in_doubt(
    alice: Person, serve: Serve, mode: Any, declared: Any, second: Any
) -> None:
    """A client that heard "nothing was done" would send a new key."""

    def view(request: HttpRequest) -> HttpResponse:
        if Ran.again() == 1:
            raise RuntimeError("planned")
        answer: HttpResponse = second()
        return answer

    serve(idempotent(on_lost_lease="restart", **declared)(view))
    assert alice.post("/it").status_code == 500
    serve(idempotent(**mode, **declared)(view))
    assert alice.post("/it").status_code == 409
    assert (Ran.count, IdempotencyKey.objects.get().status) == (2, "unknown")


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_the_view_knows_that_it_is_a_repeat(alice: Person, serve: Serve, mode: str) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        if Ran.again() == 1:
            raise NotExecuted
        return JsonResponse({"repeat": request.idempotency.is_repeat}, status=201)  # type: ignore[attr-defined]

    serve(idempotent(mode="leased")(view))
    assert alice.post("/it").status_code == 503
    serve(idempotent(mode=mode)(view))
    assert alice.post("/it").json() == {"repeat": True}


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_success_is_stored_whatever_is_declared(alice: Person, serve: Serve, mode: str) -> None:
    serve(idempotent(mode=mode, store={201})(counted(200)))
    first, second = (alice.post("/it") for _ in range(2))
    assert same_answer(first, second)
    assert User.objects.filter(username="written 1").exists()


def test_an_answer_that_is_not_stored_leaves_a_doubt_in_doubt(alice: Person, serve: Serve) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        if Ran.again() == 1:
            raise RuntimeError("planned")
        return JsonResponse({"run": Ran.count}, status=503 if Ran.count == 2 else 201)

    at_once = timedelta(0)
    serve(idempotent(on_lost_lease="restart", store=lambda status: status < 500, attempts_span=at_once)(view))
    statuses = [alice.post("/it").status_code for _ in range(3)]
    assert statuses == [500, 409, 201]


def test_authorize_may_refuse_a_replay_and_nothing_else(alice: Person, serve: Serve) -> None:
    serve(idempotent(authorize=lambda request, record: request.headers.get("X-Seal") == record.key)(counted()))
    first = alice.post("/it")
    assert first.status_code == 201
    refused = alice.post("/it")
    assert (refused.status_code, b"run" in refused.content) == (403, False)
    assert same_answer(first, alice.post("/it", headers={"X-Seal": KEY}))


@pytest.mark.parametrize("upgrade", [True, False])
def test_an_older_answer_may_be_upgraded(alice: Person, serve: Serve, upgrade: bool) -> None:
    def today(reply: Reply) -> Reply:
        return replace(reply, body=b'{"upgraded": true}', schema_version=2)

    arguments: dict[str, Any] = {"reply": ReplyRule(schema_version=2), "upgrade": today if upgrade else None}
    serve(idempotent(**arguments)(counted()))
    first = alice.post("/it")
    assert same_answer(first, alice.post("/it")), "today's answers need no upgrade"
    IdempotencyKey.objects.update(response_schema_version=1)
    again = alice.post("/it")
    assert again.content == (b'{"upgraded": true}' if upgrade else first.content)
    assert again.status_code == 201


# What a view finds at request.idempotency


def test_a_repeat_derives_the_same_keys_for_each_step(alice: Person, serve: Serve) -> None:
    seen = []

    def view(request: Any) -> HttpResponse:
        own = request.idempotency
        seen.append((own.derive("charge"), own.derive("mail"), own.is_repeat, own.key, own.active))
        if Ran.again() == 1:
            raise NotExecuted
        return JsonResponse({})

    serve(idempotent(not_executed=[NotExecuted])(view))
    assert [alice.post("/it").status_code for _ in range(2)] == [503, 200]
    record = IdempotencyKey.objects.get()
    sent = record.derive("charge"), record.derive("mail")
    assert seen == [(*sent, repeated, KEY, True) for repeated in (False, True)]


def test_without_a_key_a_view_need_not_ask(alice: Person, serve: Serve) -> None:
    def view(request: Any) -> HttpResponse:
        own = request.idempotency
        own.extend()
        return own.finish(lambda: JsonResponse({"found": [own.active, own.derive("charge"), own.key]}))  # type: ignore[no-any-return]

    serve(idempotent(required=False, transaction="late")(view))
    assert alice.post("/it", key=None).json() == {"found": [False, None, ""]}


def test_a_lease_can_be_extended(alice: Person, serve: Serve) -> None:
    leases = []

    def view(request: Any) -> HttpResponse:
        for lease in (None, timedelta(hours=1)):
            request.idempotency.extend(*([] if lease is None else [lease]))
            record = IdempotencyKey.objects.get()
            assert record.locked_until is not None
            assert record.last_run_at is not None
            leases.append(round((record.locked_until - record.last_run_at).total_seconds()))
        return JsonResponse({})

    serve(idempotent(transaction="late")(view))
    assert alice.post("/it").status_code == 200
    assert [abs(lease - meant) <= 2 for lease, meant in zip(leases, (300, 3600), strict=True)] == [True, True]


def test_a_lease_that_is_no_longer_ours_cannot(alice: Person, serve: Serve) -> None:
    def view(request: Any) -> HttpResponse:
        IdempotencyKey.objects.update(attempt_token=uuid4())
        with pytest.raises(LostFence):
            request.idempotency.extend()
        request.idempotency.extend()
        raise AssertionError("unreachable")

    serve(idempotent(transaction="late")(view))
    assert alice.post("/it").status_code == 409


@pytest.mark.parametrize("mode", ["leased", "atomic"])
@pytest.mark.parametrize("call", ["extend", "finish"])
def test_inside_the_transaction_there_is_nothing_to_extend_or_finish(
    alice: Person, serve: Serve, mode: str, call: str
) -> None:
    def view(request: Any) -> HttpResponse:
        arguments = [] if call == "extend" else [HttpResponse]
        with pytest.raises(Misplaced, match=rf"{call}\(\) needs transaction='late'"):
            getattr(request.idempotency, call)(*arguments)
        return JsonResponse({})

    serve(idempotent(mode=mode)(view))
    assert alice.post("/it").status_code == 200


def test_what_a_late_view_returns_without_finish_is_stored(alice: Person, serve: Serve) -> None:
    serve(idempotent(transaction="late")(counted()))
    first, second = (alice.post("/it") for _ in range(2))
    assert same_answer(first, second)


# A duplicate that waits


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("happened", [True, False], ids=["answered", "not executed"])
@pytest.mark.parametrize("declared", [{"transaction": "late"}, {"mode": "atomic"}], ids=["late", "atomic"])
@pytest.mark.parametrize("expired", [False, True], ids=["new", "expired"])
def test_a_duplicate_may_wait_for_the_answer(
    alice: Person, serve: Serve, declared: Any, happened: bool, expired: bool, vendor: str, settings: Any
) -> None:
    settings.IDEMPOTENCY = {"SERVER_THREADS": 3}
    if expired:
        serve(idempotent(**declared)(counted(200)))
        assert alice.post("/it").status_code == 200
        retention_over(IdempotencyKey.objects.get())
        Ran.count = 0
    if "mode" in declared and vendor != "postgresql":
        pytest.skip("elsewhere the database itself makes a duplicate of an atomic request wait")
    started, waits = threading.Event(), threading.Event()

    def view(request: HttpRequest) -> HttpResponse:
        if Ran.again() == 1:
            started.set()
            assert waits.wait(60)
            if not happened:
                raise NotExecuted
        return JsonResponse({"run": Ran.count}, status=201)

    def first() -> None:
        answers.append(alice.post("/it"))
        connections.close_all()

    def noticed(**kwargs: Any) -> None:
        waits.set()

    answers: list[Any] = []
    serve(idempotent(wait=timedelta(seconds=60), **declared)(view))
    thread = threading.Thread(target=first)
    signals.in_flight.connect(noticed)
    try:
        thread.start()
        assert started.wait(60)
        duplicate = alice.post("/it")
    finally:
        waits.set()
        signals.in_flight.disconnect(noticed)
        thread.join()
    if happened:
        assert same_answer(answers[0], duplicate)
    else:
        assert (answers[0].status_code, duplicate.status_code, Ran.count) == (503, 201, 2)


def test_waiting_ends(alice: Person, serve: Serve, settings: Any) -> None:
    settings.IDEMPOTENCY = {"SERVER_THREADS": 3}
    serve(idempotent(wait=timedelta(milliseconds=60))(counted()))
    alice.post("/it")
    put_back_to_running()
    assert alice.post("/it").status_code == 409


def test_s21_only_a_few_duplicates_wait_in_one_process(alice: Person, serve: Serve, settings: Any) -> None:
    settings.IDEMPOTENCY = {"SERVER_THREADS": 9}
    serve(idempotent(wait=timedelta(hours=1))(counted()))
    alice.post("/it")
    put_back_to_running()
    taken = 0
    try:
        while waiting.PLACES.take(4):
            taken += 1
        refused = alice.post("/it")
    finally:
        for _ in range(taken):
            waiting.PLACES.leave()
    assert (taken, refused.status_code) == (4, 409)


# The store fails between a refusal in atomic mode and its own row


@pytest.mark.django_db(transaction=True)
def test_a_refusal_that_cannot_be_stored_is_unavailable(alice: Person, serve: Serve) -> None:
    def refused(request: HttpRequest) -> HttpResponse:
        Ran.again()
        raise PermissionError("planned")

    def down(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if Ran.count and "idempotency_key" in sql:
            raise OperationalError("planned")
        return execute(sql, params, many, context)

    serve(idempotent(mode="atomic", refusals=(PermissionError,))(refused))
    with connection.execute_wrapper(down):
        response = alice.post("/it")
    assert (response.status_code, Ran.count) == (503, 1)
    assert response["Retry-After"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_under_atomic_requests_other_aliases_get_their_transaction(alice: Person, serve: Serve, mode: str) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return JsonResponse({"open": connection.in_atomic_block, "depth": len(connection.savepoint_ids)})

    serve(idempotent(mode=mode, required=False)(view))
    with atomic_requests():
        assert alice.post("/it").json() == {"open": True, "depth": 0}
        assert alice.post("/it", key=None).json() == {"open": True, "depth": 0}
    assert alice.post("/it", key=None).json()["open"] is False


# What no view has to be afraid of


def test_a_path_may_hold_what_a_column_cannot(alice: Person, settings: Any) -> None:
    @idempotent
    def named(request: HttpRequest, name: str) -> HttpResponse:
        return counted()(request)

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it/<str:name>", named, name="it")]})
    first, second = (alice.post("/it/a%00b") for _ in range(2))
    assert first.status_code == 201
    assert same_answer(first, second)
    assert alice.post("/it/a%00c").status_code == 422


@pytest.mark.parametrize("boundary", ["", "; boundary=one"])
@pytest.mark.parametrize("size", [500, 5000], ids=["kept", "too large to be kept"])
def test_a_form_that_cannot_be_read_is_the_clients_error(
    alice: Person, serve: Serve, settings: Any, size: int, boundary: str
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000

    def plain(request: HttpRequest) -> HttpResponse:
        return JsonResponse({"fields": len(request.POST)})

    statuses = []
    for view in (plain, idempotent(plain)):
        serve(view)
        statuses.append(alice.send("/it", b"x" * size, f"multipart/form-data{boundary}").status_code)
    assert statuses[0] == statuses[1]


def test_a_form_without_fields_is_compared_without_its_boundary(alice: Person, serve: Serve) -> None:
    serve(idempotent(counted()))
    first, again, rubbish = (
        alice.send("/it", body, f"multipart/form-data; boundary={boundary}")
        for boundary, body in (("one", b"--one--\r\n"), ("two", b"--two--\r\n"), ("three", b"--two--\r\n"))
    )
    assert same_answer(first, again)
    assert rubbish.status_code == 422
