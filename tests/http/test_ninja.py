"""Operations of django-ninja: after its authentication, with what it renders, sync and async."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_idempotency import Profile
from django_idempotency.http.urlconf import project_endpoints
from django_idempotency.models import IdempotencyKey
from tests.kit.http import KEY, Ran, atomic_requests

ninja = pytest.importorskip("ninja", reason="NOT TESTED: django-ninja is not installed")

from ninja import NinjaAPI, Router, Schema, Status  # noqa: E402 - only if it is installed
from ninja.decorators import decorate_view  # noqa: E402
from ninja.errors import HttpError  # noqa: E402
from ninja.security import HttpBearer  # noqa: E402

from django_idempotency.exceptions import Misplaced, NotExecuted  # noqa: E402
from django_idempotency.ninja import idempotent_operation  # noqa: E402

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


class Bearer(HttpBearer):
    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        user = User.objects.filter(username=token).first()
        if user is not None:
            request.user = user
        return user


class TextBearer(HttpBearer):
    """As most projects write it first: what it returns is no row of a model."""

    def authenticate(self, request: HttpRequest, token: str) -> str:
        return token


class Declined(Exception):
    pass


class OrderIn(Schema):
    name: str
    amount: int = 1


class OrderOut(Schema):
    id: int
    name: str


api = NinjaAPI(auth=Bearer(), urls_namespace="tests-ninja")
router = Router()
leased = idempotent_operation(mode="leased")


@api.exception_handler(Declined)
def explain(request: HttpRequest, error: Declined) -> HttpResponse:
    return api.create_response(request, {"declined": str(error)}, status=402)


@api.post("/orders", response={201: OrderOut})
@idempotent_operation(mode="atomic")
def create(request: HttpRequest, order: OrderIn) -> Any:
    Ran.again()
    group = Group.objects.create(name=order.name)
    return Status(201, {"id": group.pk, "name": group.name, "secret": "not in the schema"})


@api.post("/leased")
@leased
def pay(request: HttpRequest, order: OrderIn) -> Any:
    return {"ran": Ran.again()}


@api.post("/marked")
@idempotent_operation(mode="leased", profile=Profile(name="marking", mark_first=True))
def mark(request: HttpRequest) -> dict[str, int]:
    return {"ran": Ran.again()}


def fail(error: Exception) -> Any:
    Group.objects.create(name=f"written {Ran.again()}")
    raise error


@api.post("/refused")
@idempotent_operation(mode="atomic")
def refuse(request: HttpRequest) -> Any:
    fail(HttpError(409, "No."))


@api.post("/declined")
@idempotent_operation(mode="atomic", refusals=(Declined,))
def decline(request: HttpRequest) -> Any:
    fail(Declined("Card."))


@api.post("/lost")
@leased
def lose(request: HttpRequest) -> Any:
    fail(RuntimeError("The provider's answer was lost."))


@api.post("/refused-after-a-call")
@leased
def refuse_after_a_call(request: Any) -> Any:
    request.idempotency.derive("charge")
    fail(HttpError(404, "No such customer."))


@api.post("/not-executed")
@leased
def not_executed(request: HttpRequest) -> Any:
    fail(NotExecuted("The provider was not reached."))


@api.post("/alost")
@leased
async def alose(request: HttpRequest) -> Any:
    Ran.again()
    raise RuntimeError("The provider's answer was lost.")


@api.post("/optional")
@idempotent_operation(mode="atomic", required=False)
def optional(request: HttpRequest) -> Any:
    return {"ran": Ran.again()}


@router.post("/routed")
@leased
def routed(request: HttpRequest) -> Any:
    return {"ran": Ran.again()}


api.add_router("/one", router)
api.add_router("/two", router, url_name_prefix="two")


@api.post("/text", auth=TextBearer())
@idempotent_operation(operation="text", mode="leased")
def text(request: HttpRequest) -> dict[str, int]:
    return {"run": Ran.again()}


urlpatterns = [path("api/", api.urls)]


def post(client: Any, where: str, data: Any = None, key: str | None = KEY) -> Any:
    headers = {"Authorization": "Bearer ada"} | ({} if key is None else {"Idempotency-Key": key})
    body = {"name": "lamp"} if data is None else data
    return client.post(f"/api{where}", body, content_type="application/json", headers=headers)


@pytest.fixture
def client(db: None) -> Client:
    User.objects.create(username="ada")
    return Client(raise_request_exception=False)


def test_a_repeat_gets_what_ninja_rendered_of_the_first(client: Client) -> None:
    first, second = post(client, "/orders"), post(client, "/orders")
    assert (first.status_code, set(first.json())) == (201, {"id", "name"})
    assert (second.status_code, second.content, second["Content-Type"]) == (201, first.content, first["Content-Type"])
    assert (second["Idempotency-Replayed"], Ran.count, Group.objects.count()) == ("true", 1, 1)


@pytest.mark.parametrize("where", ["/one/routed", "/two/routed"])
def test_an_operation_of_a_router_runs_once(client: Client, where: str) -> None:
    answers = [post(client, where) for _ in range(2)]
    assert [each.json() for each in answers] == [{"ran": 1}, {"ran": 1}]
    assert IdempotencyKey.objects.get().status == "completed"


def test_a_first_response_says_that_it_is_no_replay(client: Client) -> None:
    assert [post(client, "/marked")["Idempotency-Replayed"] for _ in range(2)] == ["false", "true"]


def test_a_browser_gets_json_too_as_of_every_operation(client: Client) -> None:
    told = client.post("/api/leased", headers={"Authorization": "Bearer ada", "Accept": "text/html"})
    assert (told.status_code, told["Content-Type"]) == (400, "application/problem+json")


@pytest.mark.parametrize(("where", "status"), [("/refused", 409), ("/declined", 402), ("/orders", 422)])
def test_an_error_response_is_kept_and_its_writes_are_not(client: Client, where: str, status: int) -> None:
    data = {"amount": 1} if where == "/orders" else None  # it lacks the name
    first, second = post(client, where, data), post(client, where, data)
    assert (first.status_code, second.status_code, second.content) == (status, status, first.content)
    assert (second["Idempotency-Replayed"], Group.objects.count()) == ("true", 0)
    assert Ran.count == (0 if where == "/orders" else 1)


@pytest.mark.parametrize("where", ["/lost", "/alost"])
@pytest.mark.parametrize("debug", [False, True])
def test_an_unexpected_error_leaves_the_outcome_unknown(client: Client, settings: Any, where: str, debug: bool) -> None:
    settings.DEBUG = debug  # ninja makes a response of it then
    first, second = post(client, where), post(client, where)
    assert first.status_code == 500
    assert (second.status_code, second.json()["code"]) == (409, "idempotency_outcome_unknown")
    assert (Ran.count, Group.objects.count()) == (1, 0)


def test_an_error_response_after_a_call_is_not_final(client: Client) -> None:
    first, second = post(client, "/refused-after-a-call"), post(client, "/refused-after-a-call")
    assert [each.json()["code"] for each in (first, second)] == ["idempotency_outcome_unknown"] * 2
    assert (Ran.count, Group.objects.count()) == (1, 0)


@pytest.mark.parametrize("debug", [False, True])
def test_a_proof_that_nothing_happened_frees_the_key(client: Client, settings: Any, debug: bool) -> None:
    settings.DEBUG = debug
    answers = [post(client, "/not-executed") for _ in range(2)]
    assert [each.json()["code"] for each in answers] == ["idempotency_not_executed"] * 2
    assert Ran.count == 2


def test_without_a_key_an_optional_operation_runs_each_time(client: Client) -> None:
    assert [post(client, "/optional", key=None).json() for _ in range(2)] == [{"ran": 1}, {"ran": 2}]
    assert not IdempotencyKey.objects.exists()


def test_the_inventory_of_endpoints_knows_the_operations() -> None:
    found = {each.route: [policy.given["mode"] for policy in each.around] for each in project_endpoints()}
    assert found["api/orders"] == ["atomic"]
    assert found["api/two/routed"] == ["leased"]


def test_the_decorator_in_a_wrong_place_says_so() -> None:
    def nothing(run: Any) -> Any:
        return lambda request, **values: run(request, **values)

    other = NinjaAPI(urls_namespace="misplaced")
    with pytest.raises(Misplaced, match="directly below"):

        @other.post("/orders")
        @leased
        @decorate_view(nothing)
        def create(request: HttpRequest) -> None: ...


def test_a_transaction_around_the_api_is_refused_and_nothing_runs(client: Client) -> None:
    with atomic_requests():
        assert post(client, "/leased").status_code == 500
    assert Ran.count == 0
    assert not IdempotencyKey.objects.exists()


def test_the_schema_of_the_api_is_as_before() -> None:
    assert set(api.get_openapi_schema()["paths"]["/api/orders"]["post"]["responses"]) == {201}


def test_a_credential_that_names_nobody_is_refused_with_what_to_do(
    client: Any, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.DEBUG = True
    refused = client.post("/api/text", headers={"Authorization": "Bearer s3cret", "Idempotency-Key": KEY})
    assert (refused.status_code, Ran.count) == (403, 0)
    (logged,) = [record.getMessage() for record in caplog.records if "'text'" in record.getMessage()]
    for each in (logged, refused.json()["detail"]):
        assert "request.auth is a str" in each
        assert "`scope` function" in each
        assert "s3cret" not in each
