"""The OpenAPI document of protected views: what it says, that it is true, and that nothing of the project's is lost."""

import gc
import re
from typing import Any

import pytest
from drf_spectacular import generators
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import patched_settings
from drf_spectacular.validation import validate_schema

from django_idempotency.contrib.spectacular import ProtectedSchema, SchemaGenerator
from django_idempotency.core.keys import KeyRule, parse_key
from django_idempotency.core.problems import EXAMPLE_KEY
from django_idempotency.exceptions import InvalidKey
from tests.contrib import described_views
from tests.kit.http import KEY, Person
from tests.kit.openapi import Document, conforms


def document_of(generator: type[generators.SchemaGenerator] = SchemaGenerator) -> Document:
    made: Any = generator
    document: Document = made(patterns=described_views.urlpatterns).get_schema(request=None, public=True)
    return document


@pytest.fixture(scope="module")
def document() -> Document:
    return document_of()


def post(document: Document, path: str) -> Document:
    operation: Document = document["paths"][f"/{path}"]["post"]
    return operation


def header(operation: Document) -> Document | None:
    return next((each for each in operation.get("parameters", []) if each["in"] == "header"), None)


def resolve(document: Document, schema: Document) -> Document:
    """The schema with the components that it refers to."""
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Document = document["components"]["schemas"][name] if name else schema
    return found


def codes(document: Document, operation: Document, media_type: str = "application/problem+json") -> dict[str, set[str]]:
    """The codes of the problems that an operation can answer with, by status."""
    found: dict[str, set[str]] = {}
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            continue
        schema = response.get("content", {}).get(media_type, {}).get("schema", {})
        for one in schema.get("anyOf", [schema]):
            members = resolve(document, one).get("properties", {})
            members = members.get("error", {}).get("properties", members)
            code = resolve(document, members.get("code", {}))
            if "enum" in code:
                found.setdefault(status, set()).update(code["enum"])
    return found


# The document


@pytest.mark.parametrize("version", ["3.0.3", "3.1.1"])
def test_it_is_valid_and_nothing_is_warned_of(version: str, capsys: pytest.CaptureFixture[str]) -> None:
    with patched_settings({"OAS_VERSION": version}):
        validate_schema(document_of())  # type: ignore[no-untyped-call]
    assert capsys.readouterr().err == ""


PROTECTED = {
    "plain": "leased", "route": "atomic", "optional-key": "atomic", "above": "atomic", "below": "atomic",
    "things/": "leased", "things/{id}/close/": "atomic", "loud": "leased",
}  # fmt: skip


@pytest.mark.parametrize("path", PROTECTED)
def test_each_protected_endpoint_is_described(document: Document, path: str) -> None:
    operation = post(document, path)
    found = header(operation)
    assert found is not None
    assert (found["name"], found["example"]) == ("Idempotency-Key", EXAMPLE_KEY)
    assert operation["x-idempotency"]["mode"] == PROTECTED[path]


@pytest.mark.parametrize(
    ("path", "method"),
    [("/unprotected", "post"), ("/things/search/", "post"), ("/plain", "get"), ("/things/", "get")],
)
def test_no_other_endpoint_is(document: Document, path: str, method: str) -> None:
    operation = document["paths"][path][method]
    plain = document_of(generators.SchemaGenerator)["paths"][path][method]
    assert operation == plain


def test_the_methods_of_the_policy_count(document: Document) -> None:
    assert header(document["paths"]["/things/{id}/"]["delete"]) is not None


@pytest.mark.parametrize(("path", "required"), [("plain", True), ("optional-key", False)])
def test_a_key_is_required_or_not(document: Document, path: str, required: bool) -> None:
    operation = post(document, path)
    found = header(operation)
    assert found is not None
    assert found["required"] is required
    assert ("idempotency_key_missing" in codes(document, operation)["400"]) is required


@pytest.mark.parametrize(
    ("path", "lengths", "example"),
    [("plain", (1, 257), EXAMPLE_KEY), ("house", (18, 66), f'"{EXAMPLE_KEY}"'), ("short-keys", (1, 14), None)],
)
def test_the_rule_of_the_key_is_told(
    document: Document, path: str, lengths: tuple[int, int], example: str | None
) -> None:
    found = header(post(document, path))
    assert found is not None
    assert (found["schema"]["minLength"], found["schema"]["maxLength"]) == lengths
    assert found.get("example") == example


