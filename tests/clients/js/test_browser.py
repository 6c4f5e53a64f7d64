"""The client in a real browser: twice, reloaded, offline, in two tabs, without TLS and from another origin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.browsing import axe, is_complaint, launched
from tests.clients.js.conftest import CLIENT as CODE
from tests.kit.processes import Site
from tests.kit.scripted import Request, Scripted, scripted_service

pytestmark = pytest.mark.soak

CLIENT = "/static/client/index.js"
TWO_CLICKS = "() => { const [form] = document.forms; form.requestSubmit(); form.requestSubmit() }"
ONCE = f"""async ([name, base]) => {{
  const {{ createOutbox }} = await import("{CLIENT}");
  const headers = {{ Authorization: "Token alice-token", "Content-Type": "application/json" }};
  const body = JSON.stringify({{ amount: 5, currency: "EUR", customer: name }});
  const outbox = createOutbox({{ origins: [base || location.origin], headers: () => headers }});
  const response = await outbox.once(name, base + "/payments/", {{ method: "POST", body }});
  return (await response.json()).id;
}}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    yield from launched("--host-resolver-rules=MAP shop.test 127.0.0.1")


@pytest.fixture
def context(chromium: Any, js_site: Site) -> Iterator[Any]:
    context = chromium.new_context(base_url=js_site.service.url)
    yield context
    context.close()


@pytest.fixture
def sent(context: Any) -> list[str]:
    """The keys of the payments that the browser sends."""
    keys: list[str] = []
    context.on("request", lambda each: keys.append(each.headers["idempotency-key"]) if each.method == "POST" else None)
    return keys


def open_page(context: Any, query: str = "") -> Any:
    page = context.new_page()
    page.goto(f"/outbox/{query}")
    return page


def payments_of(site: Site, customer: str) -> list[int]:
    return [each["id"] for each in site.alice.get("/payments/").json() if each["customer"] == customer]


def pay(page: Any, customer: str, program: str = TWO_CLICKS) -> None:
    page.fill("[name=customer]", customer)
    page.evaluate(program)


def paid(page: Any) -> str:
    page.wait_for_selector("li[data-state=paid]")
    return str(page.locator("li").inner_text())


def test_a_double_click_is_one_payment(context: Any, sent: list[str], js_site: Site) -> None:
    page = open_page(context)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if is_complaint(message) else None)
    pay(page, "double")
    text = paid(page)
    (payment,) = payments_of(js_site, "double")
    assert f"Paid, number {payment}" in text
    assert len(sent) == 1
    assert complaints == []
    assert [each["id"] for each in axe.Axe().run(page).response["violations"]] == []


def test_a_click_after_the_result_is_another_payment(context: Any, sent: list[str], js_site: Site) -> None:
    page = open_page(context)
    pay(page, "again")
    paid(page)
    page.click("button")
    page.wait_for_selector("li[data-state=paid] + li[data-state=paid]")
    assert len(payments_of(js_site, "again")) == len(set(sent)) == 2


def test_a_reload_while_a_payment_is_sent_keeps_its_key(context: Any, sent: list[str], js_site: Site) -> None:
    page = open_page(context)
    js_site.switch(delay=1.0)
    with page.expect_request(lambda each: each.method == "POST"):
        pay(page, "reload")
    page.reload()
    assert "Paid" in paid(page)
    js_site.switch(delay=0.0)
    assert len(payments_of(js_site, "reload")) == len(set(sent)) == 1
    assert len(sent) > 1


def test_what_was_ordered_offline_is_paid_online(context: Any, js_site: Site) -> None:
    page = open_page(context)
    context.set_offline(True)
    pay(page, "offline")
    page.wait_for_selector("li[data-state=waiting]")
    assert payments_of(js_site, "offline") == []
    context.set_offline(False)
    assert "Paid" in paid(page)
    assert len(payments_of(js_site, "offline")) == 1


