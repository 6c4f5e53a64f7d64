"""Where the mixin and the decorator can stand in Django REST framework, and what each place protects."""

from typing import Any

import pytest
from django.contrib.auth.decorators import permission_required
from django.contrib.auth.models import Group, User
from django.db import connection, transaction
from django.test import override_settings
from django.urls import path, re_path
from rest_framework.authentication import SessionAuthentication
from rest_framework.decorators import action, api_view, authentication_classes
from rest_framework.exceptions import ValidationError
from rest_framework.generics import CreateAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import Misplaced
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.checks.views import RestDispatched
from tests.http import rest_views
from tests.http.rest_views import Chosen, write
from tests.kit.http import KEY, Person, Ran, atomic_requests, same_answer

pytestmark = [pytest.mark.urls("tests.http.rest_views"), pytest.mark.django_db]

PROTECTED = [
    ("POST", "/thing"),
    ("POST", "/optional"),
    ("POST", "/generic"),
    ("POST", "/groups/"),
    ("PATCH", "/groups/{pk}/"),
    ("POST", "/groups/{pk}/above/"),
    ("POST", "/groups/{pk}/below/"),
    ("POST", "/chosen"),
    ("POST", "/api-view/above"),
    ("PATCH", "/api-view/above"),
    ("POST", "/api-view/below"),
    ("POST", "/api-view/below/7"),
]
NOT_TAKEN_OVER = ("/api-view/below", "/api-view/below/7")  # they cannot opt out of ATOMIC_REQUESTS


@pytest.mark.parametrize(
    ("method", "route", "around"),
    [
        (method, route, around)
        for method, route in PROTECTED
        for around in (False, True)
        if not (around and route in NOT_TAKEN_OVER)
    ],
)
def test_a_repeat_gets_the_first_answer_to_the_byte(alice: Person, method: str, route: str, around: bool) -> None:
    url = route.format(pk=Group.objects.create(name="first").pk)
    with atomic_requests(around):
        first = alice.post(url, {"name": "second"}, method=method)
        second = alice.post(url, {"name": "second"}, method=method)
    assert first.status_code in (200, 201), first.content
    assert same_answer(first, second)
    assert {"Allow", "Vary", "Content-Type"} <= set(second.headers)
    assert Ran.count == 1


@pytest.mark.parametrize(
    ("method", "route"),
    [("PUT", "/thing"), ("GET", "/thing"), ("PATCH", "/chosen"), ("POST", "/groups/left_alone/"), ("DELETE", "/thing")],
)
def test_what_is_not_protected_needs_no_key_and_leaves_no_row(alice: Person, method: str, route: str) -> None:
    first, second = (alice.post(route, {"name": "x"}, method=method, key=key) for key in (None, KEY))
    assert (first.status_code, Ran.count) == (second.status_code, 0 if method in ("GET", "DELETE") else 2)
    assert not IdempotencyKey.objects.exists()


def test_a_method_that_the_view_does_not_have_is_405_with_and_without_a_key(alice: Person) -> None:
    first, second = (alice.post("/thing", method="PATCH", key=key) for key in (None, KEY))
    assert (first.status_code, second.status_code) == (405, 405)
    assert not IdempotencyKey.objects.exists()


def test_an_action_has_the_policy_that_it_declares(alice: Person) -> None:
    pk = Group.objects.create(name="first").pk
    for route in ("/groups/", f"/groups/{pk}/above/", f"/groups/{pk}/below/"):
        alice.post(route, {"name": "second"})
    alice.post(f"/groups/{pk}/", {"name": "third"}, method="PATCH")
    operations = IdempotencyKey.objects.values_list("operation", flat=True)
    assert set(operations) == {"group-list", "group-above", "group-below", "groups.rename"}


class Told(ViewSet):
    permission_classes: Any = []
    authentication_classes = [SessionAuthentication]

    def create(self, request: Request) -> Response:
        return write()

    @action(detail=False, methods=["post"], idempotency={"mode": "atomic", "operation": "its own"})
    def charge(self, request: Request) -> Response:
        return write()


class ToldByRoute(IdempotentMixin, Told):
    """Says nothing itself."""

    idempotency = None


def test_a_route_may_have_a_policy_of_its_own(alice: Person, settings: Any) -> None:
    """As DRF hands over every other attribute: `as_view(…)` and `@action(…)`."""
    router = SimpleRouter()
    router.register("set", ToldByRoute, basename="set")
    of_view = Chosen.as_view(idempotency={"operation": "by route"})
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("view", of_view), *router.urls]})
    for route, method in (("/view", "PATCH"), ("/set/charge/", "POST")):
        first, second = (alice.post(route, method=method) for _ in range(2))
        assert same_answer(first, second), route
    assert [alice.post("/set/").json() for _ in range(2)] == [{"run": 3}, {"run": 4}]
    assert set(IdempotencyKey.objects.values_list("operation", flat=True)) == {"by route", "its own"}
    with pytest.raises(ValueError, match="mode"):
        Chosen.as_view(idempotency={"mode": "both"})


