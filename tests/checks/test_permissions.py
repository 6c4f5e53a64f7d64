"""A permission has to be asked for before a replay is given."""

from functools import wraps
from operator import attrgetter
from typing import Any

import pytest
from django.contrib.auth.decorators import login_required, permission_required, user_passes_test
from django.contrib.auth.mixins import AccessMixin, LoginRequiredMixin, PermissionRequiredMixin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import cache_page, never_cache
from django.views.decorators.clickjacking import xframe_options_deny
from django.views.decorators.csrf import csrf_exempt, csrf_protect, ensure_csrf_cookie, requires_csrf_token
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import etag, require_POST, require_safe
from django.views.decorators.vary import vary_on_cookie
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action, api_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_idempotency.decorators import exempt, idempotent
from django_idempotency.rest_framework import IdempotentMixin
from tests.checks.messages import found, ids
from tests.checks.views import Dispatched, Mixed
from tests.kit.http import MIDDLEWARE, careful_wrapper


def wanted(test: Any) -> Any:
    """A decorator of Django's that asks something."""
    return {"login": login_required, "permission": permission_required("auth.add_group")}.get(test) or user_passes_test(
        lambda user: user.is_staff
    )


def answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Asking(PermissionRequiredMixin, View):
    permission_required = "auth.add_group"

    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class DecoratedInside(Asking):
    @idempotent
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


@pytest.mark.parametrize("test", ["permission", "staff"])
def test_e032_a_permission_asked_inside(settings: Any, test: str) -> None:
    inside = never_cache(idempotent(csrf_exempt(wanted(test)(answer))))
    dispatched: Any = method_decorator(idempotent, name="dispatch")(type("Dispatched", (Asking,), {}))
    messages = found(settings, inside, dispatched.as_view(), idempotent(Asking.as_view()))
    assert ids(messages) == ["E032"] * 3
    assert "outside permission_required or user_passes_test" in messages[0].msg
    assert "PermissionRequiredMixin" in messages[1].msg


def test_e032_a_permission_asked_before(settings: Any) -> None:
    outside = wanted("permission")(idempotent(answer))
    login = idempotent(wanted("login")(answer))  # the scope asks for one already
    later: Any = type("Later", (PermissionRequiredMixin, Dispatched), {"permission_required": "auth.add_group"})
    mixed: Any = type("Mixed", (PermissionRequiredMixin, Mixed), {"permission_required": "auth.add_group"})
    views = [later.as_view(), mixed.as_view(), DecoratedInside.as_view(), never_cache(csrf_exempt(outside))]
    assert found(settings, outside, login, *views) == []


def test_e032_looks_at_nothing_beside_the_protection(settings: Any) -> None:
    def by_method(get: Any, post: Any) -> Any:
        def chosen(request: HttpRequest) -> HttpResponse:
            answered: HttpResponse = (post if request.method == "POST" else get)(request)
            return answered

        return chosen

    asking = wanted("permission")
    assert found(settings, by_method(asking(answer), asking(idempotent(careful_wrapper(answer))))) == []


def test_e032_any_callable_may_ask(settings: Any) -> None:
    staff = user_passes_test(attrgetter("is_staff"))
    assert ids(found(settings, idempotent(staff(answer)))) == ["E032"]
    assert found(settings, staff(idempotent(careful_wrapper(answer)))) == []


def test_w033_a_permission_asked_behind_the_middleware(settings: Any) -> None:
    views = [wanted("permission")(answer), Asking.as_view()]
    apart = [wanted("login")(answer), wanted("permission")(idempotent(answer)), DecoratedInside.as_view()]
    exempted = [exempt(wanted("permission")(answer)), wanted("permission")(exempt(careful_wrapper(answer)))]
    assert found(settings, *views) == []
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    messages = found(settings, *views, *apart, *exempted)
    assert ids(messages) == ["W033"] * 2
    assert "no PATCH and no POST" in str(messages[0].hint)


# Layers of methods


class Posting(View):
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


def decorated(*decorators: Any, name: str = "post", base: type = Posting) -> Any:
    """A subclass with these decorators, outermost first. Each is a `@method_decorator` of its own."""
    cls: Any = type("Decorated", (base,), {})
    for each in reversed(decorators):
        cls = method_decorator(each, name=name)(cls)
    return cls


ASKING = permission_required("auth.add_group")


def test_e032_a_decorator_of_the_method_under_a_protected_dispatch(settings: Any) -> None:
    def on_the_method(cls: Any) -> Any:
        return method_decorator(idempotent, name="dispatch")(cls).as_view()

    class OnTheMethod(View):
        @method_decorator(never_cache)
        @method_decorator([require_POST, ASKING])
        def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    views = [on_the_method(decorated(ASKING)), on_the_method(OnTheMethod), idempotent(decorated(ASKING).as_view())]
    assert ids(found(settings, *views)) == ["E032"] * 3


