"""A receipt and an operation's address let in whom the endpoint would let in, and show what a retry would be shown."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import include, path
from rest_framework.authentication import SessionAuthentication, TokenAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.decorators import api_view, authentication_classes, permission_classes
from rest_framework.permissions import BasePermission
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import KEY, Person, Ran, careful_wrapper

ninja = pytest.importorskip("ninja", reason="NOT TESTED: django-ninja is not installed")

from ninja.security import SessionAuth  # noqa: E402 - only if it is installed
from ninja.throttling import BaseThrottle as NinjaThrottle  # noqa: E402

from django_idempotency.ninja import idempotent_operation  # noqa: E402

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

MEMBERS = {"acme": {"alice", "carol"}}
THROTTLED: list[str] = []
SECRET = "the body of acme"


def account_of(request: HttpRequest) -> str:
    return request.headers.get("X-Account", "")


def is_member(request: Any) -> bool:
    return request.user.get_username() in MEMBERS.get(account_of(request), ())


class IsMember(BasePermission):
    def has_permission(self, request: Any, view: Any) -> bool:
        assert request.method == "POST", "what may be asked of a safe method is no answer"
        return is_member(request)


class Throttle(BaseThrottle):
    def allow_request(self, request: Any, view: Any) -> bool:
        return request.user.get_username() not in THROTTLED

    def wait(self) -> float:
        return 7.0


class Pay(IdempotentMixin, APIView):
    authentication_classes = (TokenAuthentication, SessionAuthentication)
    permission_classes = (IsMember,)
    throttle_classes = (Throttle,)
    idempotency = {"mode": "atomic", "scope": account_of}

    def post(self, request: Any, **kwargs: Any) -> Response:
        Ran.again()
        return Response({"secret": SECRET}, status=201)


class PayEverywhere(Pay):
    idempotency = {"mode": "atomic"}


class PaySet(IdempotentMixin, ViewSet):
    authentication_classes = (SessionAuthentication,)
    permission_classes = (IsMember,)
    idempotency = {"mode": "atomic", "scope": account_of}

    def create(self, request: Any) -> Response:
        assert self.action == "create"
        return Response({"secret": SECRET}, status=201)


class OwnDispatch(Pay):
    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_member(request):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)


class OpenedDispatch(OwnDispatch):
    idempotency = {"mode": "atomic", "scope": account_of, "receipts": True}


class ClosedPay(Pay):
    idempotency = {"mode": "atomic", "scope": account_of, "receipts": False}


@idempotent(mode="atomic", scope=account_of)
@api_view(["POST"])
@authentication_classes([SessionAuthentication])
@permission_classes([IsMember])
def pay_above(request: Any) -> Response:
    return Response({"secret": SECRET}, status=201)


@api_view(["POST"])
@authentication_classes([SessionAuthentication])
@permission_classes([IsMember])
@idempotent(mode="atomic", scope=account_of)
def pay_below(request: Any) -> Response:
    return Response({"secret": SECRET}, status=201)


def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse(SECRET, status=201)


def authorized(request: HttpRequest, record: Any) -> bool:
    return is_member(request)


class Members(SessionAuth):
    def authenticate(self, request: HttpRequest, key: str | None) -> Any:
        return request.user if is_member(request) else None


class Slow(NinjaThrottle):
    def allow_request(self, request: Any) -> bool:
        return request.user.get_username() not in THROTTLED

    def wait(self) -> float:
        return 7.0


api = ninja.NinjaAPI(auth=Members(), throttle=[Slow()], urls_namespace="second-door")


@api.post("/pay", response={201: dict})  # type: ignore[untyped-decorator]
@idempotent_operation(mode="atomic", scope=account_of)
def ninja_pay(request: HttpRequest) -> Any:
    return ninja.Status(201, {"secret": SECRET})


@api.post("/apay", response={201: dict})  # type: ignore[untyped-decorator]
@idempotent_operation(mode="leased", scope=account_of)
async def ninja_apay(request: HttpRequest) -> Any:
    return ninja.Status(201, {"secret": SECRET})


router = SimpleRouter()
router.register("set", PaySet, basename="set")
by_account = idempotent(mode="atomic", scope=account_of)

urlpatterns = [
    path("rest", Pay.as_view(), name="rest"),
    path("rest/<slug:order>", Pay.as_view(), name="rest-order"),
    path("everywhere", PayEverywhere.as_view(), name="everywhere"),
    path("above", pay_above),
    path("below", pay_below),
    path("", include(router.urls)),
    path("ninja/", api.urls),
    path("authorized", idempotent(mode="atomic", scope=account_of, authorize=authorized)(plain)),
    path("opened", idempotent(mode="atomic", scope=account_of, receipts=True)(plain)),
    path("opened-dispatch", OpenedDispatch.as_view(), name="opened-dispatch"),
    path("plain", by_account(plain)),
    path("decorated", permission_required("auth.add_user", raise_exception=True)(by_account(plain))),
    path("wrapped", careful_wrapper(Pay.as_view()), name="wrapped"),
    path("dispatch", OwnDispatch.as_view(), name="dispatch"),
    path("closed", ClosedPay.as_view(), name="closed"),
    path("unprotected", plain),
    path("idempotency/", include("django_idempotency.urls")),
]

# what a stranger's POST gets, and where the endpoint can say so the receipt
ASKED = {
    "/rest": 403,
    "/rest/7": 403,
    "/everywhere": 403,
    "/above": 403,
    "/below": 403,
    "/set/": 403,
    "/ninja/pay": 401,
    "/ninja/apay": 401,
    "/authorized": 403,
    "/opened-dispatch": 403,
}
NOT_ASKED = ["/plain", "/decorated", "/wrapped", "/dispatch", "/closed"]
ACME = {"X-Account": "acme"}


def receipt(person: Person, where: str, key: str = KEY, account: str = "acme", **headers: str) -> Any:
    known = {"Idempotency-Key": key, "X-Account": account, **headers}
    return person.client.get("/idempotency/keys/", {"path": where}, headers=known)


def address(person: Person, account: str = "acme", **headers: str) -> Any:
    record = IdempotencyKey.objects.get()
    return person.client.get(f"/idempotency/operations/{record.id}/", headers={"X-Account": account, **headers})


@pytest.fixture(autouse=True)
def _nobody_is_throttled() -> Any:
    yield
    THROTTLED.clear()
    MEMBERS["acme"] = {"alice", "carol"}


@pytest.mark.parametrize("where", ASKED)
def test_a_member_gets_the_outcome_and_a_stranger_nothing(alice: Person, anonymous: Person, where: str) -> None:
    assert alice.post(where, headers=ACME).status_code == 201
    for told in (receipt(alice, where), address(alice)):
        assert told.status_code == 200, told.content
        assert SECRET in told.json()["response"]["body"]
    bob = Person("bob")
    unknown = bob.client.get("/idempotency/operations/8e03978e-40d5-43dd-bc93-6894a57f9324/")
    for stranger in (bob, anonymous):
        told, there = receipt(stranger, where), address(stranger)
        assert told.status_code in (401, 403, 404)
        assert SECRET.encode() not in told.content + there.content
        if where != "/authorized":  # there the scope alone would let them in
            assert (there.status_code, there.content) == (404, unknown.content)
    assert receipt(bob, where).status_code == ASKED[where]
    assert IdempotencyKey.objects.count() == 1


@pytest.mark.parametrize("where", ASKED)
def test_a_permission_that_was_withdrawn_is_missed_there_too(alice: Person, where: str) -> None:
    alice.post(where, headers=ACME)
    MEMBERS["acme"].discard("alice")
    refused, told, there = alice.post(where, headers=ACME), receipt(alice, where), address(alice)
    assert refused.status_code == told.status_code == ASKED[where]
    assert there.status_code in (403, 404)
    assert SECRET.encode() not in refused.content + told.content + there.content


@pytest.mark.parametrize("where", NOT_ASKED)
def test_an_endpoint_that_cannot_be_asked_shows_nothing(alice: Person, where: str) -> None:
    alice.user.user_permissions.add(*[each for each in _permissions() if each.codename == "add_user"])  # type: ignore[union-attr]
    assert alice.post(where, headers=ACME).status_code == 201
    assert (receipt(alice, where).status_code, address(alice).status_code) == (404, 404)


def _permissions() -> Any:
    from django.contrib.auth.models import Permission

    return Permission.objects.all()


def test_a_plain_view_that_opted_in_is_asked_for_its_scope_alone(alice: Person) -> None:
    alice.post("/opened", headers=ACME)
    assert (receipt(alice, "/opened").status_code, address(alice).status_code) == (200, 200)
    other = {"account": "globex"}
    assert (receipt(alice, "/opened", **other).status_code, address(alice, **other).status_code) == (404, 404)


@pytest.mark.parametrize("where", ["/unprotected", "/nowhere", "", "/idempotency/keys/", "/opened?x=1#y", "//rest"])
def test_what_protects_nothing_or_has_no_such_key_is_not_found(alice: Person, where: str) -> None:
    assert receipt(alice, where).status_code == 404


@pytest.mark.parametrize("where", ["/rest", "/ninja/pay", "/ninja/apay"])
def test_a_throttled_caller_has_to_wait(alice: Person, where: str) -> None:
    alice.post(where, headers=ACME)
    THROTTLED.extend(("alice", "carol"))
    for told in (receipt(alice, where), address(alice)):
        assert (told.status_code, told["Retry-After"], told.content) == (429, "7", b"")
    MEMBERS["globex"] = {"carol"}
    assert address(Person("carol"), account="globex").status_code == 404, "not even that there is a record"


def test_the_two_tenants_of_one_caller_are_kept_apart(alice: Person) -> None:
    MEMBERS["globex"] = {"alice"}
    alice.post("/rest", headers=ACME)
    for told in (receipt(alice, "/rest", account="globex"), address(alice, account="globex")):
        assert told.status_code == 404


@pytest.mark.parametrize("where", ["/everywhere", "/rest"])
def test_a_token_is_asked_as_the_endpoint_asks_it(anonymous: Person, where: str, settings: Any) -> None:
    """Also where the project's `SCOPE` tells whose keys they are."""
    if where == "/everywhere":
        settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "SCOPE": account_of}
    tokens = {
        name: {"Authorization": f"Token {Token.objects.create(user=User.objects.create(username=name)).key}"}
        for name in ("carol", "mallory")
    }
    assert anonymous.post(where, headers={**ACME, **tokens["carol"]}).status_code == 201
    assert receipt(anonymous, where, **tokens["carol"]).status_code == 200
    assert address(anonymous, **tokens["carol"]).status_code == 200
    assert receipt(anonymous, where, **tokens["mallory"]).status_code == 403
    assert receipt(anonymous, where, Authorization="Token wrong").status_code == 401
    for stranger in (tokens["mallory"], {"Authorization": "Token wrong"}, {}):
        assert address(anonymous, **stranger).status_code == 404


