"""drf-spectacular's `@extend_schema` beside `@idempotent`, in either order, wherever both can stand."""

import pytest
from drf_spectacular.generators import SchemaGenerator

from tests.http import described_views
from tests.kit.http import Person, Ran, same_answer

pytestmark = [pytest.mark.urls(described_views.__name__), pytest.mark.django_db]

ROUTES = {
    "/things/": "method_idempotent_first",
    "/things/first/": "action_idempotent_first",
    "/things/second/": "action_schema_first",
    "/things/third/": "action_last",
    "/view/first": "view_idempotent_first",
    "/view/second": "view_schema_first",
    "/view/below": "view_below",
}


@pytest.mark.parametrize("route", ROUTES)
def test_each_order_protects(alice: Person, route: str) -> None:
    first, second = (alice.post(route) for _ in range(2))
    assert first.status_code == 201
    assert same_answer(first, second)
    assert Ran.count == 1


def test_each_order_keeps_the_schema() -> None:
    schema = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    found = {route: methods["post"]["operationId"] for route, methods in schema["paths"].items()}
    assert found == ROUTES
