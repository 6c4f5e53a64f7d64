"""`protect_all` protects every view of a project after the authentication of its framework."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.http import HttpRequest
from django.test import Client
from django.urls import get_resolver, path, reverse
from django.views.decorators.cache import cache_page

pytest.importorskip("ninja", reason="NOT TESTED: django-ninja is not installed")

from ninja import NinjaAPI
from ninja.decorators import decorate_view

from django_idempotency.decorators import exempt
from django_idempotency.exceptions import Misplaced
from django_idempotency.http.inventory import package_of
from django_idempotency.http.urlconf import Endpoint, endpoints
from django_idempotency.models import IdempotencyKey
from django_idempotency.protection import protect_all
from tests.checks.messages import said
from tests.http import whole_project
from tests.http.whole_project import Gate, Payments
from tests.kit.http import KEY, atomic_requests, bare_wrapper, same_answer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.http.whole_project")]

REST = ("/rest/payments/", "/rest/groups/", "/rest/groups/1/close/", "/rest/new-group/", "/rest/function/")
NINJA = ("/api/orders", "/api/routed/later")
PLAIN = ("/shop/plain/", "/any/", "/later/", "/class/")
LISTED = {
    ("GET", "/rest/groups/", "not needed"),
    ("POST", "/rest/groups/", "protected"),
    ("DELETE GET PUT", "/rest/groups/<pk>/", "not needed"),
    ("PATCH", "/rest/groups/<pk>/", "protected"),
    ("POST", "/rest/groups/<pk>/close/", "protected"),
    ("POST", "/rest/groups/search/", "exempt"),
    ("POST", "/rest/groups/<pk>/own/", "its own"),
    ("GET", "/rest/payments/", "not needed"),
    ("POST", "/rest/payments/", "protected"),
    ("GET", "/rest/read-only/", "not needed"),
    ("POST", "/rest/new-group/", "protected"),
    ("GET", "/rest/own/", "not needed"),
    ("POST", "/rest/own/", "its own"),
    ("GET", "/rest/function/", "not needed"),
    ("POST", "/rest/function/", "protected"),
    ("POST", "/rest/exempt/", "exempt"),
    ("POST", "/shop/plain/", "protected"),
    ("PATCH POST", "/any/", "protected"),
    ("GET", "/report/", "not needed"),
    ("POST", "/later/", "protected"),
    ("POST", "/hook/", "exempt"),
    ("POST", "/decorated/", "its own"),
    ("GET PUT", "/class/", "not needed"),
    ("POST", "/class/", "protected"),
    ("PATCH", "/class/", "exempt"),
    ("GET", "/api/orders", "not needed"),
    ("POST", "/api/orders", "protected"),
    ("PATCH", "/api/orders", "exempt"),
    ("POST", "/api/own", "its own"),
    ("POST", "/api/routed/later", "protected"),
}


@pytest.fixture(autouse=True)
def _open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "permitted", True)
    monkeypatch.setattr(Gate, "has_room", True)


def post(url: str, name: str | None = "alice", key: str | None = KEY, method: str = "POST") -> Any:
    """Post as this person: with a token to an API, with a session to a plain view."""
    client = Client(raise_request_exception=False)
    headers = {} if key is None else {"Idempotency-Key": key}
    if name is not None:
        user, _ = User.objects.get_or_create(username=name)
        if url.startswith(("/rest/", "/api/")):
            headers["Authorization"] = f"Bearer {name}"
        else:
            client.force_login(user)
    body = json.dumps({"name": f"of {name}"})
    return client.generic(method, url, body, "application/json", headers=headers)


def listed(*arguments: str) -> list[dict[str, Any]]:
    output = StringIO()
    call_command("idempotency_endpoints", "--json", *arguments, stdout=output)
    entries: list[dict[str, Any]] = json.loads(output.getvalue())["endpoints"]
    return entries


def kind(entry: dict[str, Any]) -> str:
    return "its own" if str(entry.get("operation")).endswith(".own") else entry["protection"]


def policy_at(url: str, *patterns: Any) -> Any:
    (policy,) = Endpoint("", view_at(url, *patterns)).around
    return policy


def view_at(url: str, *patterns: Any) -> Any:
    urls: Any = type("Urls", (), {"urlpatterns": patterns})
    return get_resolver(urls).resolve(url).func


def test_every_view_gets_what_the_inventory_says() -> None:
    assert {(" ".join(sorted(each["methods"])), each["paths"][0], kind(each)) for each in listed()} == LISTED


def test_the_arguments_are_the_policy_of_every_view_that_has_none_of_its_own() -> None:
    protected = [each for each in listed() if each["protection"] == "protected"]
    retentions = {kind(each): each["retention"] for each in protected}
    assert retentions == {"protected": None, "its own": 86400.0}


def test_the_list_is_what_a_request_without_a_key_meets() -> None:
    Group.objects.create(pk=1, name="first")
    for methods, url, protection in LISTED:
        for method in methods.split():
            response = post(url.replace("<pk>", "1"), key=None, method=method)
            refused = b"idempotency_key_missing" in response.content
            assert refused is (protection in ("protected", "its own")), (method, url, response.content)


@pytest.mark.parametrize("url", [*REST, *NINJA, *PLAIN])
def test_a_retry_gets_the_first_response(url: str) -> None:
    first, second = post(url), post(url)
    assert first.status_code in (200, 201), first.content
    assert same_answer(first, second)
    assert IdempotencyKey.objects.count() == 1


@pytest.mark.parametrize("url", [*REST, *PLAIN])
def test_it_works_in_atomic_requests(url: str) -> None:
    with atomic_requests():
        first, second = post(url), post(url)
    assert first.status_code in (200, 201), first.content
    assert same_answer(first, second)


def test_a_path_of_ninja_in_atomic_requests_is_reported() -> None:
    with atomic_requests():
        assert {each.msg.split(":")[0] for each in said() if each.id == "django_idempotency.E020"} == {
            "/api/orders",
            "/api/own",
            "/api/routed/later",
        }


@pytest.mark.parametrize("url", [*REST, *NINJA, *PLAIN])
def test_nobody_else_gets_the_response(url: str) -> None:
    first, other, nobody = post(url), post(url, name="bob"), post(url, name=None)
    assert (other.status_code, nobody.status_code in (401, 403)) == (first.status_code, True)
    assert not any(each.has_header("Idempotency-Replayed") for each in (first, other, nobody))
    assert IdempotencyKey.objects.count() == 2


@pytest.mark.parametrize("url", [*REST, *NINJA])
def test_a_permission_is_checked_before_a_replay(url: str) -> None:
    post(url)
    Gate.permitted = False
    response = post(url)
    assert response.status_code in (401, 403)
    assert not response.has_header("Idempotency-Replayed")


@pytest.mark.parametrize("url", REST)
def test_throttling_comes_before_a_replay(url: str) -> None:
    post(url)
    Gate.has_room = False
    assert post(url).status_code == 429


@pytest.mark.parametrize("url", ["/rest/groups/1/own/", "/rest/own/", "/decorated/", "/api/own"])
def test_a_view_keeps_its_own_policy(url: str) -> None:
    assert same_answer(post(url), post(url))
    assert IdempotencyKey.objects.get().operation.endswith(".own")


@pytest.mark.parametrize("url", ["/rest/groups/search/", "/rest/exempt/", "/hook/"])
def test_an_exempt_view_runs_again(url: str) -> None:
    assert [post(url).json()["run"] for _ in range(2)] == [1, 2]
    assert not IdempotencyKey.objects.exists()


def test_the_views_of_installed_packages_stay_as_they_are() -> None:
    before, after = (
        {each.route: each.callback for each in endpoints(patterns) if package_of(each)}
        for patterns in (whole_project.routes, whole_project.urlpatterns)
    )
    assert before == after
    assert {"admin/login/", "token/"} <= before.keys()


def test_a_package_is_protected_if_the_call_names_it() -> None:
    routes = protect_all(whole_project.routes, packages=["rest_framework.authtoken"])
    assert hasattr(view_at("/token/", *routes).cls, "idempotency")
    assert not hasattr(view_at("/token/", *protect_all(whole_project.routes)).cls, "idempotency")


def test_routes_keep_their_names_and_views_their_descriptions() -> None:
    assert (reverse("shop:plain"), reverse("group-list")) == ("/shop/again/", "/rest/groups/")
    view = view_at("/rest/payments/", *whole_project.urlpatterns).cls
    assert (view.__name__, view.__module__, view.__doc__) == ("Payments", Payments.__module__, "What a payment is.")
    assert view_at("/rest/function/", *whole_project.urlpatterns).cls.__doc__ == "What the function does."


def test_the_call_changes_no_view_of_the_project() -> None:
    assert view_at("/rest/payments/", *whole_project.routes).cls is Payments
    assert view_at("/any/", *whole_project.routes) is whole_project.any_method


def test_marks_that_decorators_set_on_a_callback_stay() -> None:
    view: Any = Payments.as_view()
    view.mark = "of a decorator"
    (route,) = protect_all([path("payments/", view)])
    assert view_at("/payments/", route).mark == "of a decorator"


def test_the_system_checks_see_what_the_call_protects(settings: Any) -> None:
    assert [each.id for each in said() if each.id != "django_idempotency.W030"] == []

    permitted = permission_required("auth.add_group", raise_exception=True)
    refunds = NinjaAPI(urls_namespace="refunds")

    @refunds.post("/refund")
    @decorate_view(permitted)
    def refund(request: HttpRequest) -> Any: ...

    routes: list[Any] = [path("refund/", permitted(whole_project.any_method)), path("api/", refunds.urls)]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": protect_all(routes, mode="leased")})
    found = [each.msg.split(":")[0] for each in said() if each.id == "django_idempotency.E032"]
    assert found == ["/refund/", "/api/refund"]


@pytest.mark.parametrize("around", [cache_page(60), bare_wrapper])
def test_a_decorator_around_a_view_of_rest_framework_is_an_error(around: Callable[[Any], Any]) -> None:
    """The class is behind the decorator: to replace it would drop what the decorator checks."""
    with pytest.raises(Misplaced, match=r"^/payments/: Payments cannot be protected from outside.*@exempt"):
        protect_all([path("payments/", around(Payments.as_view()))])
    kept = exempt(around(Payments.as_view()))
    assert view_at("/payments/", *protect_all([path("payments/", kept)])) is kept


def test_an_async_view_of_rest_framework_is_an_error() -> None:
    class Later(Payments):
        async def get(self, request: Any) -> Any: ...  # type: ignore[override]

        async def post(self, request: Any) -> Any: ...  # type: ignore[override]

    with pytest.raises(Misplaced, match="Later cannot be protected from outside, because it is async"):
        protect_all([path("later/", Later.as_view())])


def test_a_wrong_argument_is_an_error_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="did you mean 'required'"):
        protect_all([], requird=False)
    with pytest.raises(TypeError, match="protect_all takes no `operation`"):
        protect_all([], operation="orders")


def test_the_methods_may_be_chosen() -> None:
    (route,) = protect_all([path("class/", whole_project.Plain.as_view())], methods={"PUT", "PATCH", "DELETE"})
    assert policy_at("/class/", route).methods == {"PUT"}
