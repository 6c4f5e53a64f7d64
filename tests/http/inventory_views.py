"""Routes of every kind that a project has: protected, exempt, unprotected, and some that need no protection."""

from functools import partial
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import include, path, re_path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from rest_framework.decorators import action, api_view, permission_classes
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import DefaultRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_idempotency.decorators import exempt, idempotent
from django_idempotency.rest_framework import IdempotentMixin


def legacy(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def search(request: HttpRequest, kind: str = "") -> HttpResponse:
    return HttpResponse()


@idempotent(operation="orders.pay", mode="leased", transaction="late")
def pay(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@exempt
@require_POST
def hook(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@require_http_methods(["PATCH", "DELETE"])
@idempotent(mode="atomic", retention=None)
def change(request: HttpRequest, pk: str) -> HttpResponse:
    return HttpResponse()


@require_safe
async def feed(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Plain(View):
    @idempotent(mode="atomic")
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    def patch(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    @exempt
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


@method_decorator(idempotent(mode="atomic"), name="dispatch")
class Dispatched(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    def put(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class Bare(APIView):
    authentication_classes = ()
    permission_classes = ()

    def post(self, request: Request) -> Response:
        return Response()


class Off(IdempotentMixin, Bare):
    idempotency = None


class On(IdempotentMixin, Bare):
    idempotency = {"mode": "atomic"}

    @exempt
    def patch(self, request: Request) -> Response:
        return Response()


@idempotent(mode="atomic")
@api_view(["POST", "GET"])
@permission_classes([])
def above(request: Request) -> Response:
    return Response()


@api_view(["POST"])
@permission_classes([])
@idempotent(mode="atomic")
def below(request: Request) -> Response:
    return Response()


class Orders(IdempotentMixin, ViewSet):
    idempotency = {"mode": "atomic", "operation": "orders.write"}
    permission_classes = ()
    http_method_names = ["get", "post", "options"]

    def list(self, request: Request) -> Response:
        return Response()

    def create(self, request: Request) -> Response:
        return Response()

    def partial_update(self, request: Request, pk: str) -> Response:
        return Response()

    @idempotent(operation="orders.refund", mode="leased")
    @action(detail=True, methods=["post"])
    def refund(self, request: Request, pk: str) -> Response:
        return Response()


router = DefaultRouter()
router.include_root_view = False
router.register("orders", Orders, basename="order")

shop: list[Any] = [
    path("pay/", csrf_exempt(pay), name="pay"),
    path("change/<uuid:pk>/", csrf_exempt(change), name="change"),
    re_path(r"^search/(?P<kind>[a-z]+)?$", csrf_exempt(search), name="search"),
]
urlpatterns = [
    path("shop/", include((shop, "shop"))),
    path("admin/", admin.site.urls),
    path("idempotency/", include("django_idempotency.urls")),
    path("api/", include(router.urls)),
    path("legacy/", csrf_exempt(legacy)),
    path("partial/", csrf_exempt(partial(search, kind="x")), name="partial"),
    path("hook/", csrf_exempt(hook), name="hook"),
    path("feed/", feed, name="feed"),
    path("plain/", csrf_exempt(Plain.as_view()), name="plain"),
    path("dispatched/", csrf_exempt(Dispatched.as_view()), name="dispatched"),
    path("bare/", Bare.as_view(), name="bare"),
    path("off/", Off.as_view(), name="off"),
    path("on/", On.as_view(), name="on"),
    path("above/", above, name="above"),
    path("below/", below, name="below"),
]
