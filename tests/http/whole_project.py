"""A project with every kind of view. Most of them say nothing of idempotency, and some decide for themselves."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from django.views import View
from django.views.decorators.http import require_POST, require_safe
from ninja import NinjaAPI, Router, Schema, Status
from ninja.security import HttpBearer
from rest_framework import serializers
from rest_framework.authentication import BaseAuthentication
from rest_framework.authtoken.views import obtain_auth_token
from rest_framework.decorators import (
    action,
    api_view,
    authentication_classes,
    permission_classes,
    throttle_classes,
)
from rest_framework.generics import CreateAPIView
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import DefaultRouter
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import ModelViewSet

from django_idempotency.decorators import exempt, idempotent
from django_idempotency.ninja import idempotent_operation
from django_idempotency.protection import protect_all
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Ran


class Gate:
    """What the project lets through, whatever the framework."""

    permitted = True
    has_room = True


def answer(request: HttpRequest, **kwargs: Any) -> JsonResponse:
    return JsonResponse({"run": Ran.again()}, status=201)


# Django REST framework


class Bearer(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, str] | None:
        name = request.headers.get("Authorization", "").removeprefix("Bearer ")
        user = User.objects.filter(username=name).first()
        return None if user is None else (user, name)

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class Permitted(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return request.user.is_authenticated and Gate.permitted


class Throttle(BaseThrottle):
    def allow_request(self, request: Request, view: Any) -> bool:
        return Gate.has_room


class Checked(APIView):
    authentication_classes = [Bearer]
    permission_classes = [Permitted]
    throttle_classes = [Throttle]


class Payments(Checked):
    """What a payment is."""

    def get(self, request: Request) -> Response:
        return Response()

    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again()}, status=201)


class ReadOnly(Checked):
    def get(self, request: Request) -> Response:
        return Response()


class GroupSerializer(serializers.ModelSerializer[Group]):
    class Meta:
        model = Group
        fields = ["id", "name"]


class NewGroup(Checked, CreateAPIView[Group]):
    queryset = Group.objects.all()
    serializer_class = GroupSerializer


class Groups(Checked, ModelViewSet[Group]):
    queryset = Group.objects.all()
    serializer_class = GroupSerializer

    @action(detail=True, methods=["post"])
    def close(self, request: Request, pk: str) -> Response:
        return Response({"run": Ran.again()})

    @exempt
    @action(detail=False, methods=["post"])
    def search(self, request: Request) -> Response:
        return Response({"run": Ran.again()})

    @idempotent(operation="groups.own", mode="leased")
    @action(detail=True, methods=["post"])
    def own(self, request: Request, pk: str) -> Response:
        return Response({"run": Ran.again()})


class Own(IdempotentMixin, Payments):
    idempotency = {"operation": "payments.own", "mode": "leased"}


@api_view(["GET", "POST"])
@authentication_classes([Bearer])
@permission_classes([Permitted])
@throttle_classes([Throttle])
def function(request: Request) -> Response:
    """What the function does."""
    return Response({"run": Ran.again()}, status=201)


@api_view(["POST"])
@permission_classes([])
@exempt
def exempt_function(request: Request) -> Response:
    return Response({"run": Ran.again()})


router = DefaultRouter()
router.register("groups", Groups)

# Plain views


@require_POST
def plain(request: HttpRequest) -> HttpResponse:
    return answer(request)


def any_method(request: HttpRequest) -> HttpResponse:
    return answer(request)


@require_safe
def report(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@require_POST
async def later(request: HttpRequest) -> HttpResponse:
    return answer(request)


@exempt
@require_POST
def hook(request: HttpRequest) -> HttpResponse:
    return answer(request)


@require_POST
@idempotent(operation="plain.own", mode="leased")
def decorated(request: HttpRequest) -> HttpResponse:
    return answer(request)


class Plain(View):
    """One method is exempt, and the others decide nothing."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)

    def put(self, request: HttpRequest) -> HttpResponse:
        return answer(request)

    @exempt
    def patch(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


# django-ninja


class NinjaBearer(HttpBearer):
    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        user = User.objects.filter(username=token).first() if Gate.permitted else None
        if user is not None:
            request.user = user
        return user


class OrderIn(Schema):
    name: str = ""


api = NinjaAPI(auth=NinjaBearer(), urls_namespace="whole-project")
orders = Router()


@api.get("/orders")
def list_orders(request: HttpRequest) -> Any:
    return []


@api.post("/orders", response={201: dict[str, int]})
def create_order(request: HttpRequest, order: OrderIn) -> Any:
    return Status(201, {"run": Ran.again()})


@exempt
@api.patch("/orders")
def change_orders(request: HttpRequest) -> Any:
    return {"run": Ran.again()}


@api.post("/own")
@idempotent_operation(operation="ninja.own", mode="leased")
def own_order(request: HttpRequest) -> Any:
    return {"run": Ran.again()}


@orders.post("/later")
async def order_later(request: HttpRequest) -> Any:
    return {"run": Ran.again()}


api.add_router("/routed", orders)

shop = ([path("plain/", plain, name="plain"), path("again/", plain, name="plain")], "shop")
routes: list[Any] = [
    path("admin/", admin.site.urls),
    path("token/", obtain_auth_token),
    path("rest/", include(router.urls)),
    path("rest/payments/", Payments.as_view(), name="payments"),
    path("rest/read-only/", ReadOnly.as_view(), name="read-only"),
    path("rest/new-group/", NewGroup.as_view(), name="new-group"),
    path("rest/own/", Own.as_view(), name="own"),
    path("rest/function/", function, name="function"),
    path("rest/exempt/", exempt_function, name="exempt-function"),
    path("shop/", include(shop)),
    path("any/", any_method, name="any"),
    path("report/", report, name="report"),
    path("later/", later, name="later"),
    path("hook/", hook, name="hook"),
    path("decorated/", decorated, name="decorated"),
    path("class/", Plain.as_view(), name="class"),
    path("api/", api.urls),
]
urlpatterns = protect_all(routes, mode="leased", retention=None)
