"""Permissions that a view checks inside its protection: a replay would be given before they are checked."""

from collections.abc import Iterator

from django_idempotency.http.private_names import is_permission_mixin, tests_more_than_login
from django_idempotency.http.urlconf import Endpoint, is_guard, layers, mark_of


def permission_inside(endpoint: Endpoint, *, whole_view: bool = False) -> str:
    """Return the name of what checks a permission inside the protection; empty if nothing does.

    With `whole_view` the protection is around the callback, as the middleware's is. A login needs no such order: the
    scope of a key has one already.
    """
    view = endpoint.view
    found = _in_layers(endpoint, whole_view) if view is None else _in_class(view, endpoint, whole_view)
    return next(found, "")


def _in_class(view: type, endpoint: Endpoint, whole_view: bool) -> Iterator[str]:
    inside = whole_view or (bool(endpoint.around) and "dispatch" not in endpoint.inside)
    for base in view.__mro__:
        if inside and is_permission_mixin(base):
            yield base.__name__
        inside = inside or mark_of(vars(base).get("dispatch")) is not None


def _in_layers(endpoint: Endpoint, whole_view: bool) -> Iterator[str]:
    outermost = [endpoint.callback] if whole_view else filter(is_guard, endpoint.layers)
    if any(tests_more_than_login(inside) for each in outermost for inside in layers(each)):
        yield "permission_required or user_passes_test"