def test_e032_a_decorator_below_the_protection_of_the_same_method(settings: Any) -> None:
    in_a_list = decorated([idempotent, ASKING])
    wrong = [decorated(idempotent, ASKING), in_a_list, decorated(idempotent, ASKING, name="dispatch")]
    right = [
        decorated(ASKING, idempotent),
        decorated([ASKING, idempotent]),
        decorated([ASKING, idempotent], name="dispatch"),
    ]
    assert ids(found(settings, *(each.as_view() for each in wrong))) == ["E032"] * 3
    assert found(settings, *(each.as_view() for each in right)) == []


def test_e032_a_decorator_around_the_class(settings: Any) -> None:
    assert ids(found(settings, idempotent(ASKING(Posting.as_view())))) == ["E032"]
    assert found(settings, ASKING(idempotent(Posting.as_view()))) == []


def test_e032_a_method_that_is_not_protected_may_ask(settings: Any) -> None:
    reading = idempotent(decorated(ASKING, name="get").as_view())
    login = idempotent(decorated(login_required).as_view())
    assert found(settings, reading, login) == []


class RestAction(IdempotentMixin, ViewSet):
    @action(detail=False, methods=["post"])
    @method_decorator(ASKING)
    def pay(self, request: Request) -> Response:
        return Response()

    @action(detail=False, methods=["post"])
    @idempotent
    @method_decorator(login_required)
    def refund(self, request: Request) -> Response:
        return Response()


class RestPost(IdempotentMixin, APIView):
    def post(self, request: Request) -> Response:
        return Response()


def test_e032_a_decorator_on_a_method_of_rest_framework(settings: Any) -> None:
    @idempotent
    @api_view(["POST"])
    @ASKING
    def above(request: Request) -> Response:
        return Response()

    @api_view(["POST"])
    @ASKING
    @idempotent
    def right(request: Request) -> Response:
        return Response()

    wrong = [RestAction.as_view({"post": "pay"}), decorated(ASKING, base=RestPost).as_view(), above]
    assert ids(found(settings, *wrong)) == ["E032"] * 3
    outside = decorated(ASKING, base=RestPost, name="dispatch").as_view()
    assert found(settings, RestAction.as_view({"post": "refund"}), outside, RestPost.as_view(), right) == []


