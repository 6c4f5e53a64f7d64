"""A real browser under a strict policy, and what it complains about."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from typing import Any

import django
import pytest
from django.contrib.auth.models import User

from testproject.policy import POLICY
from tests.kit.console import client_of

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")


def cookie_of(user: User, url: str) -> dict[str, str]:
    return {"name": "sessionid", "value": client_of(user).cookies["sessionid"].value, "url": url}


def launched(*arguments: str, **options: Any) -> Iterator[Any]:
    installed = shutil.which("chromium")
    if installed is None:
        pytest.skip("there is no chromium: the admin was NOT tried in a browser")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=installed, args=["--no-sandbox", *arguments], **options)
        yield browser
        browser.close()


def opened(chromium: Any, cookie: dict[str, str], address: str, **options: Any) -> tuple[Any, list[str]]:
    """The page under the policy, and what the browser complained about."""
    context = chromium.new_context(**options)
    context.add_cookies([cookie])
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if is_complaint(message) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    answer = page.goto(address)
    assert answer.status == 200
    assert is_strict(answer.headers["content-security-policy"])
    return page, complaints


def is_strict(policy: str) -> bool:
    """On Django 6.1 and later nothing is allowed without the answer's nonce."""
    if django.VERSION < (6, 1):
        return policy == POLICY
    found = re.search(r"script-src ('nonce-[\w-]+'); style-src (\S+);", policy)
    return found is not None and found[1] == found[2] and "'unsafe" not in policy


def is_complaint(message: Any) -> bool:
    """The icon that a browser asks for by itself is nobody's page."""
    return message.type == "error" and not message.location["url"].endswith("/favicon.ico")
