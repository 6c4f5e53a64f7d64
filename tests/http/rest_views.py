"""Django REST framework's views in every shape that can be protected, and their URLs."""

from typing import Any

from django.contrib.auth.models import Group, User
from django.http import Http404
from django.urls import include, path
from rest_framework import generics, serializers
from rest_framework.authentication import SessionAuthentication, TokenAuthentication
from rest_framework.decorators import action, api_view, authentication_classes, permission_classes
from rest_framework.exceptions import APIException
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ModelViewSet

from django_idempotency.decorators import exempt, idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Ran


def write(name: str = "written") -> Response:
    """A domain write, and an answer that no second run could give."""
    Group.objects.create(name=f"{name} {Ran.again()}")
    return Response({"run": Ran.count}, 201, headers={"Location": "/things/1"})


def given(request: Request) -> Any:
    """The parsed body, whatever it is."""
    return request.data


class Authenticated(APIView):
    authentication_classes = [SessionAuthentication, TokenAuthentication]
    permission_classes: Any = [IsAuthenticated]


class Thing(IdempotentMixin, Authenticated):
    def post(self, request: Request) -> Response:
        return write()

    def get(self, request: Request) -> Response:
        return Response({"active": request.idempotency.active})  # type: ignore[attr-defined]

    def put(self, request: Request) -> Response:
        return write()


class Optional(Thing):
    idempotency = {"required": False}


class GroupSerializer(serializers.ModelSerializer[Group]):
    class Meta:
        model = Group
        fields = ["id", "name"]


class Groups(IdempotentMixin, generics.ListCreateAPIView[Group], Authenticated):
    idempotency = {"operation": "groups.create"}
    queryset = Group.objects.order_by("pk")
    serializer_class = GroupSerializer

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        Ran.again()
        return super().create(request, *args, **kwargs)


class GroupViewSet(IdempotentMixin, ModelViewSet[Group], Authenticated):
    queryset = Group.objects.order_by("pk")
    serializer_class = GroupSerializer

    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        Ran.again()
        return super().create(request, *args, **kwargs)

    @idempotent(mode="atomic", operation="groups.rename")
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        Ran.again()
        return super().partial_update(request, *args, **kwargs)

    @idempotent(mode="atomic")
    @action(detail=True, methods=["post"])
    def above(self, request: Request, pk: str) -> Response:
        return write()

    @action(detail=True, methods=["post"])
    @idempotent(mode="atomic")
    def below(self, request: Request, pk: str) -> Response:
        return write()

    @exempt
    @action(detail=False, methods=["post"])
    def left_alone(self, request: Request) -> Response:
        return write()


class Chosen(IdempotentMixin, Authenticated):
    """Only what is decorated."""

    idempotency = None

    @idempotent
    def post(self, request: Request) -> Response:
        return write()

    def patch(self, request: Request) -> Response:
        return write()


class Refused(APIException):
    status_code = 418


class Failing(IdempotentMixin, Authenticated):
    """Writes, then raises what it is told to."""

    kinds: dict[str, type[Exception]] = {
        "refusal": Refused,
        "missing": Http404,
        "nothing": NotExecuted,
        "crash": RuntimeError,
        "server": APIException,
    }

    def post(self, request: Request) -> Response:
        Ran.again()
        User.objects.create(username=f"written {Ran.count}")
        raise self.kinds[given(request)["raise"]]("planned")

    put = post


class FailingAtomic(Failing):
    idempotency = {"mode": "atomic"}


class FailingStored(Failing):
    idempotency = {"on_error": "store"}


class Unprotected(Failing):
    idempotency = None


class Allowed(BasePermission):
    """May be withdrawn between two requests."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        return request.user.groups.filter(name="allowed").exists()


class Permitted(Thing):
    permission_classes = [IsAuthenticated, Allowed]


class Rarely(SimpleRateThrottle):
    rate = "1/day"

    def get_cache_key(self, request: Request, view: APIView) -> str:
        return f"rarely-{request.user.pk}"


class Throttled(Thing):
    throttle_classes = [Rarely]


class OverSession(Thing):
    """Demands a CSRF token, as a browser's session does."""

    authentication_classes = [SessionAuthentication]


@idempotent(operation="api view above")
@api_view(["POST", "PATCH"])
@authentication_classes([SessionAuthentication])
@permission_classes([IsAuthenticated])
def above(request: Request) -> Response:
    return write()


@api_view(["POST"])
@authentication_classes([SessionAuthentication])
@permission_classes([IsAuthenticated])
@idempotent(operation="api view below")
def below(request: Request) -> Response:
    return write()


@api_view(["POST"])
@idempotent(mode="atomic")
@authentication_classes([SessionAuthentication])
@permission_classes([IsAuthenticated])
def below_atomic(request: Request, number: str) -> Response:
    return write()


@api_view(["POST"])
@authentication_classes([SessionAuthentication])
@idempotent(required=False)
def below_optional(request: Request) -> Response:
    return Response({"active": request.idempotency.active})  # type: ignore[attr-defined]


class HandWritten(Authenticated):
    @idempotent
    def post(self, request: Request) -> Response:
        return write()


router = SimpleRouter()
router.register("groups", GroupViewSet)

urlpatterns = [
    path("thing", Thing.as_view(), name="thing"),
    path("optional", Optional.as_view(), name="optional"),
    path("generic", Groups.as_view(), name="generic"),
    path("chosen", Chosen.as_view(), name="chosen"),
    path("failing", Failing.as_view(), name="failing"),
    path("failing-atomic", FailingAtomic.as_view(), name="failing-atomic"),
    path("failing-stored", FailingStored.as_view(), name="failing-stored"),
    path("unprotected", Unprotected.as_view(), name="unprotected"),
    path("permitted", Permitted.as_view(), name="permitted"),
    path("throttled", Throttled.as_view(), name="throttled"),
    path("over-session", OverSession.as_view(), name="over-session"),
    path("api-view/above", above, name="above"),
    path("api-view/below", below, name="below"),
    path("api-view/below/<str:number>", below_atomic, name="below-atomic"),
    path("api-view/below-optional", below_optional, name="below-optional"),
    path("hand-written", HandWritten.as_view(), name="hand-written"),
    path("", include(router.urls)),
]
