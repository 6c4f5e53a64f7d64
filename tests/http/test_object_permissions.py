"""`authorize="object"`: a replay is given to a caller who may still touch the object of its URL."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.test.utils import CaptureQueriesContext
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework import serializers
from rest_framework.authentication import SessionAuthentication, TokenAuthentication
from rest_framework.decorators import action, api_view, authentication_classes
from rest_framework.generics import DestroyAPIView
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ModelViewSet

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import perform
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.exports import MESSAGES, export
from tests.kit.http import KEY, Person, Ran, same_answer
from tests.kit.http import stored as shown
from tests.kit.operations import begin_anew

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

OBJECT: dict[str, Any] = {"authorize": "object"}


class IsMember(BasePermission):
    """A group belongs to its members."""

    def has_object_permission(self, request: Request, view: APIView, obj: Group) -> bool:
        return request.user in obj.user_set.all()


class GroupSerializer(serializers.ModelSerializer[Group]):
    class Meta:
        model = Group
        fields = ["id", "name"]


class Owned(APIView):
    authentication_classes = [SessionAuthentication]
    permission_classes: Any = [IsAuthenticated, IsMember]


class Purses(IdempotentMixin, ModelViewSet[Group], Owned):
    queryset = Group.objects.order_by("pk")
    serializer_class = GroupSerializer
    idempotency: Any = {**OBJECT, "methods": ["POST", "PATCH", "DELETE"]}

    def answer(self) -> Response:
        return Response({"secret": f"{self.get_object().name} {Ran.again()}"}, 201)


class Wallets(Purses):
    @action(detail=True, methods=["post"])
    def pay(self, request: Request, pk: str) -> Response:
        return self.answer()


class AtomicWallets(Wallets):
    idempotency = {**Purses.idempotency, "mode": "atomic"}


class LateWallets(Purses):
    idempotency = {**Purses.idempotency, "transaction": "late"}

    @action(detail=True, methods=["post"])
    def pay(self, request: Request, pk: str) -> Any:
        self.get_object()
        return request.idempotency.finish(self.answer)  # type: ignore[attr-defined]


class Overtaken(Purses):
    """Another attempt stores its response while this one runs, and the caller leaves the group."""

    idempotency = {**Purses.idempotency, "transaction": "late"}

    @action(detail=True, methods=["post"])
    def pay(self, request: Request, pk: str) -> Response:
        wallet = self.get_object()
        IdempotencyKey.objects.update(
            status="completed",
            attempt_token=uuid4(),
            locked_until=None,
            response_status=201,
            response_headers="[]",
            response_body=b"purse",
            response_schema_version=1,
            completed_at=Now(),
        )
        wallet.user_set.clear()
        return Response({"secret": wallet.name}, 201)


class Decorated(Purses):
    idempotency = None

    @action(detail=True, methods=["post"])
    @idempotent(**OBJECT)
    def pay(self, request: Request, pk: str) -> Response:
        return self.answer()


class DecoratedAtomic(Purses):
    idempotency = None

    @idempotent(mode="atomic", **OBJECT)
    @action(detail=True, methods=["post"])
    def pay(self, request: Request, pk: str) -> Response:
        return self.answer()


class Unasked(Wallets):
    idempotency = {}


class Filtered(Wallets):
    """Hides the objects of others, as most projects do."""

    permission_classes = [IsAuthenticated]

    def get_queryset(self) -> Any:
        return super().get_queryset().filter(user=self.request.user.pk)


class Locked(Wallets):
    queryset = Group.objects.select_for_update()


class Told(IdempotentMixin, DestroyAPIView[Group], Owned):
    """Tells what it has deleted."""

    queryset = Group.objects.all()
    idempotency = {**OBJECT, "methods": ["DELETE"]}

    def delete(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        group = self.get_object()
        name = group.name
        group.delete()
        return Response({"secret": name}, 200)


class Mine(IdempotentMixin, Owned):
    """Finds its object without the URL."""

    idempotency: Any = OBJECT

    def get_object(self) -> Group:
        group = Group.objects.get()
        self.check_object_permissions(self.request, group)
        return group

    def post(self, request: Request) -> Response:
        return Response({"secret": f"{self.get_object().name} {Ran.again()}"}, 201)


class Guest(Mine):
    authentication_classes = [TokenAuthentication]
    permission_classes: Any = [IsMember]
    idempotency = {**OBJECT, "share_anonymous": True}


class Broken(BasePermission):
    def has_object_permission(self, request: Request, view: APIView, obj: Group) -> bool:
        if Ran.count:
            raise RuntimeError("no answer")
        return True


class Failing(Mine):
    permission_classes: Any = [IsAuthenticated, Broken]


class Objectless(IdempotentMixin, Owned):
    idempotency = OBJECT

    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again()})


class Deferring(Purses):
    idempotency = {**OBJECT, "transaction": "late", "operation": "wallets.defer"}

    @action(detail=True, methods=["post"])
    def pay(self, request: Request, pk: str, padding: str = "") -> Any:
        self.get_object()
        return request._request.idempotency.defer(export, title="may")  # type: ignore[attr-defined]


class IsPaying(IsMember):
    """What this asks depends on the action and the method of the request that took the work."""

    def has_permission(self, request: Request, view: Any) -> bool:
        asked = (request.auth, view.action, request.method, request.path)
        return asked == (None, "pay", "POST", f"/paying/{view.kwargs['pk']}/pay/")


class Paying(Deferring):
    permission_classes = [IsAuthenticated, IsPaying]
    idempotency = {**Deferring.idempotency, "operation": "wallets.paying"}


@idempotent(**OBJECT)
def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"run {Ran.again()}")


@method_decorator(idempotent(**OBJECT), name="dispatch")
class PlainClass(View):
    def get_object(self) -> None:
        """A view of Django has this method too, and it asks for no permission."""

    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(f"run {Ran.again()}")


@idempotent(**OBJECT)
async def plain_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"run {Ran.again()}")


@idempotent(**OBJECT)
@api_view(["POST"])
@authentication_classes([SessionAuthentication])
def above(request: Request) -> Response:
    return Response({"run": Ran.again()})


@api_view(["POST"])
@authentication_classes([SessionAuthentication])
@idempotent(**OBJECT)
def below(request: Request) -> Response:
    return Response({"run": Ran.again()})


router = SimpleRouter()
for view_set in (
    *(Wallets, AtomicWallets, LateWallets, Decorated, DecoratedAtomic),
    *(Overtaken, Unasked, Filtered, Locked, Deferring, Paying),
):
    router.register(view_set.__name__.lower(), view_set, basename=view_set.__name__.lower())

urlpatterns = [
    path("", include(router.urls)),
    path("long/<str:padding>/<int:pk>", Deferring.as_view({"post": "pay"}), name="long"),
    path("told/<int:pk>", Told.as_view(), name="told"),
    path("mine", Mine.as_view(), name="mine"),
    path("guest", Guest.as_view(), name="guest"),
    path("failing", Failing.as_view(), name="failing"),
    path("objectless", Objectless.as_view(), name="objectless"),
    path("plain", plain, name="plain"),
    path("plain-class", PlainClass.as_view(), name="plain-class"),
    path("plain-async", plain_async, name="plain-async"),
    path("above", above, name="above"),
    path("below", below, name="below"),
    path("idempotency/", include("django_idempotency.urls")),
]

EVERYWHERE = pytest.mark.parametrize(
    "base", ["wallets", "atomicwallets", "latewallets", "decorated", "decoratedatomic"]
)


@pytest.fixture
def wallet(alice: Person) -> Group:
    made = Group.objects.create(name="purse")
    made.user_set.add(member(alice))
    return made


def member(person: Person) -> User:
    assert person.user is not None
    return person.user


def stored() -> list[Any]:
    return list(IdempotencyKey.objects.values())


@EVERYWHERE
def test_a_withdrawn_object_permission_refuses_the_replay(alice: Person, wallet: Group, base: str) -> None:
    def pay() -> Any:
        return alice.post(f"/{base}/{wallet.pk}/pay/")

    first = pay()
    before = stored()
    wallet.user_set.clear()
    refused = pay()
    assert (first.status_code, refused.status_code) == (201, 403)
    assert b"purse" not in refused.content
    assert "Idempotency-Replayed" not in refused
    assert refused.json() == {"detail": "You do not have permission to perform this action."}
    assert stored() == before
    wallet.user_set.add(member(alice))
    assert same_answer(first, pay())
    assert Ran.count == 1


@pytest.mark.parametrize("base", ["wallets", "atomicwallets"])
def test_a_generic_update_asks_as_well(alice: Person, wallet: Group, base: str) -> None:
    def rename() -> Any:
        return alice.post(f"/{base}/{wallet.pk}/", {"name": "bag"}, method="PATCH")

    first = rename()
    assert same_answer(first, rename())
    wallet.user_set.clear()
    assert (first.status_code, rename().status_code) == (200, 403)


@pytest.mark.parametrize("base", ["wallets", "atomicwallets"])
def test_a_route_without_an_object_has_nothing_to_ask(alice: Person, base: str) -> None:
    first, again = (alice.post(f"/{base}/", {"name": "new"}) for _ in range(2))
    assert first.status_code == 201
    assert same_answer(first, again)


def test_an_object_that_is_hidden_from_the_caller_hides_the_response(alice: Person, wallet: Group) -> None:
    first = alice.post(f"/filtered/{wallet.pk}/pay/")
    wallet.user_set.clear()
    hidden = alice.post(f"/filtered/{wallet.pk}/pay/")
    assert (first.status_code, hidden.status_code) == (201, 404)
    assert b"purse" not in hidden.content
    wallet.user_set.add(member(alice))
    assert same_answer(first, alice.post(f"/filtered/{wallet.pk}/pay/"))


@pytest.mark.parametrize("base", ["wallets", "atomicwallets", "filtered"])
def test_a_delete_whose_object_is_gone_gets_its_204_again(alice: Person, wallet: Group, base: str) -> None:
    first, again = (alice.post(f"/{base}/{wallet.pk}/", method="DELETE") for _ in range(2))
    assert first.status_code == 204
    assert same_answer(first, again)
    assert alice.post(f"/{base}/{wallet.pk}/", method="DELETE", key=KEY + "x").status_code == 404


def test_a_delete_that_told_something_tells_it_once(alice: Person, wallet: Group) -> None:
    first, again = (alice.post(f"/told/{wallet.pk}", method="DELETE") for _ in range(2))
    assert (first.status_code, first.json()) == (200, {"secret": "purse"})
    assert (again.status_code, b"purse" in again.content) == (404, False)


def test_a_view_may_find_its_object_itself(alice: Person, wallet: Group) -> None:
    first = alice.post("/mine")
    assert same_answer(first, alice.post("/mine"))
    wallet.user_set.clear()
    assert (first.status_code, alice.post("/mine").status_code) == (201, 403)


def test_a_caller_without_credentials_is_asked_for_some(anonymous: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    Group.objects.create(name="purse")
    monkeypatch.setattr(IsMember, "has_object_permission", lambda *_: Ran.count == 0)
    first, again = anonymous.post("/guest"), anonymous.post("/guest")
    assert (first.status_code, again.status_code, again["WWW-Authenticate"]) == (201, 401, "Token")


def test_a_permission_that_fails_gives_nothing_and_stores_nothing(alice: Person, wallet: Group) -> None:
    assert alice.post("/failing").status_code == 201
    before = stored()
    assert alice.post("/failing").status_code == 500
    assert stored() == before


def test_another_request_under_the_key_is_still_a_mismatch(alice: Person, wallet: Group) -> None:
    alice.post(f"/wallets/{wallet.pk}/pay/")
    wallet.user_set.clear()
    assert alice.post(f"/wallets/{wallet.pk}/pay/", {"another": "body"}).status_code == 422


@pytest.mark.django_db(transaction=True)
def test_an_attempt_that_was_overtaken_is_asked_like_a_retry(alice: Person, wallet: Group) -> None:
    refused = alice.post(f"/overtaken/{wallet.pk}/pay/")
    assert (refused.status_code, b"purse" in refused.content) == (403, False)
    record = IdempotencyKey.objects.get()
    assert (record.status, record.response_status, bytes(record.response_body or b"")) == ("completed", 201, b"purse")
    wallet.user_set.add(member(alice))
    assert alice.post(f"/overtaken/{wallet.pk}/pay/").content == b"purse"


@pytest.mark.django_db(transaction=True)
def test_an_object_may_be_locked(alice: Person, wallet: Group) -> None:
    first, again = (alice.post(f"/locked/{wallet.pk}/pay/") for _ in range(2))
    assert first.status_code == 201
    assert same_answer(first, again)


def test_a_first_request_asks_nothing_more(alice: Person, wallet: Group) -> None:
    def statements(base: str) -> int:
        with CaptureQueriesContext(connection) as sent:
            assert alice.post(f"/{base}/{wallet.pk}/pay/").status_code == 201
        return len(sent)

    assert statements("wallets") == statements("unasked")
    wallet.user_set.clear()
    assert alice.post(f"/unasked/{wallet.pk}/pay/").status_code == 201, "nothing asks"


@pytest.mark.parametrize("route", ["plain", "plain-class", "plain-async", "above", "below", "objectless"])
def test_a_view_without_an_object_is_refused_before_it_runs(alice: Person, route: str) -> None:
    alice.client.raise_request_exception = True
    with pytest.raises(Exception, match="authorize='object'"):
        alice.post(f"/{route}")
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)


# The status of deferred work


@pytest.fixture
def _operations(settings: Any) -> None:
    begin_anew(settings)


def accepted(alice: Person, wallet: Group, base: str) -> str:
    response = alice.post(f"/{base}/{wallet.pk}/pay/")
    assert response.status_code == 202, response.content
    return str(response["Location"])


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_operations")
@pytest.mark.parametrize("base", ["deferring", "paying"])
def test_the_status_view_asks_for_the_object_of_the_request(alice: Person, wallet: Group, base: str) -> None:
    address = accepted(alice, wallet, base)
    perform(MESSAGES[0])
    assert b'"title": "may"' in shown(alice.client.get(address)).content
    wallet.user_set.clear()
    refused, again = alice.client.get(address), alice.post(f"/{base}/{wallet.pk}/pay/")
    assert (refused.status_code, again.status_code) == (403, 403)
    assert b"may" not in refused.content


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_operations")
@pytest.mark.parametrize("spoil", ["object", "/elsewhere", "/plain", "/plain-class", "/objectless"])
def test_the_status_view_gives_nothing_if_it_cannot_ask(
    alice: Person, wallet: Group, settings: Any, spoil: str
) -> None:
    address = accepted(alice, wallet, "deferring")
    perform(MESSAGES[0])
    if spoil == "object":
        wallet.delete()
    else:
        IdempotencyKey.objects.update(request_path=spoil)
    refused = alice.client.get(address)
    assert (refused.status_code, b'"may"' in refused.content) == (404, False)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_operations")
def test_the_status_view_asks_for_no_other_object_where_the_path_was_cut(alice: Person) -> None:
    short = Group.objects.create(name="allowed")
    Group.objects.create(pk=short.pk * 10, name="withdrawn")
    for each in Group.objects.all():
        each.user_set.add(member(alice))
    start = f"/long/{'x' * (248 - len(str(short.pk)))}/"
    assert len(f"{start}{short.pk}") == 255
    assert "Location" not in alice.post(f"{start}{short.pk}0")
    perform(MESSAGES[0])
    Group.objects.get(name="withdrawn").user_set.clear()
    assert alice.client.get(f"/idempotency/operations/{IdempotencyKey.objects.get().pk}/").status_code == 404
