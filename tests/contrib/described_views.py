"""Views of Django REST framework with every kind of policy, for their OpenAPI document."""

from typing import Any

from django.contrib.auth.models import Group
from django.http import HttpResponse
from django.urls import include, path
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import action, api_view, authentication_classes
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.viewsets import GenericViewSet

from django_idempotency import STRIPE, KeyRule, Profile
from django_idempotency.decorators import exempt, idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.key_sources import json_field
from django_idempotency.rest_framework import IdempotentMixin, IdempotentRequest
from tests.kit.exports import export

HOUSE = Profile(
    name="house",
    header="X-Request-Key",
    replayed_header="X-Replayed",
    mark_first=True,
    strict=True,
    mismatch=409,
    documentation="https://example.com/retries",
)
OWN_CODES = Profile(
    name="own codes", codes={"idempotency_key_in_progress": "E409-17", "idempotency_key_accepted": "E202-1"}
)
OWN_JSON = Profile(name="own json", reshape=lambda problem: {"error": problem["code"]})


class OrderSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    code = serializers.ChoiceField(choices=["book", "bicycle"], required=False)


class ConflictSerializer(serializers.Serializer[Any]):
    because = serializers.CharField()


class Orders(GenericAPIView[Any]):
    authentication_classes = [SessionAuthentication]
    permission_classes: Any = []
    serializer_class = OrderSerializer


class Plain(IdempotentMixin, Orders):
    """Take an order. What goes wrong is said by its name."""

    idempotency: Any = {"mode": "leased"}

    def post(self, request: Request) -> Response:
        sent: Any = request.data
        failures = {"nothing": NotExecuted(), "unknown": RuntimeError("planned")}
        if sent["name"] in failures:
            raise failures[sent["name"]]
        return Response({"name": "done"}, 201)

    def get(self, request: Request) -> Response:
        return Response({"name": "done"})


class OptionalKey(Plain):
    idempotency = {"required": False, "mode": "atomic"}


class KeyInBody(Plain):
    idempotency = {"mode": "atomic", "key_source": json_field("key")}


class Gone(Plain):
    idempotency = {"expiry": "soft", "after_expiry": "gone", "retention": None, "scope": "session"}


class OfTenant(Plain):
    idempotency = {"scope": lambda request: "shop", "tenant": lambda request: "acme"}


class House(Plain):
    idempotency = {"profile": HOUSE, "key": KeyRule(min_length=16, max_length=64)}


class ShortKeys(Plain):
    idempotency = {"key": KeyRule(max_length=12)}


class Stripe(Plain):
    idempotency = {"profile": STRIPE}


class OwnJson(Plain):
    idempotency = {"profile": OWN_JSON}


class Deferring(Plain):
    idempotency = {"transaction": "late", "on_lost_lease": "restart"}

    def post(self, request: IdempotentRequest) -> HttpResponse:  # type: ignore[override]
        return request.idempotency.defer(export, title="may")


class OwnCodes(Deferring):
    idempotency = {**Deferring.idempotency, "profile": OWN_CODES}


class Fetching(Plain):
    def post(self, request: Request) -> Response:
        return Response({"name": [group.pk for group in Group.objects.defer("name")]}, 201)


class Hidden(Plain):
    @extend_schema(exclude=True)
    def post(self, request: Request) -> Response:
        return super().post(request)


class LoudSchema(AutoSchema):
    def get_summary(self) -> str:
        return f"LOUD {type(self.view).__name__}"


class Loud(Plain):
    http_method_names = ["post"]
    schema: Any = LoudSchema()  # one for each of its subclasses


class Louder(Loud):
    pass


class Described(Loud):
    @extend_schema(
        parameters=[OpenApiParameter("IDEMPOTENCY-KEY", location=OpenApiParameter.HEADER, description="ours")],
        responses={
            201: OrderSerializer,
            400: ConflictSerializer,
            (409, "application/problem+json"): ConflictSerializer,
        },
        extensions={"x-idempotency": "ours"},
    )
    def post(self, request: Request) -> Response:
        return super().post(request)


class Things(IdempotentMixin, GenericViewSet[Any], Orders):
    queryset = Group.objects.none()
    idempotency = {"retention": None}

    def list(self, request: Request) -> Response:
        return Response([])

    def create(self, request: Request) -> Response:
        return Response(status=201)

    @idempotent(mode="atomic", methods={"DELETE"})
    def destroy(self, request: Request, pk: str) -> Response:
        return Response(status=204)

    @idempotent(mode="atomic")
    @action(detail=True, methods=["post"])
    def close(self, request: Request, pk: str) -> Response:
        return Response(status=204)

    @exempt
    @action(detail=False, methods=["post"])
    def search(self, request: Request) -> Response:
        return Response([])


@extend_schema(request=OrderSerializer, responses=OrderSerializer)
@idempotent(mode="atomic")
@api_view(["POST"])
@authentication_classes([SessionAuthentication])
def above(request: Request) -> Response:
    return Response(status=201)


@extend_schema(request=OrderSerializer, responses=OrderSerializer)
@api_view(["POST"])
@authentication_classes([SessionAuthentication])
@idempotent(mode="atomic")
def below(request: Request) -> Response:
    return Response(status=201)


@extend_schema(request=OrderSerializer, responses=OrderSerializer)
@api_view(["POST"])
@authentication_classes([SessionAuthentication])
def unprotected(request: Request) -> Response:
    return Response(status=201)


router = SimpleRouter()
router.register("things", Things, basename="things")
urlpatterns = [
    path("plain", Plain.as_view(), name="plain"),
    path("route", Plain.as_view(idempotency={"mode": "atomic"}), name="route"),
    path("optional-key", OptionalKey.as_view(), name="optional-key"),
    path("key-in-body", KeyInBody.as_view(), name="key-in-body"),
    path("gone", Gone.as_view(), name="gone"),
    path("of-tenant", OfTenant.as_view(), name="of-tenant"),
    path("house", House.as_view(), name="house"),
    path("short-keys", ShortKeys.as_view(), name="short-keys"),
    path("stripe", Stripe.as_view(), name="stripe"),
    path("own-json", OwnJson.as_view(), name="own-json"),
    path("own-codes", OwnCodes.as_view(), name="own-codes"),
    path("deferring", Deferring.as_view(), name="deferring"),
    path("fetching", Fetching.as_view(), name="fetching"),
    path("hidden", Hidden.as_view(), name="hidden"),
    path("described", Described.as_view(), name="described"),
    path("loud", Loud.as_view(), name="loud"),
    path("louder", Louder.as_view(), name="louder"),
    path("above", above, name="above"),
    path("below", below, name="below"),
    path("unprotected", unprotected, name="unprotected"),
    path("", include(router.urls)),
    path("idempotency/", include("django_idempotency.urls")),
    path("idempotency/rules/", include("django_idempotency.rules_urls")),
]