def test_w033_a_decorator_of_the_method_behind_the_middleware(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    views = [
        decorated(ASKING).as_view(),
        decorated(ASKING, name="get").as_view(),
        decorated([ASKING, idempotent]).as_view(),
    ]
    assert ids(found(settings, *views)) == ["W033"]


def test_w033_a_method_with_a_protection_of_its_own_is_left_alone(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]

    class Both(Posting):
        @method_decorator([ASKING, idempotent])
        def patch(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    assert found(settings, Both.as_view()) == []


# The project's own


class StaffMixin(AccessMixin):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        return super().dispatch(request) if request.user.is_staff else self.handle_no_permission()  # type: ignore[misc]


class Named(StaffMixin, View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class Prepared(LoginRequiredMixin, Posting):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        self.began = True
        return super().dispatch(request, *args, **kwargs)


class Denying(Posting):
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.user.pk != 1:
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)


def owners_only(view: Any) -> Any:
    @wraps(view)
    def wrapper(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if request.user.pk != 1:
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return wrapper


def forbidding(view: Any) -> Any:
    """A decorator that forgot functools.wraps, and refuses with its own response."""

    def wrapper(request: HttpRequest) -> Any:
        return view(request) if request.user.pk else HttpResponse(status=403)

    return wrapper


def api_key(view: Any) -> Any:
    """A revoked key is refused with 401, as one that was never valid."""

    @wraps(view)
    def wrapper(request: HttpRequest) -> Any:
        return view(request) if request.headers.get("X-Api-Key") == "valid" else HttpResponse(status=401)

    return wrapper


def role_permission(view: Any) -> Any:
    def called(request: HttpRequest) -> Any:
        return view(request) if refuse(request) is None else refuse(request)

    def refuse(request: HttpRequest) -> HttpResponse | None:
        return None

    return called


def test_w036_the_projects_own_mixin_inside(settings: Any) -> None:
    dispatched: Any = method_decorator(idempotent, name="dispatch")(type("Dispatched", (Named,), {}))
    itself: Any = method_decorator(idempotent, name="dispatch")(Denying)
    messages = found(settings, idempotent(Named.as_view()), dispatched.as_view(), itself.as_view())
    assert ids(messages) == ["W036"] * 3
    assert "StaffMixin.dispatch" in messages[0].msg


def test_w036_the_projects_own_mixin_outside(settings: Any) -> None:
    later: Any = type("Later", (StaffMixin, Dispatched), {})
    method = decorated(idempotent, base=Named)
    assert found(settings, later.as_view(), method.as_view(), idempotent(Prepared.as_view())) == []


@pytest.mark.parametrize("asking", [owners_only, forbidding, api_key, role_permission])
def test_w036_the_projects_own_decorator(settings: Any, asking: Any) -> None:
    wrong = [idempotent(asking(answer)), idempotent(decorated(asking).as_view())]
    assert ids(found(settings, *wrong)) == ["W036"] * 2
    assert found(settings, asking(idempotent(careful_wrapper(answer))), decorated([asking, idempotent]).as_view()) == []


def test_w036_what_the_view_itself_refuses_is_its_answer(settings: Any) -> None:
    @idempotent
    def view(request: HttpRequest) -> HttpResponse:
        raise PermissionDenied

    assert found(settings, view, idempotent(careful_wrapper(answer))) == []


def test_w036_behind_the_middleware(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    messages = found(
        settings, owners_only(answer), Named.as_view(), Prepared.as_view(), owners_only(idempotent(answer))
    )
    assert ids(messages) == ["W036"] * 2
    assert "IdempotencyMiddleware" in messages[0].msg


def test_decorators_that_refuse_no_caller_may_be_inside(settings: Any) -> None:
    harmless = [
        *(require_POST, require_safe, never_cache, cache_page(60), gzip_page, vary_on_cookie, xframe_options_deny),
        *(transaction.atomic, transaction.non_atomic_requests, sensitive_post_parameters(), sensitive_variables()),
        *(etag(lambda request: "1"), login_required, extend_schema(tags=["shop"]), careful_wrapper),
    ]
    for each in harmless:
        assert found(settings, *inside(each)) == [], each


# Limits and CSRF


def rate_limit(view: Any) -> Any:
    def limited(request: HttpRequest) -> Any:
        return view(request)

    return limited


def often(view: Any) -> Any:
    def wrapper(request: HttpRequest) -> Any:
        return view(request) if request.user.pk else HttpResponse(status=429)

    return wrapper


def inside(decorator: Any) -> list[Any]:
    """Protected views with this decorator inside their protection."""
    whole, rest = decorated(decorator), decorated(decorator, base=RestPost)
    return [idempotent(decorator(answer)), idempotent(whole.as_view()), rest.as_view()]


@pytest.mark.parametrize("limiter", [rate_limit, often])
def test_w037_a_rate_limiter_inside(settings: Any, limiter: Any) -> None:
    wrong = [
        idempotent(limiter(answer)),
        idempotent(decorated(limiter).as_view()),
        decorated(limiter, base=RestPost).as_view(),
    ]
    assert ids(found(settings, *wrong)) == ["W037"] * 3
    right = [
        limiter(idempotent(answer)),
        decorated([limiter, idempotent]).as_view(),
        idempotent(decorated(limiter, name="get").as_view()),
    ]
    assert found(settings, *right) == []


def durable_block(request: HttpRequest) -> Any:
    with transaction.atomic(durable=True):
        return answer(request)


def test_w045_a_durable_transaction_inside(settings: Any) -> None:
    durable = transaction.atomic(durable=True)
    wrong = [*inside(durable), idempotent(durable_block), idempotent(mode="atomic")(durable_block)]
    assert ids(found(settings, *wrong)) == ["W045"] * len(wrong)
    right = [idempotent(transaction="late")(durable_block), durable_block, idempotent(transaction.atomic(answer))]
    assert found(settings, *right) == []


def test_w037_what_is_not_stored_is_not_replayed(settings: Any) -> None:
    assert found(settings, idempotent(store={404})(rate_limit(answer))) == []
    assert ids(found(settings, idempotent(store=lambda status: status == 429)(rate_limit(answer)))) == ["W037"]


def test_w037_a_rate_limiter_of_a_real_package(settings: Any) -> None:
    ratelimit: Any = pytest.importorskip(
        "django_ratelimit.decorators", reason="NOT TESTED: django-ratelimit is not installed"
    ).ratelimit(key="user", rate="1/h")
    wrong = [
        idempotent(ratelimit(answer)),
        idempotent(decorated(ratelimit).as_view()),
        decorated(ratelimit, base=RestPost).as_view(),
    ]
    assert ids(found(settings, *wrong)) == ["W037"] * 3
    assert found(settings, ratelimit(idempotent(answer)), decorated([ratelimit, idempotent]).as_view()) == []


CSRF = "django.middleware.csrf.CsrfViewMiddleware"


def test_w037_csrf_protect_inside(settings: Any) -> None:
    view = idempotent(csrf_protect(answer))
    exempted = [csrf_exempt(view), csrf_exempt(idempotent(decorated(csrf_protect).as_view()))]
    assert CSRF in settings.MIDDLEWARE
    messages = found(settings, view, *exempted, csrf_exempt(csrf_protect(idempotent(answer))))
    assert ids(messages) == ["W037"] * 2, "where the middleware has looked, the decorator does nothing"
    assert "csrf_protect" in messages[0].msg
    settings.MIDDLEWARE = [each for each in settings.MIDDLEWARE if each != CSRF]
    assert ids(found(settings, view)) == ["W037"]


def test_w037_other_middleware_as_a_decorator(settings: Any) -> None:
    for each in (requires_csrf_token, ensure_csrf_cookie, cache_page(60)):
        assert found(settings, csrf_exempt(idempotent(each(answer)))) == []


def test_w037_behind_the_middleware(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    assert ids(found(settings, rate_limit(answer), rate_limit(idempotent(answer)))) == ["W037"]