KEYS = [
    "k", "k" * 16, "k" * 64, "k" * 65, "k" * 255, "k" * 256, '"k"', f'"{"k" * 16}"', f'"{"k" * 255}"', f'"{"k" * 256}"',
    f'"{"k, " * 16}"', "k" * 15 + " k", "k" * 15 + ",k", "k" * 15 + ";k", "k" * 15 + '"', '"k', "", '""', "é" * 20,
    EXAMPLE_KEY, f'"{EXAMPLE_KEY}"', "!#$%&'()*+-./:<=>?@[]^_`{|}~", "\x7f" * 20,
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("path", "rule"),
    [("plain", KeyRule()), ("house", KeyRule(strict=True, min_length=16, max_length=64))],
)
def test_the_pattern_allows_what_the_rule_accepts(document: Document, path: str, rule: KeyRule, key: str) -> None:
    found = header(post(document, path))
    assert found is not None
    schema = found["schema"]
    allowed = re.search(schema["pattern"], key) and schema["minLength"] <= len(key) <= schema["maxLength"]
    try:
        accepted = bool(parse_key([key], rule))
    except InvalidKey:
        accepted = False
    assert bool(allowed) is accepted


COMMON = {
    "403": {"idempotency_principal_missing"},
    "409": {"idempotency_key_in_progress", "idempotency_outcome_unknown", "idempotency_response_not_stored"},
    "422": {"idempotency_key_reused_with_different_payload"},
    "503": {"idempotency_not_executed", "idempotency_store_unavailable"},
}
IETF = {"400": {"idempotency_key_missing", "idempotency_key_invalid"}, **COMMON}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("plain", IETF),
        ("optional-key", {**IETF, "400": {"idempotency_key_invalid"}}),
        ("gone", {**IETF, "410": {"idempotency_key_expired"}}),
        ("deferring", {**IETF, "408": {"idempotency_work_abandoned"}}),
        ("house", {**IETF, "409": COMMON["409"] | COMMON["422"], "422": None}),
    ],
)
def test_each_status_lists_its_codes(document: Document, path: str, expected: dict[str, set[str] | None]) -> None:
    operation = post(document, path)
    assert list(operation["responses"]) == sorted(operation["responses"])
    assert codes(document, operation) == {status: found for status, found in expected.items() if found}


def test_a_profile_names_its_headers(document: Document) -> None:
    operation = post(document, "house")
    found = header(operation)
    assert found is not None
    assert found["name"] == "X-Request-Key"
    responses = operation["responses"]
    assert responses["200"]["headers"].keys() == {"X-Replayed"}
    assert responses["200"]["headers"]["X-Replayed"]["schema"]["enum"] == ["false", "true"]
    assert responses["409"]["headers"].keys() == {"Retry-After", "Link"}
    assert responses["400"]["headers"].keys() == {"Link"}
    (link,) = post(document, "plain")["responses"]["400"]["headers"].values()
    assert "if there is a page" in link["description"]


def test_errors_of_the_framework_have_its_media_type(document: Document) -> None:
    responses = post(document, "plain")["responses"]
    for status in ("400", "403"):
        assert list(responses[status]["content"]) == ["application/problem+json", "application/json"]
    assert list(responses["409"]["content"]) == ["application/problem+json"]


def test_the_dialect_of_stripe_has_its_own_shape(document: Document) -> None:
    operation = post(document, "stripe")
    assert codes(document, operation, "application/json") == {
        "400": IETF["400"] | COMMON["422"],
        "403": COMMON["403"],
        "409": {"idempotency_key_in_use", "idempotency_outcome_unknown", "idempotency_response_not_stored"},
        "503": COMMON["503"],
    }
    assert operation["responses"]["200"]["headers"].keys() == {"Idempotent-Replayed"}


def test_codes_of_the_projects_own_are_those_that_clients_get(document: Document) -> None:
    assert codes(document, post(document, "own-codes"))["409"] == {
        "E409-17",
        "idempotency_outcome_unknown",
        "idempotency_response_not_stored",
    }
    assert "idempotency_key_in_progress" in codes(document, post(document, "plain"))["409"]
    schemas = document["components"]["schemas"]
    assert schemas["IdempotencyKeyInProgressE40917Code"]["enum"] == ["E409-17"]
    accepted = post(document, "own-codes")["responses"]["202"]["content"]["application/json"]["schema"]
    assert accepted == {"$ref": "#/components/schemas/IdempotencyKeyAcceptedE2021"}
    assert schemas["IdempotencyKeyAcceptedE2021Code"]["enum"] == ["E202-1"]


