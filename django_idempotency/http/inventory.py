"""Every endpoint of the project: the methods that it takes, and what protects them."""

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, partial
from importlib.metadata import packages_distributions
from pathlib import PurePath
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.apps import apps
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.urls import ResolverMatch, get_resolver

from django_idempotency.conf import Arguments, default_policy, middleware, settings_module, urlconf
from django_idempotency.core.policy import Mode, Policy, Transaction
from django_idempotency.http.private_names import accepted_methods, simplify_route
from django_idempotency.http.urlconf import Endpoint, project_routes
from django_idempotency.http.wrapping import POLICY_MARK, layers

MIDDLEWARE: Final = "django_idempotency.middleware.IdempotencyMiddleware"
_FROM_SETTINGS: Final = Arguments({})
_CALLERS: Final[set[str]] = set()  # top-level packages that call `protect_all`
_NOT_LISTED: Final = {"HEAD", "OPTIONS", "TRACE"}  # Django answers these for every view


class Protection(StrEnum):
    """What a retry meets."""

    NOT_NEEDED = "not needed"  # HTTP itself calls the method safe or idempotent
    PROTECTED = "protected"
    EXEMPT = "exempt"
    UNPROTECTED = "unprotected"


@dataclass(frozen=True, slots=True)
class ListedEndpoint:
    """The methods of one view that are protected alike."""

    endpoint: Endpoint
    paths: tuple[str, ...]  # several where routes differ in a format suffix, for example
    methods: tuple[str, ...]  # empty if the URLconf does not tell them
    protection: Protection
    action: str  # of a view set
    policy: Policy | None

    @property
    def shown_methods(self) -> str:
        return " ".join(self.methods) or "any"

    @property
    def operation(self) -> str:
        return (self.policy.operation if self.policy else "") or self.endpoint.name

    @property
    def transaction(self) -> Transaction | None:
        """Return where the transaction begins: an async view's is always late. None in atomic mode."""
        if self.policy is None or self.policy.mode is Mode.ATOMIC:
            return None
        return Transaction.LATE if any(map(iscoroutinefunction, self.endpoint.layers)) else self.policy.transaction

    @property
    def view(self) -> str:
        """Return the dotted name of the class or function."""
        return ResolverMatch(view_of_endpoint(self.endpoint, *self.methods[:1]), (), {}).view_name

    @property
    def package(self) -> str:
        """Return the installed package that the view belongs to; empty if it is the project's own."""
        return package_of(self.endpoint)

    @property
    def is_foreign(self) -> bool:
        """True if the view belongs to an installed package and has no policy of its own, as the admin's views."""
        return bool(self.package) and not self.endpoint.is_protected


def take_inventory() -> list[ListedEndpoint]:
    """Return every endpoint of the project. ValueError if the settings, or a policy under them, are wrong."""
    return list_endpoints(urlconf())


def list_endpoints(root: Any) -> list[ListedEndpoint]:
    """Return every endpoint of a URLconf. ValueError if the settings, or a policy under them, are wrong."""
    return _listed(root, None if root is None else get_resolver(root))


@lru_cache(maxsize=16)  # walking a URLconf takes milliseconds, and the rules page may be public
def _listed(root: Any, resolver: Any) -> list[ListedEndpoint]:
    """Return every endpoint. After Django's `clear_url_caches` the resolver is a new one, and so is the entry."""
    default_policy()
    grouped: dict[tuple[int, str], list[Endpoint]] = {}
    for endpoint in project_routes(root):
        if endpoint.contradiction:
            raise ValueError(f"/{endpoint.route}: {endpoint.contradiction}")
        name = "" if endpoint.operations else endpoint.name  # django-ninja has a route for each, and the first matches
        grouped.setdefault((id(endpoint.callback), name), []).append(endpoint)
    return [entry for same in grouped.values() for entry in _entries(same)]


@receiver(setting_changed)
def _forget_endpoints(**kwargs: Any) -> None:
    _listed.cache_clear()
    _project_packages.cache_clear()


