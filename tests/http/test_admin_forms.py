"""The admin's form for a new object adds one object, however often it is sent."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from django_idempotency.admin_forms import IdempotentAdminMixin
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import Misplaced
from django_idempotency.http.inventory import list_endpoints, take_inventory
from django_idempotency.http.rules import list_rules
from django_idempotency.models import IdempotencyKey
from tests.checks.messages import said
from tests.kit.http import Ran, atomic_requests
from tests.kit.threads import actors

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__), pytest.mark.vendor]

FIELD = re.compile(r'name="(?P<name>[^"]+)" value="(?P<value>[0-9a-f-]{36})"')
site = AdminSite("own")
RUNNING, CLICKED = threading.Event(), threading.Event()


class OwnGroupAdmin(IdempotentAdminMixin, GroupAdmin):
    idempotency = {"wait": timedelta(seconds=30)}  # a busy machine may take more than the mixin's five seconds

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        if obj.name == "slow":
            obj.name = f"slow {Ran.again()}"  # the form alone would refuse a second of the same name
            RUNNING.set()
            assert CLICKED.wait(10)
        super().save_model(request, obj, form, change)
        if obj.name == f"fails {Ran.again()}":
            raise RuntimeError("The first try fails.")


class OwnUserAdmin(IdempotentAdminMixin, UserAdmin):  # type: ignore[type-arg] # not generic at run time
    idempotency = {"operation": "staff.add"}


class CopiedGroupAdmin(IdempotentAdminMixin, GroupAdmin):
    save_as = True
    idempotency = {"operation": "copies.add"}


site.register(Group, OwnGroupAdmin)
site.register(User, OwnUserAdmin)
copies = AdminSite("copies")
copies.register(Group, type("Deeper", (CopiedGroupAdmin,), {}))
urlpatterns = [path("admin/", site.urls), path("copies/", copies.urls)]


def staff(name: str = "alice") -> Client:
    client = Client(raise_request_exception=False)
    user, _ = User.objects.get_or_create(username=name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="auth"))
    client.force_login(user)
    return client


def opened(client: Client, url: str = "/admin/auth/group/add/") -> dict[str, str]:
    """The hidden fields of the form that the page shows."""
    field = FIELD.search(client.get(url).content.decode())
    assert field is not None
    return {field["name"]: field["value"]}


@pytest.mark.parametrize("around", [False, True], ids=["plain", "atomic requests"])
def test_a_form_sent_twice_adds_one_object_and_leads_to_the_same_page(around: bool) -> None:
    client = staff()
    with atomic_requests(around):
        form = {**opened(client), "name": "editors"}
        first, second = (client.post("/admin/auth/group/add/", form) for _ in range(2))
    assert [(each.status_code, each["Location"]) for each in (first, second)] == [(302, "/admin/auth/group/")] * 2
    assert (Group.objects.count(), second["Idempotency-Replayed"]) == (1, "true")


def test_a_second_click_while_the_first_request_runs_leads_to_the_same_page() -> None:
    clients = staff(), staff()
    form = {**opened(clients[0]), "name": "slow"}
    with actors(2) as crowd:
        first = crowd[0].start(clients[0].post, "/admin/auth/group/add/", form)
        assert RUNNING.wait(10)
        second = crowd[1].start(clients[1].post, "/admin/auth/group/add/", form, **{"wsgi.multithread": True})
        CLICKED.set()
        responses = [each.result(60) for each in (first, second)]
    assert [(each.status_code, each["Location"]) for each in responses] == [(302, "/admin/auth/group/")] * 2
    assert Group.objects.get().name == "slow 1"


def test_the_page_after_the_form_says_what_was_added() -> None:
    client = staff()
    response = client.post("/admin/auth/group/add/", {**opened(client), "name": "editors"}, follow=True)
    assert "was added successfully" in response.content.decode()


def test_each_form_has_a_key_of_its_own() -> None:
    client = staff()
    assert opened(client) != opened(client)


def test_errors_are_shown_and_free_the_key() -> None:
    client = staff()
    form = opened(client)
    wrong = client.post("/admin/auth/group/add/", {**form, "name": ""})
    assert (wrong.status_code, b"This field is required" in wrong.content) == (422, True)
    assert client.post("/admin/auth/group/add/", {**form, "name": "editors"}).status_code == 302
    assert (Group.objects.count(), IdempotencyKey.objects.count()) == (1, 1)


def test_a_try_that_fails_leaves_nothing_and_may_be_sent_again() -> None:
    client = staff()
    form = {**opened(client), "name": "fails 1"}
    assert client.post("/admin/auth/group/add/", form).status_code == 500
    assert not Group.objects.exists()
    assert client.post("/admin/auth/group/add/", form).status_code == 302
    assert Group.objects.count() == 1


def test_the_permission_is_checked_before_a_replay() -> None:
    client = staff()
    form = {**opened(client), "name": "editors"}
    client.post("/admin/auth/group/add/", form)
    User.objects.get().user_permissions.clear()
    assert client.post("/admin/auth/group/add/", form).status_code == 403
    assert staff("bob").post("/admin/auth/group/add/", form).status_code == 422  # the name is taken
    assert Client().post("/admin/auth/group/add/", form)["Location"].startswith("/admin/login/")


def test_a_popup_gets_the_same_object_again() -> None:
    client = staff()
    form = {**opened(client, "/admin/auth/group/add/?_popup=1"), "name": "editors", "_popup": "1"}
    first, second = (client.post("/admin/auth/group/add/", form) for _ in range(2))
    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert Group.objects.count() == 1


def test_a_form_without_a_key_and_the_form_of_an_old_object_are_as_before() -> None:
    client = staff()
    assert client.post("/admin/auth/group/add/", {"name": "editors"}).status_code == 302
    page = f"/admin/auth/group/{Group.objects.get().pk}/change/"
    assert FIELD.search(client.get(page).content.decode()) is None
    assert client.post(page, {"name": ""}).status_code == 200
    assert not IdempotencyKey.objects.exists()


def test_save_as_new_adds_one_object() -> None:
    client = staff()
    page = f"/copies/auth/group/{Group.objects.create(name='editors').pk}/change/"
    form = {**opened(client, page), "_saveasnew": "1"}
    wrong = client.post(page, {**form, "name": ""})
    assert (wrong.status_code, b"This field is required" in wrong.content) == (422, True)
    for name in ("copy", "copy"):
        copied = client.post(page, {**form, "name": name})
        assert (copied.status_code, Group.objects.filter(name="copy").count()) == (302, 1)
    assert copied["Idempotency-Replayed"] == "true"
    User.objects.get().user_permissions.remove(Permission.objects.get(codename="add_group"))
    assert client.post(page, {**form, "name": "copy"}).status_code == 403
    for name in ("renamed", "renamed"):  # the other buttons change the object, as often as they are pressed
        changed = client.post(page, {**opened_field(form), "name": name})
        assert (changed.status_code, "Idempotency-Replayed" in changed) == (302, False)
    assert IdempotencyKey.objects.count() == 1


def opened_field(form: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in form.items() if name != "_saveasnew"}


def test_an_admin_with_a_template_of_its_own_keeps_it() -> None:
    client = staff()
    page = client.get("/admin/auth/user/add/").content.decode()
    assert "Enter the same password as before" in page
    assert site.get_model_admin(User).add_form_template == "admin/auth/user/add_form.html"
    assert FIELD.search(page)


def test_the_inventory_and_the_checks_know_the_form() -> None:
    found = {each.operation: each.shown_methods for each in take_inventory() if each.protection == "protected"}
    assert found == dict.fromkeys(["own:auth_group_add", "staff.add", "copies.add", "copies.add.save_as_new"], "POST")
    with atomic_requests():
        assert {each.id for each in said()} <= {"django_idempotency.W030"}


def test_the_mixin_behind_the_admin_is_an_error() -> None:
    with pytest.raises(Misplaced, match=r"class Wrong\(IdempotentAdminMixin, …\)"):
        type("Wrong", (GroupAdmin, IdempotentAdminMixin), {})


def test_the_mixin_may_be_part_of_another() -> None:
    base = type("OfTheProject", (IdempotentAdminMixin,), {"idempotency": {"operation": "of the project"}})
    admin: Any = type("Groups", (base, GroupAdmin), {})
    assert admin.add_view._idempotency.given["operation"] == "of the project"


@idempotent
def merge(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class WithViewOfItsOwn(OwnGroupAdmin):
    def get_urls(self) -> list[Any]:
        return [path("merge/", self.admin_site.admin_view(merge), name="merge"), *super().get_urls()]


class Hidden:
    site = AdminSite("hidden")
    site.register(Group, WithViewOfItsOwn)
    urlpatterns = [path("backoffice-7f3a9/", site.urls)]


def test_the_public_rules_do_not_print_the_address_of_the_admin() -> None:
    assert {each.operation for each in list_endpoints(Hidden) if each.policy} == {
        "hidden:auth_group_add",
        "hidden:merge",
    }
    assert list_rules(Hidden, "/") == []
