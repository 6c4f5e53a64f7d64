"""Views that drf-spectacular describes, with both decorators in either order."""

from collections.abc import Callable
from typing import Any, TypeVar

from django.urls import include, path
from drf_spectacular.utils import extend_schema
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import action, api_view, authentication_classes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.viewsets import GenericViewSet

from django_idempotency.decorators import idempotent
from django_idempotency.rest_framework import IdempotentMixin
from tests.http.rest_views import Authenticated, GroupSerializer, write

F = TypeVar("F", bound=Callable[..., Any])


def described(name: str) -> Callable[[F], F]:
    return extend_schema(operation_id=name, request=GroupSerializer, responses={201: GroupSerializer})


class Things(IdempotentMixin, GenericViewSet[Any], Authenticated):
    idempotency = None
    serializer_class = GroupSerializer

    @idempotent
    @described("method_idempotent_first")
    def create(self, request: Request) -> Response:
        return write()

    @idempotent
    @described("action_idempotent_first")
    @action(detail=False, methods=["post"])
    def first(self, request: Request) -> Response:
        return write()

    @described("action_schema_first")
    @idempotent
    @action(detail=False, methods=["post"])
    def second(self, request: Request) -> Response:
        return write()

    @described("action_last")
    @action(detail=False, methods=["post"])
    @idempotent
    def third(self, request: Request) -> Response:
        return write()


@idempotent
@described("view_idempotent_first")
@api_view(["POST"])
@authentication_classes([SessionAuthentication])
def view_first(request: Request) -> Response:
    return write()


@described("view_schema_first")
@idempotent
@api_view(["POST"])
@authentication_classes([SessionAuthentication])
def view_second(request: Request) -> Response:
    return write()


@described("view_below")
@api_view(["POST"])
@idempotent
@authentication_classes([SessionAuthentication])
def view_below(request: Request) -> Response:
    return write()


router = SimpleRouter()
router.register("things", Things, basename="things")
urlpatterns = [
    path("view/first", view_first, name="view-first"),
    path("view/second", view_second, name="view-second"),
    path("view/below", view_below, name="view-below"),
    path("", include(router.urls)),
]
