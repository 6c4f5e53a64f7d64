"""The recipe for GraphQL, as the guide shows it: mutations run once, and errors are not replayed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import path

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from tests.kit.http import KEY, Person, Ran

strawberry = pytest.importorskip("strawberry", reason="NOT TESTED: strawberry-graphql is not installed")

from strawberry.django.views import GraphQLView  # noqa: E402 - only if it is installed
from strawberry.file_uploads import Upload  # noqa: E402
from strawberry.types import Info  # noqa: E402

from tests.kit.graphql_guide import OPTIONS, SHOWN  # noqa: E402

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


@strawberry.type
class Mutation:
    @strawberry.mutation  # type: ignore[untyped-decorator]
    def create(self, name: str) -> int:
        Group.objects.create(name=name)
        return Ran.again()

    @strawberry.mutation  # type: ignore[untyped-decorator]
    def fail(self, name: str) -> int:
        Group.objects.create(name=name)
        Ran.again()
        raise ValueError("The card was declined.")

    @strawberry.mutation  # type: ignore[untyped-decorator]
    def upload(self, file: Upload) -> int:
        return Ran.again()

    @strawberry.mutation  # type: ignore[untyped-decorator]
    def lose(self, info: Info) -> int:
        info.context.request.idempotency.derive("charge")
        Ran.again()
        raise ValueError("The provider's answer was lost.")


schema = strawberry.Schema(SHOWN["Query"], Mutation)


def graphql(mode: str) -> Any:
    view = GraphQLView.as_view(schema=schema, multipart_uploads_enabled=True)
    return idempotent(operation=mode, mode=mode, **OPTIONS)(view)


urlpatterns = [path("atomic", graphql("atomic")), path("leased", graphql("leased")), path("shown", SHOWN["graphql"])]


def send(person: Person, where: str, query: str, **more: Any) -> Any:
    return person.post(where, {"query": query}, **more)


@pytest.mark.parametrize("where", ["/atomic", "/leased"])
def test_a_mutation_runs_once(alice: Person, where: str) -> None:
    answers = [send(alice, where, 'mutation { create(name: "a") }') for _ in range(2)]
    assert [each.json() for each in answers] == [{"data": {"create": 1}}] * 2
    assert (answers[1]["Idempotency-Replayed"], Group.objects.count()) == ("true", 1)
    assert send(alice, where, 'mutation { create(name: "b") }').status_code == 422
    assert send(alice, where, 'mutation { create(name: "c") }', key=None).status_code == 400


@pytest.mark.parametrize("where", ["/atomic", "/leased"])
def test_an_error_is_rolled_back_and_not_replayed(alice: Person, where: str) -> None:
    answers = [send(alice, where, 'mutation { fail(name: "a") }') for _ in range(2)]
    for answer in answers:
        assert (answer.status_code, "Idempotency-Replayed" in answer) == (200, False)
        assert answer.json()["errors"][0]["message"] == "The card was declined."
    assert (Ran.count, Group.objects.count()) == (2, 0)


def test_an_error_after_an_external_call_leaves_the_outcome_unknown(alice: Person) -> None:
    answers = [send(alice, "/leased", "mutation { lose }") for _ in range(2)]
    assert [each.json()["code"] for each in answers] == ["idempotency_outcome_unknown"] * 2
    assert Ran.count == 1


@pytest.mark.parametrize("query", ["{ groups }", "query { groups }"])
def test_what_changes_nothing_needs_no_key(alice: Person, query: str) -> None:
    assert send(alice, "/atomic", query, key=None).status_code in (200, 400)
    assert not IdempotencyKey.objects.exists()


def test_several_operations_in_one_request_need_a_key(alice: Person) -> None:
    body = json.dumps([{"query": 'mutation { create(name: "a") }'}])
    refused = alice.send("/atomic", body, "application/json", key=None)
    assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_key_missing")


def test_an_upload_runs_once(alice: Person, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 5000  # without its files
    query = "mutation($file: Upload!) { upload(file: $file) }"

    def upload(**headers: str) -> Any:
        operations = json.dumps({"query": query, "variables": {"file": None}})
        form = {"operations": operations, "map": '{"0": ["variables.file"]}', "0": SimpleUploadedFile("a", b"x" * 9000)}
        return alice.client.post("/atomic", form, headers=headers)

    assert (upload().json().get("code"), Ran.count) == ("idempotency_key_missing", 0)
    answers = [upload(**{"Idempotency-Key": KEY}).json() for _ in range(2)]
    assert answers == [{"data": {"upload": 1}}] * 2


@pytest.mark.parametrize(
    "body", ['{"documentId": "create"}', '{"extensions": {"persistedQuery": {}}}', "not JSON", "{}"]
)
def test_what_may_change_something_needs_a_key(alice: Person, body: str) -> None:
    """A server may know the document by its name."""
    for sent in (body, json.dumps({"query": "not GraphQL {"})):
        refused = alice.send("/atomic", sent, "application/json", key=None)
        assert (refused.status_code, refused.json()["code"]) == (400, "idempotency_key_missing")


def test_the_view_of_the_guide_works(alice: Person) -> None:
    answers = [send(alice, "/shown", 'mutation { createGroup(name: "a") }').json() for _ in range(2)]
    assert answers[0] == answers[1] == {"data": {"createGroup": Group.objects.get().pk}}
