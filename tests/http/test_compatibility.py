"""The compatibility policies of docs/how-to/move-*.md give what the old packages gave, apart from what the pages name.

`recorded_responses.json` has the real responses of the old packages to the requests of `tests.kit.recording`;
`python -m benchmarks.old_packages` asks them again.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.urls import path

from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.recording import KEYS, PAY, Payment, record, send
from tests.repository.test_samples import PAGES, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__), pytest.mark.vendor]

RECORDED = json.loads((Path(__file__).parent / "recorded_responses.json").read_text())
PACKAGES = list(RECORDED)
# Rows of the page that an old package has no mode for.
SAME_AS = {"exception again, leased": "exception again"}
# What no profile keeps of a response whose status is kept.
OTHER_MARK = {"drf-idempotencykey": ("Cached-From-Idempotency-Key", "true")}
NO_LONGER_SENT = {
    "drf-idempotency": {("Idempotency-Key", key) for key in (*KEYS, KEYS[0].upper())}
    | {("Idempotent-Replayed", "false")}
}
TEXTS = {"reason", "detail"}  # for people


class Pay(IdempotentMixin, Payment):
    pass


urlpatterns: list[Any] = []


@pytest.fixture(autouse=True)
def _users() -> None:
    cache.clear()
    for name in ("alice", "bob"):
        User.objects.create_user(name, password=name)


def page(package: str) -> str:
    return PAGES[f"docs/how-to/move-{package}.md"]


def shown(package: str) -> dict[str, Any]:
    """The names that the package's page defines."""
    return run(f"move-{package}.md", page(package))


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Serve the view with the policy of the package's page."""
    policy = shown(request.param)["LIKE_" + request.param.upper().replace("-", "_")]
    atomic = {**policy, "mode": "atomic"}
    leased = {**policy, "mode": "leased", "transaction": "late"}
    modes = (("pay", atomic), ("pay/other", atomic), ("leased", leased))
    views = [
        path(where, type("View", (Pay,), {"idempotency": mode}).as_view(), name=where)  # type: ignore[attr-defined]
        for where, mode in modes
    ]
    monkeypatch.setattr(f"{__name__}.urlpatterns", views)
    return str(request.param)


def outcome(told: dict[str, Any]) -> str:
    """A response as the page's table has it."""
    replayed = "first run" in json.dumps(told["body"])
    return f"{told['status']}{', runs' if told['ran'] else ', replay' if replayed else ''}"


def rows(package: str) -> dict[str, tuple[str, str]]:
    """The page's table of responses: what each request got before, and what it gets now."""
    text = page(package)
    table = [line.split("|")[1:-1] for line in text[text.index("| request |") :].split("\n\n")[0].splitlines()]
    _, _, *lines = [[cell.strip() for cell in line] for line in table]
    return {case: (before, now) for case, before, now in lines}


def test_the_page_names_each_change(package: str) -> None:
    recorded = RECORDED[package]["responses"]
    told = {}
    for case, new in record().items():
        was, now = outcome(recorded[SAME_AS.get(case, case)]), outcome(new)
        told[case] = (was, now if was == now else f"**{now}**")
    assert rows(package) == told


def test_what_the_page_does_not_name_stays(package: str) -> None:
    """Wherever status and effect are the same, so are headers and bodies, apart from texts for people."""
    recorded = RECORDED[package]["responses"]
    told = record()
    same = [case for case in recorded if outcome(recorded[case]) == outcome(told[case])]
    assert len(same) >= 6
    for case in same:
        old, new = recorded[case], told[case]
        assert new["headers"].items() >= expected_headers(package, old["headers"]).items(), case
        assert without_texts(old["body"]).items() <= without_texts(new["body"]).items(), case


def expected_headers(package: str, headers: dict[str, str]) -> dict[str, str]:
    name, mark = OTHER_MARK.get(package, ("", ""))
    kept = dict(headers.items() - NO_LONGER_SENT.get(package, set()))
    return kept | ({name: mark} if name in kept else {})


def without_texts(body: Any) -> Any:
    if isinstance(body, list):
        return [without_texts(each) for each in body]
    if isinstance(body, dict):
        return {name: without_texts("…" if name in TEXTS else value) for name, value in body.items()}
    return {} if body is None else body


def test_one_uuid_in_several_spellings_is_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the source of keys that the page shows, as in the old package."""
    policy = {**shown("drf-idempotencykey")["LIKE_DRF_IDEMPOTENCYKEY_WITH_SPELLINGS"], "mode": "atomic"}
    view = type("View", (Pay,), {"idempotency": policy}).as_view()  # type: ignore[attr-defined]
    monkeypatch.setattr(f"{__name__}.urlpatterns", [path("pay", view)])
    key = KEYS[0]
    keys = [key, key.upper(), key.replace("-", ""), f'"{key}"', f"{{{key}}}"]
    bodies = {send("alice", each, PAY).content for each in keys}
    assert len(bodies) == 1
    assert [send("alice", each, PAY).status_code for each in ("no key!", None)] == [400, 201]


def test_the_page_says_what_was_recorded() -> None:
    for package, recorded in RECORDED.items():
        for said in (f"{package} {recorded['version']}", recorded["recorded"], recorded["django"]):
            assert said in page(package)
        assert recorded["rest_framework"] in page(package)
        assert page(package).startswith(f"# Move from {package}\n")