def test_of_two_tabs_one_sends(context: Any, js_site: Site) -> None:
    answered: list[str] = []
    context.on("requestfinished", lambda each: answered.append(each.url) if each.method == "POST" else None)
    one, other = open_page(context), open_page(context)
    context.set_offline(True)
    pay(one, "tabs")
    other.wait_for_selector("li[data-state=waiting]")
    context.set_offline(False)
    assert paid(one) == paid(other)
    assert len(payments_of(js_site, "tabs")) == len(answered) == 1


def test_two_tabs_that_begin_at_once_have_one_payment(context: Any, sent: list[str], js_site: Site) -> None:
    check_both(context, sent, js_site, "locks", base="")
    assert len(sent) == 1


def test_without_web_locks_both_tabs_send_the_same_key(context: Any, sent: list[str], js_site: Site) -> None:
    """A page without TLS has neither Web Locks nor randomUUID. The store decides which key is used."""
    check_both(context, sent, js_site, "insecure", base=f"http://shop.test:{js_site.service.port}")


def check_both(context: Any, sent: list[str], site: Site, name: str, *, base: str) -> None:
    one, other = context.new_page(), context.new_page()
    for page in (one, other):
        page.goto(f"{base}/outbox/")
    assert one.evaluate("() => isSecureContext") is (base == "")
    start = f"""(both) => {{ window.call = ({ONCE})(both) }}"""
    for page in (one, other):
        page.evaluate(start, [name, base])
    ids = {page.evaluate("() => window.call") for page in (one, other)}
    assert ids == set(payments_of(site, name))
    assert len(ids) == len(set(sent)) == 1


def test_a_page_of_another_origin_can_pay_and_read_the_headers(context: Any, js_site: Site) -> None:
    page = context.new_page()
    page.goto(f"http://localhost:{js_site.service.port}/outbox/?api={js_site.service.url}")
    pay(page, "elsewhere")
    assert "Paid" in paid(page)
    assert len(payments_of(js_site, "elsewhere")) == 1
    program = f"""async (base) => {{
      const {{ createFetch, newKey }} = await import("{CLIENT}");
      const idempotentFetch = createFetch({{ origins: [base] }});
      const headers = {{ Authorization: "Token alice-token", "Content-Type": "application/json" }};
      const call = (path, init) => idempotentFetch(base + path, {{ method: "POST", headers, ...init }});
      const key = newKey();
      const body = JSON.stringify({{ amount: 5, currency: "EUR", customer: "headers" }});
      const first = await call("/payments/", {{ key, body }});
      const replayed = (await call("/payments/", {{ key, body }})).headers.get("Idempotency-Replayed");
      const accepted = await call("/exports/", {{ body: "{{}}" }});
      const missing = ["Location", "Retry-After"].filter((name) => !accepted.headers.get(name));
      return {{ location: first.headers.get("Location"), replayed, missing }};
    }}"""
    found = page.evaluate(program, js_site.service.url)
    assert found == {"location": found["location"], "replayed": "true", "missing": []}
    assert found["location"].startswith("/payments/")


def test_local_storage_holds_an_outbox_too(context: Any, sent: list[str], js_site: Site) -> None:
    page = open_page(context)
    program = f"""async () => {{
      const {{ createOutbox, keyValueStore }} = await import("{CLIENT}");
      const outbox = createOutbox({{ origins: [location.origin], store: keyValueStore(localStorage) }});
      const call = () => outbox.once("kept", "/conformance/echo", {{ method: "POST", body: "x" }});
      const texts = await Promise.all([call(), call()].map(async (each) => (await each).text()));
      return [...texts, ...Object.keys(localStorage)];
    }}"""
    assert page.evaluate(program) == ["x", "x", "idempotency:kept"]
    assert len(sent) == 1