def test_json_of_the_projects_own_is_shown_by_examples(document: Document) -> None:
    content = post(document, "own-json")["responses"]["422"]["content"]["application/json"]
    (example,) = content["examples"].values()
    assert example["value"] == {"error": "idempotency_key_reused_with_different_payload"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("plain", ("One key for each authenticated caller and operation.", 86400, "run")),
        ("gone", ("One key for each browser session and operation.", None, "gone")),
        ("of-tenant", ("One key for each tenant, owner that the service determines and operation.", 86400, "run")),
    ],
)
def test_retention_and_scope_are_told(document: Document, path: str, expected: tuple[Any, ...]) -> None:
    found = post(document, path)["x-idempotency"]
    assert (found["scope"], found["retention_seconds"], found["after_expiry"]) == expected


def test_deferred_work_is_accepted_and_has_a_status(document: Document) -> None:
    accepted = post(document, "deferring")["responses"]["202"]
    assert accepted["headers"].keys() == {"Retry-After", "Location"}
    for other in ("plain", "fetching"):
        assert "202" not in post(document, other)["responses"]
    status = document["paths"]["/idempotency/operations/{ref}/"]["get"]
    assert codes(document, status) == {
        "404": {"idempotency_operation_not_found"},
        "408": {"idempotency_work_abandoned"},
        "409": {"idempotency_outcome_unknown", "idempotency_not_executed"},
        "410": {"idempotency_key_expired"},
        "503": {"idempotency_store_unavailable"},
    }
    assert status["responses"].keys() >= {"200", "202"}


def test_the_outcome_of_a_key_is_described_as_the_status_is(document: Document) -> None:
    status = document["paths"]["/idempotency/operations/{ref}/"]["get"]
    outcome = document["paths"]["/idempotency/keys/"]["get"]
    assert outcome["responses"] == status["responses"]
    assert outcome["description"] != status["description"]
    found = {each["name"]: (each["in"], each.get("required", False)) for each in outcome["parameters"]}
    assert found == {"path": ("query", True), "method": ("query", False), "Idempotency-Key": ("header", True)}


# What the project says itself


def test_what_extend_schema_says_stays(document: Document) -> None:
    operation = post(document, "described")
    (parameter,) = operation["parameters"]
    assert parameter["description"] == "ours"
    assert operation["x-idempotency"] == "ours"
    conflict = {"schema": {"$ref": "#/components/schemas/Conflict"}}
    responses = operation["responses"]
    assert responses["409"]["content"] == {"application/problem+json": conflict}
    assert list(responses["400"]["content"]) == ["application/json", "application/problem+json"]
    assert responses["400"]["content"]["application/json"] == conflict
    assert responses["201"]["headers"].keys() == {"Idempotency-Replayed"}


def test_an_endpoint_that_is_excluded_stays_so(document: Document) -> None:
    assert document["paths"]["/hidden"].keys() == {"get"}


@pytest.mark.parametrize("path", ["described", "loud", "louder"])
def test_a_view_keeps_a_schema_of_its_own(document: Document, path: str) -> None:
    assert post(document, path)["summary"] == f"LOUD {path.capitalize()}"


class Whispering(AutoSchema):
    def get_summary(self) -> str:
        return "whispered"


def test_a_project_keeps_a_schema_class_of_its_own(settings: Any) -> None:
    own = f"{__name__}.{Whispering.__name__}"
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "DEFAULT_SCHEMA_CLASS": own}
    found = post(document_of(), "plain")
    assert found["summary"] == "whispered"
    assert header(found) is not None


def test_paths_may_be_rewritten() -> None:
    with patched_settings({"SCHEMA_PATH_PREFIX": "/things", "SCHEMA_PATH_PREFIX_TRIM": True}):
        assert header(document_of()["paths"]["/{id}/close/"]["post"]) is not None


class Theirs(generators.SchemaGenerator):
    def get_schema(self, *args: Any, **kwargs: Any) -> Any:
        made: Any = super().get_schema(*args, **kwargs)  # type: ignore[no-untyped-call]
        return {**made, "x-theirs": True}


class Both(SchemaGenerator, Theirs):
    pass


def test_another_generator_can_be_mixed_in() -> None:
    found = document_of(Both)
    assert found["x-theirs"] is True
    assert header(post(found, "plain")) is not None


