"""Each requirement of draft-ietf-httpapi-idempotency-key-header-07, over HTTP; docs/reference/ietf.md lists them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from testproject.http import Answer
from testproject.servers import ROOT
from tests.acceptance.raw import post_lines, with_key
from tests.acceptance.served.answers import RULES
from tests.acceptance.subjects import (
    LATE,
    PAYMENTS,
    TRANSFERS,
    is_replay,
    let_it_expire,
    new,
    quoted,
    records,
    refused_as,
    status_of,
)
from tests.kit.journal import Journal
from tests.kit.processes import Site
from tests.kit.threads import wait_until

pytestmark = pytest.mark.parametrize("site", ["off"], indirect=True)

PAGE = ROOT / "docs" / "reference" / "ietf.md"


def link_of(code: str) -> str:
    """To the section of a code in the project's own rules."""
    return f'<{RULES}#idempotency_{code}>; rel="describedby"; type="text/html"'


def echo(site: Site, key: str | None, body: bytes = b"one", path: str = "/conformance/echo") -> Answer:
    return site.anyone.post_bytes(path, body, key=key)


def published(site: Site, key: str | None, body: bytes = b"one", account: str = "published") -> Answer:
    """An endpoint whose rules have an address."""
    return site.anyone.post_bytes(f"/answers/strict?account={account}", body, key=key)


def test_r1_the_field_is_a_string_and_its_parameters_are_ignored(site: Site) -> None:
    key = new()
    first, plain, with_parameter = (echo(site, value) for value in (quoted(key), key, f'"{key}";p=1;q'))

    assert first.status == 201
    assert is_replay(plain, first)
    assert is_replay(with_parameter, first)


def test_r2_two_lines_and_lists_are_refused(site: Site) -> None:
    for values in ([b'"a"', b'"b"'], [b'"a", "b"']):
        assert refused_as(post_lines(site, "/conformance/echo", with_key(*values)), 400, "key_invalid")
    assert site.executions() == 0


def test_r4_a_key_is_unique_per_person_and_operation(site: Site) -> None:
    account, key = new(), quoted(new())
    answers = [
        who.post(subject.path, subject.order(account), key=key)
        for who in (site.alice, site.bob)
        for subject in (PAYMENTS, TRANSFERS)
    ]

    assert [answer.status for answer in answers] == [201] * 4
    assert len({answer.body for answer in answers}) == 4


def test_r6_a_key_expires(site: Site) -> None:
    key = new()
    echo(site, quoted(key), b"one")
    let_it_expire(site, key)

    assert echo(site, quoted(key), b"two").body == b"two"
    assert site.executions() == 2


def test_r7_the_expiry_policy_is_published(site: Site) -> None:
    key = new()
    echo(site, quoted(key))
    ((completed, expires),) = site.rows(
        "SELECT k.completed_at, k.expires_at FROM idempotency_key k WHERE k.key = %s", key
    )

    assert seconds_between(completed, expires) == timedelta(hours=24).total_seconds()
    assert rules_of(site, "/conformance/echo")["lifetime"] == timedelta(hours=24).total_seconds()
    assert "for 24 hours" in PAGE.read_text()


def rules_of(site: Site, path: str) -> dict[str, Any]:
    """What the rules page says of an endpoint."""
    published = site.anyone.get("/idempotency/rules/", accept="application/json").json()["rules"]
    (found,) = [each for each in published if path in [endpoint["path"] for endpoint in each["endpoints"]]]
    return dict(found)


def seconds_between(one: object, other: object) -> int:
    moments = [each if isinstance(each, datetime) else datetime.fromisoformat(str(each)) for each in (one, other)]
    return round((moments[1] - moments[0]).total_seconds())


def test_r8_r9_the_fingerprint_is_the_meaning_of_the_request(site: Site) -> None:
    account, key = new(), quoted(new())
    order = PAYMENTS.order(account)
    first = site.alice.post(PAYMENTS.path, order, key=key)

    assert is_replay(site.alice.post(PAYMENTS.path, dict(reversed(order.items())), key=key), first)
    assert site.alice.post(PAYMENTS.path, {**order, "amount": 1}, key=key).status == 422


def test_r11_a_stray_key_is_ignored(site: Site) -> None:
    before = records(site)

    assert site.anyone.get("/conformance/counter", idempotency_key='"unclosed').status == 200
    assert site.anyone.post_bytes("/conformance/reset", key="a, b").status == 204
    assert records(site) == before