def test_another_path_or_method_of_the_same_keys_tells_nothing(alice: Person) -> None:
    """The endpoint there may ask for other permissions."""
    alice.post("/rest/7", headers=ACME)
    assert receipt(alice, "/rest/8").status_code == 404
    assert receipt(alice, "/rest/7").status_code == 200
    IdempotencyKey.objects.update(request_method="PATCH")
    assert receipt(alice, "/rest/7").status_code == 404


def test_a_session_needs_no_csrf_token_to_ask(alice: Person) -> None:
    alice.post("/rest", headers=ACME)
    session, alice.client = alice.client.cookies, Client(enforce_csrf_checks=True)
    alice.client.cookies = session
    assert alice.post("/rest", headers=ACME).status_code == 403
    assert (receipt(alice, "/rest").status_code, address(alice).status_code) == (200, 200)


def test_nothing_is_computed_for_a_caller_whom_the_endpoint_does_not_know(
    anonymous: Person, django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scopes: list[Any] = []
    monkeypatch.setattr("django_idempotency.http.views.scope_of_request", lambda *given: scopes.append(given))
    with django_assert_num_queries(0):
        assert receipt(anonymous, "/rest").status_code == 401
        assert receipt(anonymous, "/nowhere").status_code == 404
    assert scopes == []


@pytest.mark.parametrize("where", ["/rest", "/set/", "/ninja/pay", "/ninja/apay", "/authorized"])
def test_an_asgi_server_asks_the_same(alice: Person, where: str) -> None:
    alice.post(where, headers=ACME)
    for name, statuses in (("alice", [200, 200]), ("bob", [ASKED[where], 403 if where == "/authorized" else 404])):
        client = AsyncClient()
        client.force_login(User.objects.get_or_create(username=name)[0])
        told = async_to_sync(client.get)(
            "/idempotency/keys/", {"path": where}, headers={"Idempotency-Key": KEY, "X-Account": "acme"}
        )
        there = async_to_sync(client.get)(f"/idempotency/operations/{IdempotencyKey.objects.get().id}/", headers=ACME)
        assert [told.status_code, there.status_code] == statuses
