"""Whatever is sent, to whichever route: no answer is a 500."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some

from testproject.http import exchange
from tests.kit.processes import Site

pytestmark = [pytest.mark.soak, pytest.mark.parametrize("site", ["off"], indirect=True)]

METHODS = ["POST", "POST", "POST", "PATCH", "PUT", "GET", "HEAD", "DELETE", "OPTIONS"]
PATHS = [
    "/payments/",
    "/payments/1/",
    "/async/payments/",
    "/transfers/",
    "/rides/",
    "/exports/",
    "/v1/charges",
    "/v1/charges/ch_1",
    "/webhooks/gateway/",
    "/conformance/echo",
    "/conformance/status/404",
    "/conformance/slow?ms=0",
    "/conformance/large?bytes=10",
    "/nowhere",
]
ALICE = {"Authorization": "Token alice-token"}
AUTHORIZATIONS = ["Token alice-token", "Token bob-token", "Bearer sk_test_alice", "Basic x", "Token", ""]
TYPES = [
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "multipart/form-data",
    "text/plain",
    "",
]
KEYS = ["k", '"k"', '"other"', "", '""', '"unclosed', "a, b", "é", '"k";p=1', "k" * 300]
FORM = b'--x\r\nContent-Disposition: form-data; name="amount"\r\n\r\n5\r\n--x--\r\n'

words = some.sampled_from(
    [
        "amount",
        "currency",
        "customer",
        "source",
        "from",
        "to",
        "origin",
        "target",
        "page",
        "id",
        "type",
        "charge",
        "simulate",
    ]
)
values = some.recursive(
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | some.text(some.characters(exclude_categories=()), max_size=20),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
nearly_orders = some.fixed_dictionaries(
    {"amount": some.just(5) | values, "currency": some.just("EUR") | values, "customer": some.just("ada") | values},
    optional={"from": values, "to": values, "simulate": values, "note": values},
)
bodies = (
    nearly_orders.map(lambda order: json.dumps(order).encode())
    | some.dictionaries(words, values, max_size=5).map(lambda order: json.dumps(order).encode())
    | some.sampled_from([b"", b"[]", b"{", b"null", FORM, FORM[:30], b"amount=5&currency=eur&source=tok", b"\xff\xfe"])
    | some.binary(max_size=100)
)
keys = some.sampled_from(KEYS) | some.uuids().map(str)
languages = some.sampled_from(["", "application/json", "text/html", "application/xml", "*/*"])


@some.composite
def requests(draw: some.DrawFn) -> dict[str, Any]:
    named = {
        "Authorization": some.sampled_from(AUTHORIZATIONS),
        "Content-Type": some.sampled_from(TYPES),
        "Idempotency-Key": keys,
        "Accept": languages,
    }
    headers = {name: draw(value) for name, value in named.items()}
    return {
        "method": draw(some.sampled_from(METHODS)),
        "path": draw(some.sampled_from(PATHS)),
        "headers": {name: on_the_wire(value) for name, value in headers.items() if value},
        "body": draw(bodies),
    }


def on_the_wire(value: str) -> str:
    return value.encode("utf-8").decode("latin-1")


def bounded(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@bounded(300)
@given(sent=requests())
def test_no_request_is_answered_with_a_500(site: Site, sent: dict[str, Any]) -> None:
    answer = exchange(
        sent["method"], site.service.url + sent["path"], body=sent["body"], headers=sent["headers"], timeout=30
    )

    assert answer.status < 500, answer.body


def test_every_answer_to_what_is_made_from_the_schema_is_in_the_schema(site: Site) -> None:
    """Each request twice with a key of its own, and once with an odd one that others have used.

    Of a valid request with a key of its own, no check of schemathesis finds anything. In an invalid one the key may be
    all that is wrong, so that this key makes it valid.
    """
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed: the schema is not fuzzed")
    # Django REST framework refuses the null character in every text, and no document says so.
    config = schemathesis.Config.from_dict({"generation": {"allow-x00": False}})
    schema = schemathesis.openapi.from_dict(site.anyone.get("/schema/?format=json").json(), config=config)
    checks = schemathesis.checks
    described = [
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    operations = {found.ok().label: found.ok() for found in schema.get_all_operations()}
    assert operations.keys() >= {"POST /payments/", "GET /payments/", "GET /payments/{id}/"}
    seen = Counter[int]()

    for label, operation in operations.items():

        @bounded(100 if label.startswith("POST") else 10)
        @given(
            case=some.one_of([operation.as_strategy(mode) for mode in schemathesis.GenerationMode]),
            odd=keys,
        )
        def fuzz(case: Any, odd: str) -> None:
            fresh = str(uuid4())
            every = case.meta.generation.mode.is_positive
            for key in (fresh, fresh, odd):
                keyed = {"Idempotency-Key": on_the_wire(key)} if key else {}
                answer = case.call(base_url=site.service.url, headers={**ALICE, **keyed}, timeout=30)
                assert answer.status_code < 500, case.as_curl_command()
                case.validate_response(answer, checks=None if every and key == fresh else described, headers=ALICE)
                seen[answer.status_code] += 1

        fuzz()
    assert {200, 201, 400, 422} <= seen.keys(), seen