def test_r13_r14_refusals_lead_to_the_published_rules(site: Site) -> None:
    refused = echo(site, None)
    page, _, section = refused.json()["type"].partition("#")
    rules = site.anyone.get(page)

    assert refused.headers["Link"] == f'<{page}#{section}>; rel="describedby"; type="text/html"'
    assert (rules.status, rules.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    for text in (f'id="{section}"', "POST /conformance/echo", "Responses are kept for 1 d."):
        assert text in rules.body.decode()


def test_r13_r14_an_address_of_the_projects_own_comes_first(site: Site) -> None:
    refused = published(site, None)

    assert refused.headers["Link"] == link_of("key_missing")
    assert refused.json()["type"] == f"{RULES}#idempotency_key_missing"


def test_r16_the_key_is_identified_and_recorded(site: Site) -> None:
    account, key = new(), new()
    site.alice.post(PAYMENTS.path, PAYMENTS.order(account), key=quoted(key))

    assert site.rows("SELECT k.operation, k.status FROM idempotency_key k WHERE k.key = %s", key) == [
        ("payments.create", "completed")
    ]


def test_r17_the_fingerprint_is_recorded_with_it(site: Site) -> None:
    key = new()
    echo(site, quoted(key))

    ((fingerprint,),) = site.rows("SELECT k.fingerprint FROM idempotency_key k WHERE k.key = %s", key)
    assert fingerprint.startswith("v3:")


def test_r18_a_repeat_has_no_effect(site: Site) -> None:
    account, key = new(), quoted(new())
    for _ in range(5):
        site.alice.post(PAYMENTS.path, PAYMENTS.order(account), key=key)

    assert PAYMENTS.effects(site, account) == 1


def test_r19_the_first_request_is_processed_as_ever(site: Site) -> None:
    answer = echo(site, quoted(new()))

    assert (answer.status, answer.body) == (201, b"one")
    assert "Idempotency-Replayed" not in answer.headers
    assert site.executions() == 1


@pytest.mark.parametrize("status", [200, 204, 302, 402, 404, 503])
def test_r20_a_repeat_gets_the_result_success_or_error(site: Site, status: int) -> None:
    key, path = quoted(new()), f"/conformance/status/{status}"
    first, second = (echo(site, key, path=path) for _ in range(2))

    assert first.status == status
    assert is_replay(second, first)
    assert site.executions() == 1


def test_r21_a_repeat_of_a_running_request_is_a_conflict(site: Site) -> None:
    account, key = new(), new()
    with LATE.running(site, account, key) as first:
        early = site.alice.post(LATE.path, LATE.order(account), key=quoted(key))
        assert not first.done()

    assert refused_as(early, 409, "key_in_progress")
    assert first.result().status == 201
    assert LATE.effects(site, account) == 1


def test_r22_a_missing_key_is_a_400_with_a_link(site: Site) -> None:
    answer = published(site, None)

    assert refused_as(answer, 400, "key_missing")
    assert answer.headers["Link"] == link_of("key_missing")


def test_r23_another_payload_is_a_422_with_a_link(site: Site) -> None:
    key = quoted(new())
    published(site, key)
    answer = published(site, key, b"two")

    assert refused_as(answer, 422, "key_reused_with_different_payload")
    assert answer.headers["Link"] == link_of("key_reused_with_different_payload")


def test_r24_a_running_request_is_a_409_with_a_description(site: Site) -> None:
    account, key = new(), new()
    journal = Journal(site.service.log.parent)
    with ThreadPoolExecutor(1) as pool, journal.gate_closed():
        pool.submit(published, site, quoted(key), account=account)
        wait_until(lambda: status_of(site, key) == "in_progress")
        answer = published(site, quoted(key), account=account)

    assert refused_as(answer, 409, "key_in_progress")
    assert "still running" in answer.json()["detail"]
    status = f'</idempotency/operations/{answer.json()["operation_ref"]}/>; rel="status"'
    assert answer.headers["Link"] == f"{link_of('key_in_progress')}, {status}"


def test_r25_a_corrected_request_goes_through(site: Site) -> None:
    account, key = new(), quoted(new())
    pay = partial(site.alice.post, PAYMENTS.path)
    first = pay(PAYMENTS.order(account), key=key)
    assert pay(PAYMENTS.order(account, amount=5), key=key).status == 422

    assert is_replay(pay(PAYMENTS.order(account), key=key), first)
    assert pay(PAYMENTS.order(account, amount=5), key=quoted(new())).status == 201
    assert PAYMENTS.effects(site, account) == 2


def test_r27_the_format_of_a_key_is_fixed(site: Site) -> None:
    longest = new().ljust(255, "k")

    assert echo(site, quoted(longest)).status == 201
    assert refused_as(echo(site, quoted(longest + "k")), 400, "key_invalid")
    rules = rules_of(site, "/conformance/echo")
    assert (rules["min_length"], rules["max_length"]) == (1, 255)
    assert "1 to 255 visible ASCII characters" in PAGE.read_text()


def test_r28_a_key_is_checked_before_it_is_looked_up(site: Site) -> None:
    before = records(site)

    assert refused_as(echo(site, "k" * 256), 400, "key_invalid")
    assert (records(site), site.executions()) == (before, 0)


def test_r29_a_key_alone_finds_nothing(site: Site) -> None:
    account, key = new(), new()
    site.alice.post(PAYMENTS.path, PAYMENTS.order(account), key=quoted(key))
    ((scope,),) = site.rows("SELECT k.scope FROM idempotency_key k WHERE k.key = %s", key)

    assert "user:" in scope
    assert "Idempotency-Replayed" not in site.bob.post(PAYMENTS.path, PAYMENTS.order(account), key=quoted(key)).headers
    assert PAYMENTS.effects(site, account) == 2


@pytest.mark.parametrize("key", ["1", "password", "a@example.org", "0" * 40])
def test_r30_a_key_that_is_easy_to_guess_is_refused_where_that_is_declared(site: Site, key: str) -> None:
    guessable = site.anyone.post_bytes("/answers/unguessable?account=r30", key=quoted(key))

    assert refused_as(guessable, 400, "key_invalid")
    assert site.anyone.post_bytes("/answers/unguessable?account=r30", key=quoted(new())).status == 201


@pytest.mark.parametrize("key", ["' OR 1=1 --", "%s", "{{ 7 }}", "../../etc/passwd", "<script>"])
def test_r30_a_key_is_data_and_nothing_else(site: Site, key: str) -> None:
    unique = f"{key}{new()}"
    first, second = (echo(site, quoted(unique)) for _ in range(2))

    assert is_replay(second, first)
    assert status_of(site, unique) == "completed"
