"""An HTML form, sent as people send forms: twice, again after a reload, and again after the back button."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from time import sleep
from typing import Any

import pytest
from django import forms
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect
from django.template import engines
from django.urls import path

from django_idempotency.admin_forms import IdempotentAdminMixin
from django_idempotency.decorators import idempotent
from tests.browser.browsing import cookie_of, launched

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.processes,
    pytest.mark.urls(__name__),
    pytest.mark.soak,
]

PAGE = """<!doctype html><title>Order</title>
{% load idempotency %}
<form method="post">
  <input type="hidden" name="csrfmiddlewaretoken" value="{{ token }}">{% idempotency_key %}
  {{ form }}<button>Order</button>
</form>
"""


# A browser sends two clicks in the same moment as one. These are a tenth of a second apart.
TWO_CLICKS = "form => { form.requestSubmit(); setTimeout(() => form.requestSubmit(), 100) }"


class OrderForm(forms.Form):
    article = forms.CharField(required=False)

    def clean_article(self) -> str:
        if not self.cleaned_data["article"]:
            raise forms.ValidationError("Name an article.")
        return str(self.cleaned_data["article"])


@idempotent(mode="atomic", wait=timedelta(seconds=5), store=lambda status: status != 422)
def order(request: HttpRequest) -> HttpResponse:
    form = OrderForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        number = Group.objects.count() + 1
        Group.objects.create(name=f"{form.cleaned_data['article']} {number}")
        sleep(0.5)  # long enough for a second click
        return redirect(f"/orders/{number}")
    text = engines["django"].from_string(PAGE).render({"form": form, "token": get_token(request)})
    return HttpResponse(text, status=422 if form.errors else 200)


def ordered(request: HttpRequest, number: int) -> HttpResponse:
    return HttpResponse(f"<!doctype html><title>Done</title><h1>Order {number} of {Group.objects.count()}</h1>")


@idempotent(operation="pages", mode="atomic")
def page(request: HttpRequest) -> HttpResponse:
    """Answer with a page instead of a redirect, so that a reload sends the form again."""
    if request.method == "POST":
        Group.objects.create(name=f"page {Group.objects.count() + 1}")
        return HttpResponse(f"<!doctype html><title>Done</title><h1>Order 1 of {Group.objects.count()}</h1>")
    return order(request)


class OwnGroupAdmin(IdempotentAdminMixin, ModelAdmin):  # type: ignore[type-arg] # not generic at run time
    fields = ["name"]

    def save_model(self, request: HttpRequest, obj: Group, form: Any, change: bool) -> None:
        obj.name = f"{obj.name} {Group.objects.count() + 1}"  # the form alone would refuse a second of the same name
        super().save_model(request, obj, form, change)
        sleep(0.5)  # long enough for a second click


own = AdminSite("own")
own.register(Group, OwnGroupAdmin)
urlpatterns = [
    path("order", order),
    path("orders/<int:number>", ordered),
    path("page", page),
    path("admin/", own.urls),
]


@pytest.fixture
def tab(live_server: Any) -> Iterator[Any]:
    """A tab of a browser that is logged in. Beside it, this thread asks the database nothing."""
    alice = User.objects.create(username="alice", is_staff=True, is_superuser=True)
    cookie = cookie_of(alice, live_server.url)
    for chromium in launched(ignore_default_args=["--disable-back-forward-cache"]):  # as people have it
        context = chromium.new_context(base_url=live_server.url)
        context.add_cookies([cookie])
        yield context.new_page()


def heading(tab: Any) -> str:
    return str(tab.locator("h1").inner_text())


def test_a_double_click_is_one_order_and_shows_it(tab: Any) -> None:
    tab.goto("/order")
    tab.fill("[name=article]", "lamp")
    sent = []
    tab.on("request", lambda request: sent.append(request.method))
    tab.locator("form").evaluate(TWO_CLICKS)
    tab.wait_for_selector("h1")
    assert heading(tab) == "Order 1 of 1"
    assert sent.count("POST") == 2


def test_the_back_button_and_another_click_show_the_same_order(tab: Any) -> None:
    tab.goto("/order")
    tab.fill("[name=article]", "lamp")
    tab.locator("button").click()
    tab.wait_for_selector("h1")
    tab.go_back(wait_until="commit")  # a page that was kept is not loaded again
    tab.fill("[name=article]", "lamp")
    tab.locator("button").click()
    tab.wait_for_selector("h1")
    assert heading(tab) == "Order 1 of 1"


def test_a_reload_of_the_answer_shows_the_same_answer(tab: Any) -> None:
    tab.goto("/page")
    tab.fill("[name=article]", "lamp")
    tab.locator("button").click()
    tab.wait_for_selector("h1")
    with tab.expect_request(lambda request: request.method == "POST"):
        tab.reload()
    assert heading(tab) == "Order 1 of 1"


def test_a_form_that_is_corrected_is_a_new_order(tab: Any) -> None:
    tab.goto("/order")
    first = tab.locator("[name=_idempotency_key]").input_value()
    tab.locator("button").click()
    tab.wait_for_selector(".errorlist")
    assert tab.locator("[name=_idempotency_key]").input_value() != first
    tab.fill("[name=article]", "lamp")
    tab.locator("button").click()
    tab.wait_for_selector("h1")
    assert heading(tab) == "Order 1 of 1"


def test_two_renderings_are_two_orders(tab: Any) -> None:
    for number in (1, 2):
        tab.goto("/order")
        tab.fill("[name=article]", "lamp")
        tab.locator("button").click()
        tab.wait_for_selector("h1")
        assert heading(tab) == f"Order {number} of {number}"


def test_a_double_click_in_the_admin_adds_one_object_and_says_so(tab: Any, settings: Any) -> None:
    settings.MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
    tab.goto("/admin/auth/group/add/")
    tab.fill("[name=name]", "editors")
    sent = []
    tab.on("request", lambda request: sent.append(request.method))
    tab.locator("#group_form").evaluate(TWO_CLICKS)
    tab.wait_for_selector(".messagelist .success")
    assert sent.count("POST") == 2
    assert tab.locator("#result_list .field-__str__").all_inner_texts() == ["editors 1"]


def test_a_form_of_the_admin_that_is_corrected_adds_one_object(tab: Any) -> None:
    tab.goto("/admin/auth/group/add/")
    tab.locator("#group_form").evaluate("form => { form.noValidate = true; form.requestSubmit() }")
    tab.wait_for_selector(".errornote")
    with tab.expect_request(lambda request: request.method == "POST"):
        tab.reload()
    tab.wait_for_selector(".errornote")
    tab.fill("[name=name]", "editors")
    tab.locator("[name=_save]").click()
    tab.wait_for_selector("#result_list")
    assert tab.locator("#result_list .field-__str__").all_inner_texts() == ["editors 1"]
