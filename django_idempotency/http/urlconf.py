"""What the URLconf leads to: every callback, the layers it is wrapped in, and the policies found there."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

from django.urls import ResolverMatch

from django_idempotency.conf import Arguments
from django_idempotency.http.exchange import MARK


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route and what is called for it."""

    route: str
    callback: Any
    name: str = ""  # as requests know it, with its namespaces

    @property
    def layers(self) -> list[Any]:
        return list(layers(self.callback))

    @property
    def view(self) -> type | None:
        """The class behind the callback, where there is one."""
        return next(filter(None, map(_class_of, self.layers)), None)

    @property
    def is_rest(self) -> bool:
        return any(hasattr(layer, "cls") for layer in self.layers)

    @property
    def handlers(self) -> Mapping[str, str]:
        """HTTP methods in small letters, and the names of the methods that answer them."""
        actions = next((layer.actions for layer in self.layers if getattr(layer, "actions", None)), None)
        if actions is not None:
            return dict(actions)
        names = getattr(self.view, "http_method_names", ())
        return {name: name for name in names if hasattr(self.view, name)}

    @property
    def around(self) -> list[Arguments]:
        """The policies of the decorators around the view."""
        return [mark for mark in map(mark_of, self.layers) if mark is not None]

    @property
    def inside(self) -> dict[str, Arguments]:
        """The policies of the decorated methods of its class, by name."""
        return {} if self.view is None else dict(_decorated(self.view))


def endpoints(patterns: Iterable[Any], prefix: str = "", namespace: str = "") -> Iterator[Endpoint]:
    """Every route below these patterns."""
    for pattern in patterns:
        route = f"{prefix}{pattern.pattern}"
        if hasattr(pattern, "url_patterns"):
            inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from endpoints(pattern.url_patterns, route, inner)
        else:
            match = ResolverMatch(pattern.callback, (), {}, url_name=pattern.name)
            yield Endpoint(route, pattern.callback, f"{namespace}{match.view_name}")


def layers(callback: Any) -> Iterator[Any]:
    """A callable and what it wraps, outermost first. Behind a class-based view nothing is looked for."""
    seen: set[int] = set()
    found = [callback]
    while found:
        layer = found.pop()
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        yield layer
        if _class_of(layer) is None:
            found.extend(_wrapped_by(layer))


def mark_of(layer: Any) -> Arguments | None:
    """What `@idempotent` left on exactly this callable."""
    mark = getattr(layer, "__dict__", {}).get(MARK)
    return mark if isinstance(mark, Arguments) else None


def _class_of(layer: Any) -> type | None:
    view: type | None = getattr(layer, "cls", None) or getattr(layer, "view_class", None)
    return view


def _wrapped_by(layer: Any) -> Iterator[Any]:
    if isinstance(layer, partial):
        yield layer.func
        return
    for cell in getattr(layer, "__closure__", None) or ():
        try:
            content = cell.cell_contents
        except ValueError:  # not filled yet
            continue
        if isinstance(content, FunctionType | partial):
            yield content
    if hasattr(layer, "__wrapped__"):
        yield layer.__wrapped__


def _decorated(view: type) -> Iterator[tuple[str, Arguments]]:
    names = {name for base in view.__mro__ for name, value in vars(base).items() if isinstance(value, FunctionType)}
    for name in sorted(names):
        marks = (mark_of(layer) for layer in layers(getattr(view, name)))
        mark = next(filter(None, marks), None)
        if mark is not None:
            yield name, mark
