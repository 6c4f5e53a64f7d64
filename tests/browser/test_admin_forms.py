"""The admin's form for a new object, sent as people send forms: with a double click."""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.admin import GroupAdmin
from django.contrib.auth.models import Group, User
from django.urls import path

from django_idempotency.admin_forms import IdempotentAdminMixin
from tests.browser.browsing import cookie_of, launched

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes, pytest.mark.urls(__name__)]


class OwnGroupAdmin(IdempotentAdminMixin, GroupAdmin):
    def save_model(self, request: Any, obj: Group, form: Any, change: bool) -> None:
        obj.name = f"{obj.name} {Group.objects.count() + 1}"  # the form alone would refuse a second of the same name
        super().save_model(request, obj, form, change)
        sleep(0.2)  # long enough for a second click


site = AdminSite()
site.register(Group, OwnGroupAdmin)
urlpatterns = [path("admin/", site.urls)]


@pytest.fixture
def tab(live_server: Any) -> Iterator[Any]:
    """A tab of a browser that is logged in. Beside it, this thread asks the database nothing."""
    cookie = cookie_of(User.objects.create(username="alice", is_staff=True, is_superuser=True), live_server.url)
    for chromium in launched():
        context = chromium.new_context(base_url=live_server.url)
        context.add_cookies([cookie])
        yield context.new_page()


def test_a_double_click_on_save_adds_one_object(tab: Any) -> None:
    tab.goto("/admin/auth/group/add/")
    tab.fill("[name=name]", "editors")
    tab.locator("[name=_save]").dblclick()
    tab.wait_for_selector("#result_list")
    assert tab.locator("#result_list tbody th a").all_inner_texts() == ["editors 1"]
