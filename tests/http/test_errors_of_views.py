"""An exception of the view reaches the project as the view raised it, whatever the mode."""

import traceback
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.once import Claim, once
from tests.kit.http import KEY

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_database_error_keeps_the_drivers_cause(mode: str, rf: RequestFactory) -> None:
    """The project tells constraints apart by it, and what walks the causes comes to an end."""

    @idempotent(mode=mode, operation="tests.twice", share_anonymous=True)
    def view(request: HttpRequest) -> HttpResponse:
        for _ in range(2):
            User.objects.create(username="taken")
        raise AssertionError

    with pytest.raises(IntegrityError) as raised:
        view(rf.post("/it", headers={"Idempotency-Key": KEY}))
    cause: Any = raised.value.__cause__
    assert cause is not raised.value
    assert type(cause).__module__.split(".")[0] in ("sqlite3", "psycopg", "pymysql", "MySQLdb")
    assert "username" in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_store_that_is_away_keeps_its_cause(mode: str) -> None:
    def ask_another_store(claim: Claim) -> None:
        raise StoreUnavailable from OSError("The other store did not answer.")

    with pytest.raises(StoreUnavailable) as raised:
        once(scope="tests", key=KEY, run=ask_another_store, mode=mode)
    assert isinstance(raised.value.__cause__, OSError)
