"""Object permissions have to be asked on a replay, and `authorize="object"` needs a view that can ask."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views import View
from rest_framework.decorators import action
from rest_framework.generics import ListCreateAPIView, RetrieveUpdateAPIView
from rest_framework.permissions import AllowAny, BasePermission, DjangoObjectPermissions, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ModelViewSet

from django_idempotency.decorators import exempt, idempotent
from django_idempotency.rest_framework import IdempotentMixin
from tests.checks.messages import LAYER, ids, said
from tests.checks.views import above, below


class Owner(BasePermission):
    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        return True


class Heir(Owner):
    pass


class Wallets(IdempotentMixin, ModelViewSet[Group]):
    queryset = Group.objects.all()
    permission_classes: Any = [IsAuthenticated, Owner]

    @action(detail=True, methods=["post"])
    def pay(self, request: Request, pk: str) -> Response:
        return Response()

    @action(detail=False, methods=["post"], permission_classes=[AllowAny])
    def search(self, request: Request) -> Response:
        return Response()


class Mine(IdempotentMixin, APIView):
    permission_classes = [Owner]

    def post(self, request: Request) -> Response:
        self.check_object_permissions(request, request.user)
        return Response()


class Settings(IdempotentMixin, RetrieveUpdateAPIView[Group]):
    permission_classes = [Owner]

    def get_object(self) -> Any:
        return self.request.user


class Everything(IdempotentMixin, ListCreateAPIView[Group]):
    permission_classes = [Owner]


class WithoutObject(IdempotentMixin, APIView):
    idempotency = {"authorize": "object"}

    def post(self, request: Request) -> Response:
        return Response()


class PlainClass(View):
    def get_object(self) -> None:
        """Django's views have this method too."""

    @idempotent(authorize="object")
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


@idempotent(authorize="object")
def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def messages(settings: Any, *views: Any, **view_sets: Any) -> list[Any]:
    router = SimpleRouter()
    for name, view_set in view_sets.items():
        router.register(name, view_set, basename=name)
    patterns = [path(f"{number}", getattr(view, "as_view", lambda: view)()) for number, view in enumerate(views)]  # noqa: B023
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [*patterns, path("", include(router.urls)), LAYER]})
    settings.IDEMPOTENCY = {"MODE": "leased"}
    return said()


def varied(base: Any, **attributes: Any) -> Any:
    return type("Varied", (base,), attributes)


def test_w039_routes_with_an_object(settings: Any) -> None:
    found = messages(settings, wallets=Wallets)
    assert ids(found) == ["W039"] * 2
    assert "(?P<pk>[^/.]+)/$: Owner has object permissions, and a retry of partial_update" in found[0].msg
    assert "(?P<pk>[^/.]+)/pay/$: Owner" in found[1].msg


@pytest.mark.parametrize("view", [Mine, Settings])
def test_w039_an_object_that_the_view_finds_without_the_url(settings: Any, view: Any) -> None:
    assert ids(messages(settings, view)) == ["W039"]


def test_w039_names_a_method_once(settings: Any) -> None:
    class Both(Mine):
        patch = Mine.post

    class Whole(Wallets):
        @action(detail=False, methods=["post", "patch"])
        def touch(self, request: Request) -> Response:
            self.check_object_permissions(request, request.user)
            return Response()

    (found,) = messages(settings, Whole.as_view({"post": "touch", "patch": "touch"}))
    assert "a retry of touch gets" in found.msg
    (found,) = messages(settings, Both)
    assert "a retry of patch or post gets" in found.msg


@pytest.mark.parametrize("permission", [Heir, DjangoObjectPermissions, IsAuthenticated & Owner, ~(AllowAny | Owner)])
def test_w039_inherited_and_combined_permissions(settings: Any, permission: Any) -> None:
    assert ids(messages(settings, varied(Mine, permission_classes=[permission]))) == ["W039"]


@pytest.mark.parametrize("permission", [IsAuthenticated, IsAuthenticated | ~AllowAny])
def test_w039_permissions_without_an_object(settings: Any, permission: Any) -> None:
    given = {"permission_classes": [permission]}
    assert messages(settings, varied(Mine, **given), wallets=varied(Wallets, **given)) == []


@pytest.mark.parametrize("authorize", ["object", lambda request, record: True])
def test_w039_whoever_asks_is_left_alone(settings: Any, authorize: Any) -> None:
    asking = {"idempotency": {"authorize": authorize}}
    view = varied(Mine, get_object=lambda self: None, **asking)
    assert messages(settings, view, Everything, wallets=varied(Wallets, **asking)) == []


def test_w039_what_is_not_protected_is_left_alone(settings: Any) -> None:
    def pay(self: Any, request: Request, pk: str) -> Response:
        return Response()

    of_action = {"pay": idempotent(authorize="object")(action(detail=True, methods=["post"])(pay)), "idempotency": None}
    left_out = {"pay": exempt(action(detail=True, methods=["post"])(pay)), "idempotency": {"methods": ["POST"]}}
    assert messages(settings, above, below, some=varied(Wallets, **of_action)) == []
    assert messages(settings, none=varied(Wallets, **left_out)) == []


def test_e038_nothing_to_ask(settings: Any) -> None:
    found = messages(settings, WithoutObject, PlainClass, plain)
    assert ids(found) == ["E038"] * 3
