"""The kit inside Django's own test cases, sync and async."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import TestCase, TransactionTestCase, override_settings
from rest_framework.test import APITestCase

from django_idempotency import Status
from django_idempotency.testing import (
    AsyncIdempotentClient,
    IdempotentAPIClient,
    IdempotentClient,
    assert_idempotent,
    assert_replayed,
    crash_at,
)
from tests.testing.test_crashes import post

pytestmark = pytest.mark.vendor


class Kit:
    client_class: Any = IdempotentClient
    async_client_class: Any = AsyncIdempotentClient
    client: Any
    async_client: Any

    def test_a_crash(self) -> None:
        self.client.force_login(User.objects.create_user("alice"))
        with crash_at("commit") as crashed:
            post(self.client, "leased")
        assert crashed.record is not None
        assert crashed.record.status == Status.IN_PROGRESS

    async def test_a_crash_of_an_async_client(self) -> None:
        await self.async_client.aforce_login(await User.objects.acreate(username="alice"))
        with crash_at("commit") as crashed:
            await post(self.async_client, "async")
        record = await sync_to_async(lambda: crashed.record)()
        assert record is not None
        assert record.status == Status.IN_PROGRESS
        with crash_at("answer"):
            await post(self.async_client, "async")
        assert_replayed(await self.async_client.repeat())

    async def test_an_endpoint_from_an_async_test(self) -> None:
        await self.client.aforce_login(await User.objects.acreate(username="alice"))
        skipped = ["other user", "parallel"]
        report = await sync_to_async(assert_idempotent)(lambda it: post(it, "async"), client=self.client, skip=skipped)
        assert "in flight" in report.checked


@override_settings(ROOT_URLCONF="tests.testing.views")
class TestInOneTransaction(Kit, TestCase):
    pass


@override_settings(ROOT_URLCONF="tests.testing.views")
class TestWithCommits(Kit, TransactionTestCase):
    pass


@override_settings(ROOT_URLCONF="tests.testing.views")
class TestOfRestFramework(APITestCase):
    client_class = IdempotentAPIClient

    def test_an_endpoint(self) -> None:
        alice, bob = (User.objects.create_user(name) for name in ("alice", "bob"))
        other = IdempotentAPIClient()
        self.client.force_authenticate(alice)
        other.force_authenticate(bob)
        report = assert_idempotent(
            lambda client: client.post("/rest", {"amount": 5}, format="json"),
            client=self.client,
            other=other,
            skip=["parallel"],
        )
        assert "unauthenticated" in report.checked
