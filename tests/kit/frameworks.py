"""Every framework whose views can be protected, and what differs between them. The views are in `framework_views`."""

from dataclasses import dataclass
from typing import Any

MUTATION = "mutation ($name: String!, $fail: Boolean!) { order(name: $name, fail: $fail) }"


@dataclass(frozen=True)
class Framework:
    name: str
    guide: str  # below docs/how-to/
    path: str
    unauthenticated: int = 403  # the status of the refusal
    raised: int = 500  # the status of the first response, if the view raises
    graphql: bool = False
    middleware: bool = False

    def __str__(self) -> str:
        return self.path.strip("/")

    def body(self, name: str, *, fail: bool = False) -> dict[str, Any]:
        order = {"name": name, "fail": fail}
        return {"query": MUTATION, "variables": order} if self.graphql else order


# The last one has a transaction open while it runs: on SQLite no other request can begin then.
FRAMEWORKS = [
    Framework("Django, function view", "plain-django.md", "/function"),
    Framework("Django, class-based view", "plain-django.md#a-class", "/class"),
    Framework("Django, async function view", "async.md", "/async-function"),
    Framework("Django, async class-based view", "async.md", "/async-class"),
    Framework("Django REST framework, mixin on `APIView`", "drf.md", "/rest/mixin"),
    Framework("Django REST framework, viewset action", "drf.md", "/rest/viewset/order/"),
    Framework("Django REST framework, `@api_view`", "drf.md", "/rest/api-view"),
    Framework("django-ninja, operation", "ninja.md", "/ninja/sync", unauthenticated=401),
    Framework("django-ninja, async operation", "ninja.md", "/ninja/async", unauthenticated=401),
    Framework("Strawberry, GraphQL mutation", "graphql.md", "/graphql", raised=409, graphql=True),
    Framework("Middleware, async view", "whole-project.md#with-the-middleware", "/middleware/async", middleware=True),
    Framework("Middleware, function view", "whole-project.md#with-the-middleware", "/middleware/sync", middleware=True),
]
