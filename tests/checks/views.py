"""Views that are protected well, badly and not at all."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import include
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import action, api_view
from rest_framework.generics import CreateAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_idempotency.decorators import exempt, idempotent
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Ran, bare_wrapper


@idempotent
def protected(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class PlainMethod(View):
    @idempotent
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class DecoratedMethod(View):
    @method_decorator(idempotent)
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


@method_decorator(idempotent, name="dispatch")
class Dispatched(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class Hand(APIView):
    @idempotent
    def post(self, request: Request) -> Response:
        return Response()


class Bare(APIView):
    def post(self, request: Request) -> Response:
        Ran.again()
        return Response()


class Exempt(APIView):
    @exempt
    def post(self, request: Request) -> Response:
        return Response()


class Readable(APIView):
    def get(self, request: Request) -> Response:
        return Response()


@method_decorator(idempotent, name="dispatch")
class RestDispatched(IdempotentMixin, APIView):
    permission_classes = []

    def post(self, request: Request) -> Response:
        Ran.again()
        return Response()


class Mixed(IdempotentMixin, APIView):
    def post(self, request: Request) -> Response:
        return Response()


class Helper(IdempotentMixin, CreateAPIView[Any]):
    @idempotent
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return Response()


class Hidden(IdempotentMixin, APIView):
    @bare_wrapper
    @idempotent
    def post(self, request: Request) -> Response:
        return Response()


@idempotent
@api_view(["POST"])
def above(request: Request) -> Response:
    return Response()


@api_view(["POST"])
@idempotent
def below(request: Request) -> Response:
    return Response()


@api_view(["POST", "PATCH"])
def function(request: Request) -> Response:
    return Response()


class TwoActions(IdempotentMixin, ViewSet):
    idempotency = {"operation": "things.write"}

    def create(self, request: Request) -> Response:
        return Response()

    @action(detail=False, methods=["post"])
    def archive(self, request: Request) -> Response:
        return Response()


class OneAction(IdempotentMixin, ViewSet):
    idempotency = {"operation": "things.create"}

    def create(self, request: Request) -> Response:
        return Response()

    @idempotent(operation="things.archive")
    @action(detail=False, methods=["post"])
    def archive(self, request: Request) -> Response:
        return Response()


@idempotent(mode="atomic")
async def asynchronous(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@method_decorator(idempotent(mode="atomic"), name="dispatch")
class AsyncDispatched(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class AsyncMethod(View):
    @idempotent(mode="atomic")
    async def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


@idempotent
async def async_leased(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def named(operation: str) -> Any:
    return idempotent(operation=operation)(bare_wrapper(protected))


def leased(**policy: Any) -> Any:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    return idempotent(**policy)(view)


def routed(view_set: Any) -> Any:
    router = SimpleRouter()
    router.register("things", view_set, basename="things")
    return include(router.urls)
