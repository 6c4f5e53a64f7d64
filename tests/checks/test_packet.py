"""What the check says where the database refuses statements that are large enough for a response."""

from typing import Any

import pytest
from django.db import connection

from django_idempotency.checks.project import check_packet
from tests.checks.messages import ids

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]


def test_w062_a_response_that_fits_into_no_statement(settings: Any) -> None:
    assert ids(check_packet(None, databases=["default"])) == []
    settings.IDEMPOTENCY = {"MAX_BODY": 2**31}
    assert ids(check_packet(None, databases=["default"])) == (["W062"] if connection.vendor == "mysql" else [])
    assert ids(check_packet(None)) == []
