"""What /exports/ accepts, and what the report holds; workers that make it are in tests/celery."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from django_idempotency.operations import perform
from testproject.payments.models import Export, ExportPage
from tests.kit.http import stored

pytestmark = pytest.mark.django_db(transaction=True)


def ask(client: Client, **wishes: Any) -> Any:
    return client.post("/exports/", wishes, content_type="application/json")


@pytest.mark.parametrize(("page", "pages"), [(5, 2), (6, 1), (7, 1), (1, 6)])
def test_every_payment_is_on_one_page(alice: Client, page: int, pages: int) -> None:
    accepted = ask(alice, page=page)
    assert accepted.status_code == 202
    assert Export.objects.get().owner.username == "alice"

    assert perform(accepted.json()["operation_ref"]) == "landed"

    report = stored(alice.get(accepted.headers["Location"]))
    assert report.headers["Content-Type"] == "text/csv"
    assert report.content.decode().splitlines() == [
        "customer,payments,amount", "ada,1,5000", "barbara,1,3750", "edsger,2,10000", "grace,2,7500",
    ]  # fmt: skip
    assert list(ExportPage.objects.order_by("number").values_list("number", flat=True)) == list(range(1, pages + 1))
    assert ask(alice, page=page).content == report.content


def test_who_has_no_payments_gets_an_empty_report(alice: Client) -> None:
    User.objects.get(username="alice").payments.all().delete()
    accepted = ask(alice)
    perform(accepted.json()["operation_ref"])
    assert stored(alice.get(accepted.headers["Location"])).content == b"customer,payments,amount\r\n"


@pytest.mark.parametrize("wishes", [{"page": 0}, {"page": 1001}, {"simulate": {"sleep": -1}}], ids=str)
def test_a_wrong_wish_is_refused_and_nothing_is_queued(alice: Client, wishes: dict[str, Any]) -> None:
    answer = ask(alice, **wishes)
    assert (answer.status_code, list(answer.json())) == (400, list(wishes))
    assert not Export.objects.exists()