def test_a_view_may_decide_for_each_request(alice: Person, settings: Any) -> None:
    class Deciding(IdempotentMixin, rest_views.Authenticated):
        def setup(self, request: Any, *args: Any, **kwargs: Any) -> None:
            super().setup(request, *args, **kwargs)
            self.idempotency = {"operation": "decided"}

        def patch(self, request: Request) -> Response:
            return write()

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", Deciding.as_view(), name="it")]})
    first, second = (alice.post("/it", method="PATCH") for _ in range(2))
    assert same_answer(first, second)
    assert IdempotencyKey.objects.get().operation == "decided"


def test_a_view_that_answers_for_another_is_claimed_once(alice: Person, settings: Any) -> None:
    class Outer(IdempotentMixin, rest_views.Authenticated):
        idempotency = {"transaction": "late"}

        def post(self, request: Request) -> Any:
            return rest_views.Thing.as_view()(request._request)

    class OuterOfFunction(Outer):
        def post(self, request: Request) -> Any:
            return rest_views.below(request._request)

    views = {"class": Outer, "function": OuterOfFunction}
    urls = [path(name, view.as_view(), name=name) for name, view in views.items()]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": urls})
    for name in views:
        first, second = (alice.post(f"/{name}") for _ in range(2))
        assert first.status_code == 201, first.content
        assert same_answer(first, second)
    assert set(IdempotencyKey.objects.values_list("operation", flat=True)) == set(views)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("declared", [{}, {"mode": "atomic"}, {"transaction": "late"}], ids=str)
@pytest.mark.parametrize("around", [True, False], ids=["ATOMIC_REQUESTS", "without"])
def test_a_view_that_answers_for_another_may_refuse(
    alice: Person, settings: Any, declared: dict[str, Any], around: bool
) -> None:
    """DRF marks a transaction for rollback then: that of the inner view, not the one that stores the answer."""

    class Inner(IdempotentMixin, APIView):
        permission_classes: list[Any] = []
        authentication_classes: list[Any] = []

        def post(self, request: Request) -> Response:
            Group.objects.create(name="inner")
            raise ValidationError("no")

    class Outer(IdempotentMixin, rest_views.Authenticated):
        idempotency = declared

        def post(self, request: Request) -> Any:
            return Inner.as_view()(request._request)

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", Outer.as_view(), name="it")]})
    with atomic_requests(around):
        first, second = (alice.post("/it") for _ in range(2))
    assert first.status_code == 400, first.content
    assert same_answer(first, second)
    rolled_back = around and "transaction" not in declared
    assert Group.objects.exists() is not rolled_back


def test_two_objects_behind_one_route_are_two_requests(alice: Person) -> None:
    one, other = (Group.objects.create(name=name).pk for name in ("one", "other"))
    assert alice.post(f"/groups/{one}/above/").status_code == 201
    assert alice.post(f"/groups/{other}/above/").status_code == 422


def test_the_view_knows_whether_it_is_protected(alice: Person) -> None:
    assert alice.client.get("/thing").json() == {"active": False}


def test_positional_url_arguments_reach_a_function_below_api_view(alice: Person, settings: Any) -> None:
    @api_view(["POST"])
    @authentication_classes([SessionAuthentication])
    @idempotent
    def positional(request: Request, number: str) -> Response:
        return Response({"number": number, "run": Ran.again()})

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [re_path(r"^positional/(\d+)$", positional)]})
    first, second = (alice.post("/positional/7") for _ in range(2))
    assert first.json() == {"number": "7", "run": 1}
    assert same_answer(first, second)


def test_without_a_resolver_the_path_names_the_operation(alice: Person) -> None:
    request = APIRequestFactory().post("/anywhere", {}, format="json", headers={"Idempotency-Key": KEY})
    force_authenticate(request, alice.user)
    assert rest_views.Thing.as_view()(request).status_code == 201
    assert IdempotencyKey.objects.get().operation == "/anywhere"


# What cannot hold says so


@pytest.mark.django_db(transaction=True)
def test_below_api_view_nobody_can_opt_out_of_atomic_requests(alice: Person) -> None:
    with atomic_requests():
        assert alice.post("/api-view/below").status_code == 500
    assert Ran.count == 0


def test_below_api_view_the_request_has_its_attribute_without_a_key(alice: Person) -> None:
    assert alice.post("/api-view/below-optional", key=None).json() == {"active": False}
    assert alice.post("/api-view/below-optional").json() == {"active": True}


