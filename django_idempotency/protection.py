"""Protection for a whole project: one call protects each view in the way that its framework needs::

    urlpatterns = protect_all(urlpatterns, mode="atomic")

A view of Django REST framework gets the mixin, an operation of django-ninja its own decorator, and any other view
`@idempotent`. So a key is looked up after the authentication, the permissions and the throttling of its framework.
"""

import sys
from collections.abc import Collection, Sequence
from typing import Any

from django.urls import URLPattern, URLResolver

from django_idempotency.conf import Arguments
from django_idempotency.decorators import protect
from django_idempotency.exceptions import Misplaced
from django_idempotency.http.inventory import methods_of, note_caller, package_of
from django_idempotency.http.private_names import is_made_by_api_view
from django_idempotency.http.urlconf import Endpoint

__all__ = ["protect_all"]


def protect_all(
    urlpatterns: Sequence[URLPattern | URLResolver], *, packages: Collection[str] = (), **arguments: Any
) -> list[URLPattern | URLResolver]:
    """Return the routes with their views protected. The arguments are those of `Policy`, without `operation`.

    Views that are decorated or exempt do not change. Neither do views of installed packages, unless `packages` has the
    name of the package that `idempotency_endpoints` shows. The package that calls this is the project's, and so are the
    packages of its settings and its URLconf, even where they are installed.
    """
    if "operation" in arguments:
        raise TypeError("protect_all takes no `operation`: each endpoint has its own, the name of its route.")
    note_caller(sys._getframe(1).f_globals.get("__name__", ""))
    protection = _Protection(Arguments(arguments), packages)
    protected = [protection.of_pattern(each) for each in urlpatterns]
    if not protection.has_effect:
        raise Misplaced(f"protect_all protected no view. {protection.explain_nothing()}")
    return protected


class _Protection:
    """The views protected so far: routes that share a view share what protects it."""

    def __init__(self, arguments: Arguments, packages: Collection[str]) -> None:
        self._arguments = arguments
        self._packages = packages
        self._protected: dict[int, Any] = {}  # by the id of the callback, which need not be hashable
        self._foreign: set[str] = set()  # installed packages whose views stay as they are
        self._others: list[str] = []  # routes whose views take none of the methods
        self.has_effect = False

    def explain_nothing(self) -> str:
        """Return why no view is protected."""
        if self._foreign:
            return (
                "Views of installed packages stay as they are, unless they are named: "
                f"packages={sorted(self._foreign)}."
            )
        if self._others:
            methods = " or ".join(sorted(self._arguments.methods))
            return f"None of its views takes {methods}: {', '.join(self._others[:20])}."
        return "The list is empty."

    def of_pattern(self, pattern: Any, prefix: str = "") -> URLPattern | URLResolver:
        route = f"{prefix}{pattern.pattern}"
        if isinstance(pattern, URLResolver):
            inner = [self.of_pattern(each, route) for each in pattern.url_patterns]
            return URLResolver(pattern.pattern, inner, pattern.default_kwargs, pattern.app_name, pattern.namespace)
        if id(pattern.callback) not in self._protected:
            self._protected[id(pattern.callback)] = self._of_view(Endpoint(route, pattern.callback))
        view = self._protected[id(pattern.callback)]
        return URLPattern(pattern.pattern, view, pattern.default_args, pattern.name)

    def _of_view(self, endpoint: Endpoint) -> Any:
        package = package_of(endpoint)
        if package and package not in self._packages:
            self._foreign.add(package)
            return endpoint.callback
        methods = frozenset() if endpoint.has_mixin else self._undecided(endpoint)
        if methods or endpoint.is_protected or endpoint.is_marked():  # an exempt view is a decision as well
            self.has_effect = True
        else:
            self._others.append(f"/{endpoint.route}")
        if endpoint.has_mixin:
            return endpoint.callback
        if endpoint.is_rest and (methods or _waits_for_mixin(endpoint)):
            from django_idempotency.http.rest import protect_route

            return protect_route(endpoint, self._arguments)
        if not methods:
            return endpoint.callback
        arguments = Arguments({**self._arguments.given, "methods": methods})
        if endpoint.operations:
            from django_idempotency.ninja import protect_operation

            for operation in endpoint.operations:
                if not methods.isdisjoint(operation.methods):
                    protect_operation(arguments, operation)
            return endpoint.callback
        return protect(arguments, endpoint.callback)

    def _undecided(self, endpoint: Endpoint) -> frozenset[str]:
        """Return the methods to protect that the view takes, as far as it says, and whose handler is not marked."""
        named, taken = set(self._arguments.methods), methods_of(endpoint)
        methods = named if taken is None else named.intersection(taken)
        return frozenset(method for method in methods if not endpoint.is_marked(method))


def _waits_for_mixin(endpoint: Endpoint) -> bool:
    """True if methods of the class are decorated: that has an effect with the mixin only."""
    return bool(endpoint.inside) and not endpoint.is_marked() and not is_made_by_api_view(endpoint.view)
