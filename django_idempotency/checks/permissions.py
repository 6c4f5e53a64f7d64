"""Permissions that a view asks for itself, inside its protection: a replay would be given before they are asked."""

from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final

from django_idempotency.http.urlconf import Endpoint, layers, mark_of

_DECORATORS: Final = "django_idempotency.decorators"
_MIXINS: Final = ("PermissionRequiredMixin", "UserPassesTestMixin")  # a login is asked for by the scope already


def asked_inside(endpoint: Endpoint, *, everything: bool = False) -> str:
    """What asks, by name; empty where nothing does. `everything` stands for a protection around the whole view."""
    view = endpoint.view
    found = _in_layers(endpoint, everything) if view is None else _in_class(view, endpoint, everything)
    return next(found, "")


def _in_class(view: type, endpoint: Endpoint, everything: bool) -> Iterator[str]:
    inside = everything or (bool(endpoint.around) and "dispatch" not in endpoint.inside)
    for base in view.__mro__:
        if inside and base.__module__ == "django.contrib.auth.mixins" and base.__name__ in _MIXINS:
            yield base.__name__
        inside = inside or mark_of(vars(base).get("dispatch")) is not None


def _in_layers(endpoint: Endpoint, everything: bool) -> Iterator[str]:
    outermost = [endpoint.callback] if everything else filter(_protects, endpoint.layers)
    if any(_asks(inside) for each in outermost for inside in layers(each)):
        yield "permission_required or user_passes_test"


def _protects(layer: Any) -> bool:
    """Whether it is `@idempotent` itself: its mark is copied by every careful decorator above it."""
    return isinstance(layer, FunctionType) and layer.__globals__.get("__name__") == _DECORATORS


def _asks(layer: Any) -> bool:
    """Whether it is Django's decorator, with a test of more than a login."""
    if not isinstance(layer, FunctionType) or not layer.__code__.co_qualname.startswith("user_passes_test."):
        return False
    held = dict(zip(layer.__code__.co_freevars, layer.__closure__ or (), strict=True))
    test = held["test_func"].cell_contents if "test_func" in held else None
    return test is not None and not getattr(test, "__qualname__", "").startswith("login_required.")
