"""The same view in every framework of `frameworks`: it derives a downstream key, is noted, and waits at the gate."""

import asyncio
import json
from typing import Any
from uuid import uuid4

import strawberry
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from ninja import NinjaAPI, Schema
from ninja.security import django_auth
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import action, api_view, authentication_classes, permission_classes
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet
from strawberry.django.views import GraphQLView
from strawberry.types import Info

from django_idempotency.decorators import idempotent
from django_idempotency.ninja import idempotent_operation
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.graphql_guide import OPTIONS, SHOWN
from tests.kit.journal import Journal

LATE: dict[str, Any] = {"mode": "leased", "transaction": "late"}


def place(request: Any, name: str, fail: bool) -> dict[str, str]:
    journal = Journal(settings.VAR)
    request.idempotency.derive("charge")  # as before a call to an external service
    journal.note(name)
    journal.pass_gate()
    if fail:
        raise RuntimeError("The provider's answer was lost.")
    return {"order": str(uuid4())}


def respond(request: HttpRequest) -> HttpResponse:
    return JsonResponse(place(request, **json.loads(request.body)))


def rest_respond(request: Request) -> Response:
    order: Any = request.data
    return Response(place(request, **order))


async def arespond(request: HttpRequest) -> HttpResponse:
    return await asyncio.to_thread(respond, request)


@method_decorator(idempotent(**LATE), name="dispatch")
class Class(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return respond(request)


@method_decorator(idempotent(mode="leased"), name="dispatch")
class AsyncClass(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        return await arespond(request)


class Mixin(IdempotentMixin, APIView):
    authentication_classes = [SessionAuthentication]
    permission_classes = [IsAuthenticated]
    idempotency = LATE

    def post(self, request: Request) -> Response:
        return rest_respond(request)


class Orders(IdempotentMixin, ViewSet):
    authentication_classes = [SessionAuthentication]
    permission_classes = [IsAuthenticated]
    idempotency = LATE

    @action(detail=False, methods=["post"])
    def order(self, request: Request) -> Response:
        return rest_respond(request)


@idempotent(**LATE)
@api_view(["POST"])
@authentication_classes([SessionAuthentication])
@permission_classes([IsAuthenticated])
def rest_function(request: Request) -> Response:
    return rest_respond(request)


class Order(Schema):
    name: str
    fail: bool


ninja = NinjaAPI(auth=django_auth, urls_namespace="frameworks")


@ninja.post("/sync")
@idempotent_operation(**LATE)
def operation(request: HttpRequest, order: Order) -> Any:
    return place(request, **order.dict())


@ninja.post("/async")
@idempotent_operation(mode="leased")
async def async_operation(request: HttpRequest, order: Order) -> Any:
    return await asyncio.to_thread(place, request, **order.dict())


@strawberry.type
class Mutation:
    @strawberry.mutation
    def order(self, info: Info, name: str, fail: bool) -> str:
        return place(info.context.request, name, fail)["order"]


graphql = GraphQLView.as_view(schema=strawberry.Schema(SHOWN["Query"], Mutation))
router = SimpleRouter()
router.register("viewset", Orders, basename="orders")

urlpatterns = [
    path("function", idempotent(**LATE)(respond)),
    path("class", Class.as_view()),
    path("async-function", idempotent(mode="leased")(arespond)),
    path("async-class", AsyncClass.as_view()),
    path("rest/mixin", Mixin.as_view()),
    path("rest/", include(router.urls)),
    path("rest/api-view", rest_function),
    path("ninja/", ninja.urls),
    path("graphql", idempotent(operation="graphql", **OPTIONS, **LATE)(graphql)),
    path("middleware/async", arespond),
    path("middleware/sync", respond),
]
