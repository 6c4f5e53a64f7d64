"""Every route of the URLconf, its view, and the policies that protect it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import Resolver404, ResolverMatch, get_resolver, get_script_prefix, resolve

from django_idempotency.conf import Arguments, policy, urlconf
from django_idempotency.http.private_names import ninja_operations, rest_actions, rest_arguments, rest_class
from django_idempotency.http.wrapping import POLICY_MARK, class_of, closure_values, layers, mark_of, marked_methods


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route and its callback."""

    route: str
    callback: Any
    name: str = ""  # with its namespaces, as in `request.resolver_match`

    @property
    def layers(self) -> list[Any]:
        return list(layers(self.callback))

    @property
    def view(self) -> type | None:
        """Return the class behind the callback, if there is one."""
        return next(filter(None, map(class_of, self.layers)), None)

    @property
    def is_rest(self) -> bool:
        return any(rest_class(layer) is not None for layer in self.layers)

    @property
    def handlers(self) -> Mapping[str, str]:
        """Map HTTP methods, in lower case, to the names of the methods that answer them."""
        actions = next(filter(None, map(rest_actions, self.layers)), None)
        names = self.arguments.get("http_method_names", getattr(self.view, "http_method_names", ()))
        if actions is not None:
            return {method: name for method, name in actions.items() if method in names}
        return {name: name for name in names if hasattr(self.view, name)}

    @property
    def is_view_set(self) -> bool:
        return any(map(rest_actions, self.layers))

    @property
    def arguments(self) -> dict[str, Any]:
        """Return the arguments that `as_view` of Django REST framework was given."""
        return next(filter(None, map(rest_arguments, self.layers)), {})

    @property
    def operations(self) -> list[Any]:
        """Return the operations of a path of django-ninja."""
        return [
            each for layer in self.layers for content in closure_values(layer) for each in ninja_operations(content)
        ]

    def layers_of(self, method: str) -> list[Any]:
        """Return the layers that requests with this method pass: of a path of django-ninja only their operation."""
        passed = [each for each in self.operations if method in each.methods]
        return [layer for each in passed for layer in (*layers(each.run), each.view_func)] or self.layers

    def has_own_policy(self, method: str) -> bool:
        """True if the view is decorated, exempt or one of Django REST framework's, under any number of decorators."""
        return self.is_rest or self.is_marked(method)

    def is_marked(self, method: str = "") -> bool:
        """True if `@idempotent` or `@exempt` marks the view, or what answers this method, under any decorators."""
        handler = getattr(self.view, self.handlers.get(method.lower(), ""), None)
        found = (*self.layers_of(method), *layers(handler))
        return any(POLICY_MARK in getattr(each, "__dict__", {}) for each in found)

    @property
    def has_mixin(self) -> bool:
        return hasattr(self.view, "_class_arguments")

    @property
    def around(self) -> list[Arguments]:
        """Return the policies of the decorators around the view."""
        return [mark for mark in map(mark_of, self.layers) if mark is not None]

    @property
    def inside(self) -> dict[str, Arguments]:
        """Return the policies of the decorated methods of its class, by name."""
        return {} if self.view is None else dict(marked_methods(self.view))

    @property
    def of_class(self) -> Arguments | None:
        """Return the policy that the mixin holds for its class, or for this route alone."""
        own: Arguments | None = getattr(self.view, "_class_arguments", None)
        routes = [given for given in map(rest_arguments, self.layers) if "idempotency" in given]
        return routes[0]["idempotency"] if routes else own

    @property
    def is_protected(self) -> bool:
        return bool(self.around or self.inside or self.of_class)

    @property
    def contradiction(self) -> str:
        """Return why a policy of this view cannot be made under the settings; empty if each can."""
        try:
            for arguments in (*self.around, *self.inside.values(), self.of_class):
                if arguments is not None:
                    arguments.policy()
        except ValueError as error:
            return str(error)
        return ""

    @property
    def permission_classes(self) -> Iterable[Any]:
        """Return the permission classes of Django REST framework, of the class or for this route alone."""
        own = getattr(self.view, "permission_classes", ())
        return self.arguments.get("permission_classes", own) or ()

    def policies_around(self, method: str) -> Iterator[Arguments | None]:
        """Yield the policies of decorators and classes around what answers a method, outermost first."""
        yield from map(mark_of, self.layers_of(method))
        yield self.inside.get("dispatch")
        name = self.handlers.get(method.lower(), "")
        if self.has_mixin:
            yield getattr(getattr(self.view, name), POLICY_MARK, self.of_class)
        else:
            yield self.inside.get(name)

    def protected_methods(self) -> Iterator[tuple[str, Arguments]]:
        """Yield the methods that answer and that the mixin protects, with their policies."""
        for method, name in self.handlers.items():
            arguments = getattr(getattr(self.view, name), POLICY_MARK, self.of_class)
            if self.has_mixin and arguments is not None and method.upper() in arguments.methods:
                yield name, arguments

    def policies(self) -> Iterator[tuple[Arguments, str]]:
        """Yield every policy with its action. A view set's own policy is yielded once for each of its actions."""
        yield from ((arguments, "") for arguments in (*self.around, *self.inside.values()))
        own = self.of_class
        if own is None:
            return
        for method, name in self.handlers.items():
            if method.upper() in own.methods and not hasattr(getattr(self.view, name), POLICY_MARK):
                yield own, name if self.is_view_set else ""


def project_endpoints() -> list[Endpoint]:
    """Return every route of the project whose policies can be made."""
    return [endpoint for endpoint in project_routes() if not endpoint.contradiction]


def project_routes(root: Any = None) -> list[Endpoint]:
    """Return every route of the project; none if it has no URLs, or if the settings are wrong (E001 and E003).

    `root` is a URLconf other than ROOT_URLCONF.
    """
    root = root or urlconf()
    try:
        policy()
    except (TypeError, ValueError):
        return []
    return [] if root is None else list(endpoints(get_resolver(root).url_patterns))


def match_of(path: str) -> ResolverMatch | None:
    """Return the match of a path as a request had it; None if no route leads there."""
    try:
        return resolve(path_info(path))
    except Resolver404:
        return None


def path_info(path: str) -> str:
    """Return a request's path below the address of the project."""
    return path.removeprefix(get_script_prefix().rstrip("/"))


def operation_names(root: str) -> Iterator[str]:
    """Yield the operation of every protected view that this URLconf leads to."""
    for endpoint in endpoints(get_resolver(root).url_patterns):
        for arguments, _action in endpoint.policies():
            yield arguments.given.get("operation") or endpoint.name


def endpoints(patterns: Iterable[Any], prefix: str = "", namespace: str = "") -> Iterator[Endpoint]:
    """Yield every route below these patterns."""
    for pattern in patterns:
        route = f"{prefix}{pattern.pattern}"
        if hasattr(pattern, "url_patterns"):
            inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
            yield from endpoints(pattern.url_patterns, route, inner)
        else:
            match = ResolverMatch(pattern.callback, (), {}, url_name=pattern.name)
            yield Endpoint(route, pattern.callback, f"{namespace}{match.view_name}")