def test_a_decorated_dispatch_is_an_error_at_run_time_too(alice: Person, settings: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", RestDispatched.as_view())]})
    alice.client.raise_request_exception = True
    with pytest.raises(Misplaced, match=r"class RestDispatched\(IdempotentMixin, …\)"):
        alice.post("/it")
    assert Ran.count == 0


def test_a_hand_written_view_without_the_mixin_is_told_how_to_get_it(alice: Person) -> None:
    alice.client.raise_request_exception = True
    with pytest.raises(Misplaced, match=r"class HandWritten\(IdempotentMixin, …\)"):
        alice.post("/hand-written")
    with pytest.raises(Misplaced, match=r"class HandWritten\(IdempotentMixin, …\)"):
        idempotent(rest_views.HandWritten.as_view())
    assert Ran.count == 0


def test_a_decorated_method_that_is_not_the_handler_says_so(alice: Person, settings: Any) -> None:
    class Create(IdempotentMixin, CreateAPIView[Group], rest_views.Authenticated):
        idempotency = None

        @idempotent
        def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
            return write()

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("create", Create.as_view())]})
    alice.client.raise_request_exception = True
    with pytest.raises(Misplaced, match=r"Create\.create is not what answers POST"):
        alice.post("/create")
    assert Ran.count == 0


def test_a_decorated_method_may_call_the_decorated_one_it_overrides(alice: Person, settings: Any) -> None:
    class Overriding(rest_views.Chosen):
        @idempotent(mode="atomic")
        def post(self, request: Request) -> Response:
            return super().post(request)

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("overriding", Overriding.as_view())]})
    first, second = (alice.post("/overriding") for _ in range(2))
    assert same_answer(first, second)
    assert Ran.count == 1


def test_the_mixin_comes_first() -> None:
    with pytest.raises(Misplaced, match=r"class Late\(IdempotentMixin, …\)"):
        type("Late", (APIView, IdempotentMixin), {})


def test_a_wrong_argument_is_an_error_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="mode must be one of"):
        type("Wrong", (IdempotentMixin, APIView), {"idempotency": {"mode": "magic"}})


def test_a_class_is_decorated_through_its_dispatch() -> None:
    with pytest.raises(Misplaced, match=r'method_decorator\(idempotent, name="dispatch"\)'):
        idempotent(APIView)


# ATOMIC_REQUESTS stays what it was for everything else


@pytest.mark.parametrize(("method", "route"), [("POST", "/unprotected"), ("PUT", "/failing")])
@pytest.mark.parametrize("kind", ["refusal", "crash"])
@pytest.mark.django_db(transaction=True)
def test_unprotected_actions_keep_their_rollback(alice: Person, method: str, route: str, kind: str) -> None:
    with atomic_requests():
        response = alice.post(route, {"raise": kind}, method=method)
    assert response.status_code == (418 if kind == "refusal" else 500)
    assert User.objects.count() == 1, "the write of a failed action is rolled back"
    alice.post(route, {"raise": kind}, method=method)
    assert User.objects.count() == 2, "without ATOMIC_REQUESTS it stays"


def test_a_refusal_does_not_poison_the_transaction_of_a_test_case(alice: Person, anonymous: Person) -> None:
    with atomic_requests():
        assert alice.post("/failing", {"raise": "refusal"}).status_code == 418
        assert anonymous.post("/thing").status_code == 403
        assert alice.post("/unprotected", {"raise": "refusal"}).status_code == 418
    assert not connection.needs_rollback
    assert User.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_the_opt_out_of_a_url_is_kept(alice: Person, settings: Any) -> None:
    class Watching(rest_views.Thing):
        def get(self, request: Request) -> Response:
            return Response({"open": connection.in_atomic_block})

    opted_out = transaction.non_atomic_requests(Watching.as_view())
    urls = [path("in", Watching.as_view()), path("out", opted_out)]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": urls})
    with atomic_requests():
        assert alice.client.get("/in").json() == {"open": True}
        assert alice.client.get("/out").json() == {"open": False}


def test_what_decorates_an_api_view_is_not_lost(alice: Person) -> None:
    """The class behind the function is protected, so a decorator between the two would not run."""

    @api_view(["POST"])
    @authentication_classes([SessionAuthentication])
    def refund(request: Request) -> Response:
        return Response()

    allowed = permission_required("auth.add_user", raise_exception=True)
    with pytest.raises(Misplaced, match="directly above @api_view"):
        idempotent(mode="atomic")(allowed(refund))
    outside = allowed(idempotent(mode="atomic")(refund))
    with override_settings(ROOT_URLCONF=type("Urls", (), {"urlpatterns": [path("refund", outside)]})):
        assert alice.post("/refund").status_code == 403