def test_no_name_in_the_projects_part_changes(document: Document) -> None:
    """`code` of an order is an enum with a name, which a second enum of that name in view would lengthen."""
    plain = document_of(generators.SchemaGenerator)
    for name, schema in plain["components"]["schemas"].items():
        assert document["components"]["schemas"][name] == schema
    assert "CodeEnum" in plain["components"]["schemas"]
    for path, methods in plain["paths"].items():
        for method, operation in methods.items():
            assert document["paths"][path][method]["operationId"] == operation["operationId"]


def test_a_description_is_the_projects_own(document: Document) -> None:
    assert post(document, "plain")["description"] == described_views.Plain.__doc__
    assert "description" not in post(document, "things/")


def shouting(result: Any, **kwargs: Any) -> Any:
    """A hook that changes what it gets, as those of projects do."""
    for schema in result["components"]["schemas"].values():
        for member in schema.get("properties", {}).values():
            member["title"] = "HEARD"
    responses = [
        response
        for methods in result["paths"].values()
        for operation in methods.values()
        for response in operation["responses"].values()
    ]
    for response in responses:
        for each in response.get("headers", {}).values():
            each["schema"]["title"] = each["description"] = "HEARD"
    return result


def test_a_hook_of_the_project_changes_one_document(document: Document) -> None:
    with patched_settings({"POSTPROCESSING_HOOKS": [f"{__name__}.{shouting.__name__}"]}):
        assert "HEARD" in str(document_of())
    with patched_settings({"POSTPROCESSING_HOOKS": []}):
        assert "HEARD" not in str(document_of())


def test_nothing_is_kept_of_a_document() -> None:
    document_of()
    gc.collect()
    assert not [found for found in gc.get_objects() if type(found) is ProtectedSchema]


# Whether it is true


@pytest.fixture
def alice(db: None) -> Person:
    return Person("alice")


ORDER = {"name": "lamp"}


@pytest.mark.urls(described_views.__name__)
@pytest.mark.parametrize(
    ("path", "code", "status", "requests"),
    [
        ("plain", "idempotency_key_missing", 400, [(None, ORDER)]),
        ("plain", "idempotency_key_invalid", 400, [("a, b", ORDER)]),
        ("plain", "idempotency_key_reused_with_different_payload", 422, [(KEY, ORDER), (KEY, {"name": "desk"})]),
        ("plain", "idempotency_outcome_unknown", 409, [(KEY, {"name": "unknown"}), (KEY, {"name": "unknown"})]),
        ("plain", "idempotency_not_executed", 503, [(KEY, {"name": "nothing"})]),
        ("stripe", "idempotency_key_missing", 400, [(None, ORDER)]),
        ("stripe", "idempotency_key_reused_with_different_payload", 400, [(KEY, ORDER), (KEY, {"name": "desk"})]),
        ("own-json", "idempotency_key_missing", 400, [(None, ORDER)]),
        ("deferring", "idempotency_key_accepted", 202, [(KEY, ORDER)]),
    ],
)
def test_what_the_layer_answers_is_what_the_document_says(
    document: Document, alice: Person, path: str, code: str, status: int, requests: list[tuple[str | None, Any]]
) -> None:
    for key, data in requests:
        answer = alice.post(f"/{path}", data, key=key)
    assert (answer.status_code, code in answer.content.decode()) == (status, True)
    conforms(document, post(document, path), answer)


@pytest.mark.urls(described_views.__name__)
def test_callers_without_credentials_too(document: Document, db: None) -> None:
    answer = Person().post("/plain", ORDER)
    assert answer.json()["code"] == "idempotency_principal_missing"
    conforms(document, post(document, "plain"), answer)


@pytest.mark.urls(described_views.__name__)
def test_the_status_of_deferred_work_too(document: Document, alice: Person) -> None:
    operation = document["paths"]["/idempotency/operations/{ref}/"]["get"]
    address = alice.post("/deferring", ORDER)["Location"]
    waiting, absent = alice.client.get(address), alice.client.get(f"/idempotency/operations/{EXAMPLE_KEY}/")
    assert (waiting.status_code, absent.status_code) == (202, 404)
    for answer in (waiting, absent):
        conforms(document, operation, answer)
    assert Person().client.get(address).status_code == 404  # which is not the 401 of a view that needs credentials
    assert {} in operation["security"]


def test_a_key_in_the_body_is_described_by_the_body_alone(document: Document) -> None:
    assert header(post(document, "key-in-body")) is None
