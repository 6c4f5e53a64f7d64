"""`manage.py idempotency_endpoints`: what it lists is what clients meet."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.views import LoginView
from django.core.management import CommandError, call_command
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import clear_url_caches, path

from django_idempotency import STRIPE
from django_idempotency.decorators import idempotent
from django_idempotency.http.inventory import take_inventory
from django_idempotency.reconciliation import NotLanded, reconciler
from tests.http import inventory_views
from tests.kit.http import MIDDLEWARE

pytestmark = [pytest.mark.urls("tests.http.inventory_views")]

PLACEHOLDER = re.compile(r"<\w+(:\w+)?>")
LISTED = {  # without installed packages
    ("PATCH", "/shop/change/<uuid:pk>/", "protected"),
    ("DELETE", "/shop/change/<uuid:pk>/", "not needed"),
    ("POST PATCH", "/shop/pay/", "protected"),
    ("any", "/shop/search/<kind>", "unprotected"),
    ("GET", "/api/orders/", "not needed"),
    ("POST", "/api/orders/", "protected"),
    ("POST", "/api/orders/<pk>/refund/", "protected"),
    ("any", "/legacy/", "unprotected"),
    ("any", "/partial/", "unprotected"),
    ("POST", "/hook/", "exempt"),
    ("GET", "/feed/", "not needed"),
    ("GET", "/plain/", "not needed"),
    ("PATCH", "/plain/", "unprotected"),
    ("POST", "/plain/", "protected"),
    ("POST", "/dispatched/", "protected"),
    ("PUT", "/dispatched/", "not needed"),
    ("POST", "/bare/", "unprotected"),
    ("POST", "/off/", "exempt"),
    ("PATCH", "/on/", "exempt"),
    ("POST", "/on/", "protected"),
    ("GET", "/above/", "not needed"),
    ("POST", "/above/", "protected"),
    ("POST", "/below/", "protected"),
}
BY_MIDDLEWARE = {
    ("POST PATCH", "/shop/search/<kind>", "protected"),
    ("POST PATCH", "/legacy/", "protected"),
    ("POST PATCH", "/partial/", "protected"),
    ("PATCH", "/plain/", "protected"),
}


def said(*arguments: str) -> str:
    output = StringIO()
    call_command("idempotency_endpoints", *arguments, stdout=output)
    return output.getvalue().rstrip()


def endpoints(*arguments: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(said("--json", *arguments))["endpoints"]
    return listed


def in_short(listed: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (" ".join(sorted(each["methods"] or ["any"], reverse=True)), each["paths"][0], each["protection"])
        for each in listed
    }


def urls_of(*views: Any) -> Any:
    return type("Urls", (), {"urlpatterns": [path(f"{number}/", view) for number, view in enumerate(views)]})


def answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@pytest.fixture(params=[False, True], ids=["as it is", "with the middleware"])
def by_middleware(request: pytest.FixtureRequest, settings: Any) -> bool:
    if request.param:
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    return bool(request.param)


def test_every_view_of_the_project_is_listed_with_what_protects_its_methods(by_middleware: bool) -> None:
    changed = {(each[1], method) for each in BY_MIDDLEWARE for method in ("any", each[0])} if by_middleware else set()
    expected = {each for each in LISTED if (each[1], each[0]) not in changed}
    assert in_short(endpoints()) == expected | (BY_MIDDLEWARE if by_middleware else set())


@pytest.mark.django_db
def test_the_list_is_what_a_request_without_a_key_meets(by_middleware: bool) -> None:
    asked = 0
    for each in endpoints():
        url = PLACEHOLDER.sub("0f0e8ddc-6c3f-4bd2-9a53-6f3e3a1c8f6e", each["paths"][0])
        for method in each["methods"] or ["POST", "PATCH"]:
            response = Client().generic(method, re.sub("search/.*", "search/", url), "{}", "application/json")
            refused = b"idempotency_key_missing" in response.content
            assert refused is (each["protection"] == "protected"), (method, url, response.content)
            asked += 1
    assert asked > len(LISTED)


def test_a_protected_endpoint_is_listed_with_its_policy(settings: Any, registrations: None) -> None:
    policy = {
        "operation": "orders.create",
        "mode": "leased",
        "transaction": "late",
        "lease": timedelta(minutes=2),
        "retention": timedelta(days=7),
        "scope": "session",
        "profile": STRIPE,
        "required": False,
    }
    reconciler("orders.create")(lambda record: NotLanded())
    settings.ROOT_URLCONF = urls_of(
        idempotent(**policy)(answer), idempotent(mode="atomic", scope=owner, published=False)(answer)
    )

    assert endpoints() == [
        {
            "paths": ["/0/"],
            "methods": ["PATCH", "POST"],
            "name": f"{__name__}.answer",
            "view": f"{__name__}.answer",
            "action": "",
            "package": "",
            "protection": "protected",
            "operation": "orders.create",
            "mode": "leased",
            "transaction": "late",
            "lease": 120.0,
            "reconciler": True,
            "on_lost_lease": "unknown",
            "retention": 604800.0,
            "scope": "session",
            "tenant": None,
            "share_anonymous": False,
            "anonymous_unprotected": False,
            "required": False,
            "published": True,
            "profile": "stripe",
        },
        {
            "paths": ["/1/"],
            "methods": ["PATCH", "POST"],
            "name": f"{__name__}.answer",
            "view": f"{__name__}.answer",
            "action": "",
            "package": "",
            "protection": "protected",
            "operation": f"{__name__}.answer",
            "mode": "atomic",
            "transaction": None,
            "lease": None,
            "reconciler": None,
            "on_lost_lease": None,
            "retention": 86400.0,
            "scope": f"{__name__}.owner",
            "tenant": None,
            "share_anonymous": False,
            "anonymous_unprotected": False,
            "required": True,
            "published": False,
            "profile": "ietf",
        },
    ]


def owner(request: HttpRequest) -> str:
    return "the only one"


def test_the_actions_of_a_view_set_have_policies_of_their_own() -> None:
    listed = {each["action"]: each for each in endpoints() if each["action"]}
    assert {action: (each["operation"], each["mode"]) for action, each in listed.items()} == {
        "create": ("orders.write", "atomic"),
        "refund": ("orders.refund", "leased"),
    }
    assert listed["create"]["paths"] == ["/api/orders/", "/api/orders.<format>/"]


def test_a_terminal_gets_a_table_of_its_width(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ROOT_URLCONF = urls_of(
        answer,
        idempotent(operation="orders.pay", mode="leased", retention=None, tenant=owner)(answer),
        idempotent(operation="orders.create", mode="atomic", required=False, share_anonymous=True)(answer),
        idempotent(operation="orders.note", mode="atomic", anonymous_unprotected=True)(answer),
    )
    monkeypatch.setenv("COLUMNS", "190")
    assert said() == "\n".join(
        [
            "Protected: 3",
            "  PATCH POST  /1/  orders.pay     leased, whole  lease 5 min  no reconciler  retention for ever  "
            "scope user, tenant                 key required  ietf",
            "  PATCH POST  /2/  orders.create  atomic                                     retention 1 d       "
            "scope user, anonymous shared       key optional  ietf",
            "  PATCH POST  /3/  orders.note    atomic                                     retention 1 d       "
            "scope user, anonymous unprotected  key required  ietf",
            "Unprotected: 1",
            f"  any  /0/  {__name__}.answer",
        ]
    )
    monkeypatch.setenv("COLUMNS", "80")
    assert said().splitlines()[:6] == [
        "Protected: 3",
        "  PATCH POST  /1/  orders.pay  leased, whole  lease 5 min  no reconciler",
        "        retention for ever  scope user, tenant  key required  ietf",
        "  PATCH POST  /2/  orders.create  atomic  retention 1 d",
        "        scope user, anonymous shared  key optional  ietf",
        "  PATCH POST  /3/  orders.note  atomic  retention 1 d",
    ]


@pytest.mark.parametrize(
    ("on_lost_lease", "shown"), [("unknown", "no reconciler"), ("restart", "restarted"), ("resume", "resumed")]
)
def test_what_becomes_of_a_lost_attempt_is_shown(settings: Any, on_lost_lease: str, shown: str) -> None:
    settings.ROOT_URLCONF = urls_of(idempotent(mode="leased", on_lost_lease=on_lost_lease)(answer))
    assert f"  {shown}  " in said()


def test_an_async_view_is_listed_as_late_which_it_always_is(settings: Any) -> None:
    settings.ROOT_URLCONF = urls_of(idempotent(mode="leased")(answer_async))
    assert [each["transaction"] for each in endpoints()] == ["late"]


async def answer_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def test_installed_packages_are_counted_and_listed_when_asked() -> None:
    packages = Counter(each["package"] for each in endpoints("--all") if each["package"])
    assert {"django.contrib.admin", "django.contrib.auth", "django_idempotency"} <= packages.keys()
    assert json.loads(said("--json"))["not_listed"] == packages
    counts = ", ".join(f"{package} ({count})" for package, count in sorted(packages.items()))
    assert said().splitlines()[-1] == f"Not listed without --all: the views of {counts}"
    everything = in_short(endpoints("--all"))
    assert everything > LISTED
    assert ("any", "/admin/login/", "unprotected") in everything
    assert ("GET", "/idempotency/operations/<str:ref>/", "not needed") in everything
    assert json.loads(said("--all", "--json"))["not_listed"] == {}


def test_a_view_of_an_installed_package_with_a_policy_of_its_own_is_listed(settings: Any) -> None:
    settings.ROOT_URLCONF = urls_of(LoginView.as_view(), idempotent(mode="atomic")(LoginView.as_view()))
    assert in_short(endpoints()) == {
        ("POST", "/1/", "protected"),
        ("PUT GET", "/1/", "not needed"),
    }
    assert json.loads(said("--json"))["not_listed"] == {"django.contrib.auth": 2}


def test_a_project_that_is_an_installed_package_is_listed_itself(settings: Any) -> None:
    settings.ROOT_URLCONF = "django.contrib.auth.urls"
    assert ("POST", "/login/", "unprotected") in in_short(endpoints())
    assert json.loads(said("--json"))["not_listed"] == {}


def test_a_build_fails_for_unprotected_endpoints_and_learns_which_and_what_to_do() -> None:
    with pytest.raises(CommandError) as failed:
        said("--fail-unprotected")
    assert failed.value.returncode == 1
    assert str(failed.value) == (
        "Unprotected endpoints (5): any /shop/search/<kind>; any /legacy/; any /partial/; PATCH /plain/; POST /bare/. "
        "Protect each with @idempotent or IdempotentMixin, mark it with @exempt, or accept it with --allow and its "
        "path or name."
    )


def test_a_build_passes_when_the_others_are_allowed_by_path_or_name() -> None:
    allowed = ["--allow=shop:*", "--allow=/legacy/", "--allow=plain", "--allow=/b*/"]
    with pytest.raises(CommandError, match=re.escape("Unprotected endpoints (1): any /partial/.")):
        said("--fail-unprotected", *allowed)
    assert said("--fail-unprotected", *allowed, "--allow=/partial/").startswith("Neither POST nor PATCH: ")
    assert "Unprotected: 5" in said("--fail-unprotected", *allowed, "--allow=/partial/")


def test_a_build_looks_at_installed_packages_when_asked() -> None:
    with pytest.raises(CommandError, match="any /admin/login/"):
        said("--fail-unprotected", "--all")


def test_a_build_passes_where_everything_is_protected(settings: Any) -> None:
    settings.ROOT_URLCONF = urls_of(inventory_views.pay, inventory_views.above, inventory_views.feed)
    assert endpoints("--fail-unprotected")


def test_allowing_without_failing_is_a_mistake() -> None:
    with pytest.raises(CommandError, match="--allow needs --fail-unprotected"):
        said("--allow=/legacy/")


def test_wrong_settings_are_an_error_and_no_empty_list(settings: Any) -> None:
    settings.IDEMPOTENCY = {"LEASE": "soon"}
    with pytest.raises(CommandError, match="LEASE"):
        said()


def test_a_policy_that_contradicts_the_settings_is_an_error_that_names_its_route(settings: Any) -> None:
    settings.ROOT_URLCONF = urls_of(answer, idempotent(transaction="late")(answer))
    settings.IDEMPOTENCY = {"MODE": "atomic"}
    with pytest.raises(CommandError, match="/1/: transaction='late' cannot be combined"):
        said()


def test_a_project_without_urls_has_no_endpoints(settings: Any) -> None:
    del settings.ROOT_URLCONF
    assert said() == ""


@pytest.mark.urls("testproject.urls")
def test_the_payments_service_says_which_of_its_endpoints_are_protected() -> None:
    unprotected = [each["paths"][0] for each in endpoints() if each["protection"] == "unprotected"]
    assert unprotected == ["/webhooks/gateway/", "/conformance/reset"]


def test_a_urlconf_is_read_once_until_django_forgets_it(settings: Any) -> None:
    def plain_view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    patterns = [path("first", idempotent(mode="atomic")(plain_view), name="first")]
    settings.ROOT_URLCONF = type("Growing", (), {"urlpatterns": patterns})
    assert [entry.operation for entry in take_inventory()] == ["first"]
    patterns.append(path("second", idempotent(mode="atomic")(plain_view), name="second"))
    assert len(take_inventory()) == 1
    clear_url_caches()
    assert [entry.operation for entry in take_inventory()] == ["first", "second"]
