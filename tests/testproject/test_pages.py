"""What a person with a browser finds at the service."""

from __future__ import annotations

import re

from tests.kit.processes import Site


def test_the_front_page_leads_to_the_admin(site: Site) -> None:
    answer = site.anyone.get("/")
    assert (answer.status, answer.headers["Location"]) == (302, "/admin/")


def test_the_admin_has_its_styles_and_scripts(site: Site) -> None:
    page = site.anyone.get("/admin/login/").body.decode()
    files = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    assert any(file.endswith(".css") for file in files)
    own = ["/static/django_idempotency/console.css", "/static/django_idempotency/dashboard.css"]
    assert {file: site.anyone.get(file).status for file in [*files, *own]} == dict.fromkeys([*files, *own], 200)
