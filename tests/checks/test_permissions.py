"""A permission has to be asked for before a replay is given."""

from operator import attrgetter
from typing import Any

import pytest
from django.contrib.auth.decorators import login_required, permission_required, user_passes_test
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt

from django_idempotency.decorators import exempt, idempotent
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
    assert "user_passes_test" in messages[0].msg
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
