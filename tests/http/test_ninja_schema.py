"""The OpenAPI document of an API of django-ninja: what it says of protected operations, and that it is true."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import Client
from django.urls import path

from django_idempotency import KeyRule
from tests.kit.http import KEY
from tests.kit.openapi import Document, conforms

ninja = pytest.importorskip("ninja", reason="NOT TESTED: django-ninja is not installed")
validation = pytest.importorskip("drf_spectacular.validation", reason="NOT TESTED: drf-spectacular has the validator")

from ninja import NinjaAPI, Router, Schema, Status  # noqa: E402 - only if it is installed
from ninja.security import HttpBearer  # noqa: E402

from django_idempotency.exceptions import NotExecuted  # noqa: E402
from django_idempotency.ninja import DescribedAPI, idempotent_operation  # noqa: E402

pytestmark = pytest.mark.urls(__name__)

OWN_HEADER = {"in": "header", "name": "idempotency-key", "required": True, "schema": {"type": "string"}}


class Bearer(HttpBearer):
    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        return User.objects.filter(username=token).first()


class OrderIn(Schema):
    name: str


class OrderOut(Schema):
    id: int


class Conflict(Schema):
    because: str


class OwnDocument(DescribedAPI):
    """An API of the project that changes its document, too."""

    def get_openapi_schema(self, **options: Any) -> Any:
        document = super().get_openapi_schema(**options)
        document["info"]["x-own"] = True
        return document


api = OwnDocument(auth=Bearer(), urls_namespace="tests-ninja-schema")
router = Router()


@api.post("/orders", response={201: OrderOut})
@idempotent_operation(mode="leased", key=KeyRule(min_length=16))
def create(request: HttpRequest, order: OrderIn) -> Any:
    if order.name == "nothing":
        raise NotExecuted("The provider was not reached.")
    if order.name == "unknown":
        raise RuntimeError("The provider's answer was lost.")
    return Status(201, {"id": 1})


@api.post(
    "/own", response={200: OrderOut, 409: Conflict}, openapi_extra={"parameters": [OWN_HEADER], "x-idempotency": "own"}
)
@idempotent_operation(mode="leased")
def own(request: HttpRequest) -> Any: ...


@api.api_operation(["GET", "POST"], "/both")
@idempotent_operation(mode="leased", required=False)
async def both(request: HttpRequest) -> Any: ...


@api.post("/plain")
def plain(request: HttpRequest) -> Any: ...


@api.post("/deferring")
@idempotent_operation(mode="leased")
def defer(request: Any) -> Any:
    return request.idempotency.defer(print)


@router.post("/routed")
@idempotent_operation(mode="atomic")
def routed(request: HttpRequest) -> Any: ...


api.add_router("/one", router)
urlpatterns = [path("api/", api.urls)]


@pytest.fixture
def document() -> Document:
    document: Document = Client().get("/api/openapi.json").json()
    return document


def post(document: Document, where: str) -> Document:
    operation: Document = document["paths"][f"/api/{where}"]["post"]
    return operation


def headers(operation: Document) -> list[Document]:
    return [each for each in operation["parameters"] if each["in"] == "header"]


def test_it_is_valid(document: Document) -> None:
    validation.validate_schema(document)


def test_a_protected_operation_is_described(document: Document) -> None:
    operation = post(document, "orders")
    (header,) = headers(operation)
    assert (header["name"], header["required"], header["schema"]["minLength"]) == ("Idempotency-Key", True, 16)
    assert operation["responses"].keys() == {"201", "400", "403", "409", "422", "503"}
    assert "Idempotency-Replayed" in operation["responses"]["201"]["headers"]
    assert (operation["x-idempotency"]["mode"], operation["x-idempotency"]["retention_seconds"]) == ("leased", 86_400)
    assert post(document, "one/routed")["x-idempotency"]["mode"] == "atomic"


def test_a_409_is_of_one_of_three_types(document: Document) -> None:
    schema = post(document, "orders")["responses"]["409"]["content"]["application/problem+json"]["schema"]
    names = [each["$ref"].rpartition("/")[2] for each in schema["anyOf"]]
    assert names == ["IdempotencyKeyInProgress", "IdempotencyOutcomeUnknown", "IdempotencyResponseNotStored"]
    assert document["components"]["schemas"].keys() >= {*names, "OrderIn", "OrderOut"}


@pytest.mark.parametrize(("where", "method"), [("plain", "post"), ("both", "get")])
def test_what_is_not_protected_is_as_before(document: Document, where: str, method: str) -> None:
    operation = document["paths"][f"/api/{where}"][method]
    assert "x-idempotency" not in operation
    assert operation["responses"].keys() == {"200"}
    assert headers(operation) == []


def test_the_methods_of_the_policy_count(document: Document) -> None:
    (header,) = headers(post(document, "both"))
    assert header["required"] is False


def test_what_the_project_says_stays(document: Document) -> None:
    operation = post(document, "own")
    assert (headers(operation), operation["x-idempotency"]) == ([OWN_HEADER], "own")
    conflict = operation["responses"]["409"]
    assert (conflict["description"], list(conflict["content"])) == (
        "Conflict", ["application/json", "application/problem+json"]
    )  # fmt: skip
    assert document["info"]["x-own"] is True


def test_deferred_work_is_accepted(document: Document) -> None:
    assert post(document, "deferring")["responses"].keys() >= {"202", "408"}


def test_another_api_is_as_before() -> None:
    other = NinjaAPI(urls_namespace="tests-ninja-undescribed")
    other.post("/orders")(idempotent_operation(mode="leased")(plain))
    assert set(other.get_openapi_schema(path_prefix="")["paths"]["/orders"]["post"]["responses"]) == {200}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("code", "status", "requests"),
    [
        ("idempotency_key_missing", 400, [(None, "lamp")]),
        ("idempotency_key_invalid", 400, [("a, b", "lamp")]),
        ("idempotency_key_reused_with_different_payload", 422, [(KEY, "lamp"), (KEY, "desk")]),
        ("idempotency_outcome_unknown", 409, [(KEY, "unknown"), (KEY, "unknown")]),
        ("idempotency_not_executed", 503, [(KEY, "nothing")]),
    ],
)
def test_what_the_layer_answers_is_what_the_document_says(
    document: Document, code: str, status: int, requests: list[tuple[str | None, str]]
) -> None:
    User.objects.create(username="ada")
    client = Client(raise_request_exception=False)
    for key, name in requests:
        sent = {"Authorization": "Bearer ada"} | ({} if key is None else {"Idempotency-Key": key})
        answer: Any = client.post("/api/orders", {"name": name}, content_type="application/json", headers=sent)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    conforms(document, post(document, "orders"), answer)