def test_a_redirect_that_is_not_followed_leaves_a_name_open(context: Any, sent: list[str], js_site: Site) -> None:
    page = open_page(context)
    program = f"""async () => {{
      const {{ createOutbox }} = await import("{CLIENT}");
      const init = {{ method: "POST", redirect: "manual" }};
      const outbox = createOutbox({{ origins: [location.origin] }});
      const call = () => outbox.once("redirect", "/conformance/status/302", init);
      return [(await call()).type, (await call()).type];
    }}"""
    assert page.evaluate(program) == ["opaqueredirect", "opaqueredirect"]
    assert (len(sent), len(set(sent))) == (2, 1)


def test_a_redirect_is_followed_within_the_origin_of_the_page(context: Any, js_site: Site) -> None:
    page = open_page(context)
    moved = {"status": 307, "headers": {"Location": "/conformance/echo?here"}}
    context.route("**/conformance/echo?moved", lambda route: route.fulfill(**moved))
    program = f"""async () => {{
      const {{ createFetch }} = await import("{CLIENT}");
      const call = createFetch({{ origins: [location.origin] }});
      const response = await call("/conformance/echo?moved", {{ method: "POST", body: "x" }});
      return [response.redirected, await response.text()];
    }}"""
    assert page.evaluate(program) == [True, "x"]


def test_a_redirect_takes_nothing_from_the_page_to_another_origin(chromium: Any) -> None:
    page = chromium.new_page()
    allowed = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*"}
    with scripted_service() as far, scripted_service() as near:
        far.script = [Scripted(200, allowed)]

        def answer(request: Request) -> None:
            if request.method == "POST":
                near.script = [Scripted(307, {"Location": f"{far.url}/steal"})]
            elif request.path.endswith(".js"):
                near.script = [
                    Scripted(200, {"Content-Type": "text/javascript"}, (CODE / request.path[1:]).read_bytes())
                ]
            else:
                near.script = [
                    Scripted(200, {"Content-Type": "text/html"}, b"<!doctype html><link rel=icon href='data:,'>")
                ]

        near.on_request = answer
        page.goto(near.url)
        program = """async () => {
          const { createFetch } = await import("/fetch.js");
          const call = createFetch({ origins: [location.origin], backoff: 1, deadline: 300 });
          return call("/pay", { method: "POST", body: "card" }).catch((error) => error.name);
        }"""
        assert page.evaluate(program) == "no_response"
        assert [request.method for request in near.got].count("POST") >= 1
        assert far.got == []


def test_a_request_whose_key_the_browser_removes_is_sent_once(context: Any, js_site: Site) -> None:
    page = open_page(context)
    keys: list[str | None] = []

    def lose(route: Any) -> None:
        keys.append(route.request.headers.get("idempotency-key"))
        route.abort()

    context.route("**/conformance/echo", lose)
    program = f"""async () => {{
      const {{ createFetch }} = await import("{CLIENT}");
      const idempotentFetch = createFetch({{ origins: [location.origin] }});
      const init = {{ method: "POST", mode: "no-cors", body: "x", backoff: 1, deadline: 1000 }};
      return idempotentFetch("/conformance/echo", init).catch((error) => error.name);
    }}"""
    assert page.evaluate(program) == "TypeError"
    assert keys == [None]


def test_nothing_is_sent_when_the_disk_is_full(context: Any, sent: list[str], js_site: Site) -> None:
    page = open_page(context)
    quota = {"origin": js_site.service.url, "quotaSize": 1}
    context.new_cdp_session(page).send("Storage.overrideQuotaForOrigin", quota)
    program = f"""async () => {{
      const {{ createOutbox }} = await import("{CLIENT}");
      const outbox = createOutbox({{ origins: [location.origin] }});
      const call = outbox.once("full", "/conformance/echo", {{ method: "POST", body: "x" }});
      return call.catch((error) => error.name);
    }}"""
    assert page.evaluate(program) == "QuotaExceededError"
    assert sent == []