def _entries(same: list[Endpoint]) -> Iterator[ListedEndpoint]:
    """Yield the entries of routes that lead to the same view under the same name."""
    endpoint = same[0]
    paths = tuple(dict.fromkeys(simplify_route(each.route) for each in same))
    methods = methods_of(endpoint)
    found: dict[tuple[Protection, str, Arguments | None], list[str]] = {}
    for method in sorted(default_policy().methods if methods is None else methods):
        protection, arguments = _protection(endpoint, method)
        needed = endpoint.is_view_set and protection is not Protection.NOT_NEEDED
        action = endpoint.handlers[method.lower()] if needed else ""
        found.setdefault((protection, action, arguments), []).append(method)
    for (protection, action, arguments), alike in found.items():
        policy = None if arguments is None else arguments.policy()
        told = () if methods is None and policy is None else tuple(alike)
        yield ListedEndpoint(endpoint, paths, told, protection, action, policy)


def methods_of(endpoint: Endpoint) -> Collection[str] | None:
    """Return the methods that the view takes; None if only its code tells them.

    A decorated function takes those that its policy names.
    """
    restrictions = [set(names) for names in map(accepted_methods, endpoint.layers) if names is not None]
    if endpoint.operations:
        restrictions.append({method for each in endpoint.operations for method in each.methods})
    elif endpoint.view is not None:
        restrictions.append({method.upper() for method in endpoint.handlers})
    elif not restrictions:
        restrictions = [set(arguments.methods) for arguments in endpoint.around]
    return set.intersection(*restrictions) - _NOT_LISTED if restrictions else None


def _protection(endpoint: Endpoint, method: str) -> tuple[Protection, Arguments | None]:
    for arguments in _policies(endpoint, method):
        if arguments is not None and method in arguments.methods:
            return Protection.PROTECTED, arguments
    if method not in default_policy().methods:
        return Protection.NOT_NEEDED, None
    return (Protection.EXEMPT if _is_exempt(endpoint, method) else Protection.UNPROTECTED), None


def _policies(endpoint: Endpoint, method: str) -> Iterator[Arguments | None]:
    """Yield the policies around a method, outermost first."""
    if MIDDLEWARE in middleware() and not endpoint.has_own_policy(method):
        yield _FROM_SETTINGS
    yield from endpoint.policies_around(method)


def _is_exempt(endpoint: Endpoint, method: str) -> bool:
    """True if `@exempt` marks the view or the method, or if `idempotency` of its class is None."""
    handler = getattr(endpoint.view, endpoint.handlers.get(method.lower(), ""), None)
    marked: tuple[Any, ...] = (*endpoint.layers_of(method), *layers(handler))
    is_marked = any(getattr(each, "__dict__", {}).get(POLICY_MARK, "") is None for each in marked)
    return is_marked or (endpoint.has_mixin and endpoint.of_class is None)


def package_of(endpoint: Endpoint) -> str:
    """Return the installed package that the view belongs to; empty if it is the project's own."""
    return _package(view_of_endpoint(endpoint).__module__)


def view_of_endpoint(endpoint: Endpoint, method: str = "") -> Any:
    """Return the class, or the function below its decorators: django-ninja's of this method, or of the first."""
    functions = [each.view_func for each in endpoint.operations if not method or method in each.methods]
    inner = endpoint.view or next(iter(functions), endpoint.callback)
    while inner is not None:
        view, inner = inner, inner.func if isinstance(inner, partial) else getattr(inner, "__wrapped__", None)
    return view


def _package(module: str) -> str:
    top = module.partition(".")[0]
    if top in _CALLERS or top in _project_packages() or not (_is_installed(module) or top == "django_idempotency"):
        return ""
    app = apps.get_containing_app_config(module)
    return app.name if app else top


def note_caller(module: str) -> None:
    """Count the views of this module's top-level package as the project's, wherever it is installed."""
    _CALLERS.add(module.partition(".")[0])


@lru_cache(maxsize=1)
def _project_packages() -> frozenset[str]:
    """Return the top-level packages of the settings and the URLconf, and those that were installed together with them.

    A project can be a package itself: then its views are in the folder of the packages that it uses.
    """
    modules = {str(urlconf() or ""), settings_module()} - {""}
    tops = {module.partition(".")[0] for module in modules}
    if any(map(_is_installed, modules)):
        distributions = packages_distributions()
        own = {name for top in tops for name in distributions.get(top, ())}
        tops |= {top for top, names in distributions.items() if own.intersection(names)}
    return frozenset(tops)


def _is_installed(module: str) -> bool:
    folders = PurePath(getattr(sys.modules.get(module), "__file__", None) or "").parts
    return not {"site-packages", "dist-packages"}.isdisjoint(folders)
