"""System checks of the views: setups that look protected and are not. They read the URLconf and open no connection."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections
from django.urls import get_resolver
from django.utils.module_loading import import_string

from django_idempotency.checks.permissions import asked_inside
from django_idempotency.conf import Arguments, middleware, policy, urlconf
from django_idempotency.core.policy import LostLease, Mode
from django_idempotency.flow.registry import reconciled_operations
from django_idempotency.http.urlconf import POLICY_MARK, Endpoint, endpoints, mark_of

MIDDLEWARE: Final = "django_idempotency.middleware.IdempotencyMiddleware"


@register(Tags.urls)
def check_endpoints(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E020, E021, W022, E023, E025, E026, W031, E032, W033, W034: the views that the URLconf leads to."""
    if urlconf() is None or not _readable():
        return []
    found = list(endpoints(get_resolver(urlconf()).url_patterns))
    each = [message for endpoint in found for check in _EACH for message in check(endpoint)]
    return [*each, *_shared_operations(found), *_nobody_to_ask(found)]


@register(Tags.urls)
def check_middleware(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E027: what stands behind the middleware and is skipped by it."""
    installed = middleware()
    if MIDDLEWARE not in installed:
        return []
    behind = installed[installed.index(MIDDLEWARE) + 1 :]
    skipped = [path for path in behind if hasattr(import_string(path), "process_view")]
    return [
        Error(
            f"IdempotencyMiddleware stands before {path}, whose process_view would be skipped for protected requests.",
            hint=f"Put {MIDDLEWARE!r} last in MIDDLEWARE.",
            id="django_idempotency.E027",
        )
        for path in skipped
    ]


def _readable() -> bool:
    try:
        policy()
    except (TypeError, ValueError):  # E001 or E003 says so
        return False
    return True


def _inside_atomic_requests(endpoint: Endpoint) -> Iterator[CheckMessage]:
    own = getattr(endpoint.callback, "_non_atomic_requests", ())
    around = [alias for alias, each in connections.settings.items() if each["ATOMIC_REQUESTS"] and alias not in own]
    if around and _is_protected(endpoint):
        yield Error(
            f"/{endpoint.route}: ATOMIC_REQUESTS of {', '.join(map(repr, around))} opens a transaction around "
            "@idempotent, and a rollback would forget the key.",
            hint="Put @idempotent where the URL callback carries it, below whatever asks for a permission: on a class "
            'with @method_decorator(idempotent, name="dispatch"), above @api_view. Give every decorator above it '
            "functools.wraps, or add @transaction.non_atomic_requests.",
            id="django_idempotency.E020",
        )


def _is_protected(endpoint: Endpoint) -> bool:
    return bool(endpoint.around or endpoint.inside or _of_class(endpoint))


def _without_mixin(endpoint: Endpoint) -> Iterator[CheckMessage]:
    view = endpoint.view
    if not endpoint.is_rest or view is None:
        return
    outside = [mark for mark in endpoint.around if mark is not _of_class(endpoint)]
    if outside or "dispatch" in endpoint.inside or (endpoint.inside and not _has_mixin(endpoint) and not _below(view)):
        yield Error(
            f"/{endpoint.route}: @idempotent on {view.__name__} runs before Django REST framework's authentication "
            "and permissions, or cannot run at all.",
            hint=f"Write `class {view.__name__}(IdempotentMixin, …)`; the policy of all its methods goes into "
            "`idempotency`, that of one method into @idempotent on the method.",
            id="django_idempotency.E021",
        )


def _left_out_by_middleware(endpoint: Endpoint) -> Iterator[CheckMessage]:
    if MIDDLEWARE not in middleware() or not endpoint.is_rest or _has_mixin(endpoint) or endpoint.inside:
        return
    exempt = any(hasattr(layer, POLICY_MARK) for layer in endpoint.layers)
    methods = [] if exempt else endpoint.handlers.items()
    taken = sorted(
        method.upper()
        for method, name in methods
        if method.upper() in policy().methods and not hasattr(getattr(endpoint.view, name), POLICY_MARK)
    )
    if taken:
        name = getattr(endpoint.view, "__name__", "")
        yield Warning(
            f"/{endpoint.route}: IdempotencyMiddleware leaves {name} alone, so its {' and '.join(taken)} is not "
            "protected.",
            hint=f"Write `class {name}(IdempotentMixin, …)`, put @idempotent above @api_view, or mark it with @exempt.",
            id="django_idempotency.W022",
        )


def _permission_inside(endpoint: Endpoint) -> Iterator[CheckMessage]:
    asking = "" if endpoint.is_rest else asked_inside(endpoint)  # the mixin looks a key up after any dispatch
    if asking:
        yield Error(
            f"/{endpoint.route}: @idempotent stands outside of {asking}, so a repeat would be answered before "
            "permission is asked, and a refusal would be stored.",
            hint="Put @idempotent below it; on a class decorate the method that answers, `post` for example, or put "
            "@method_decorator([permission_required(…), idempotent], name='dispatch') in place of the mixin.",
            id="django_idempotency.E032",
        )


def _permission_inside_middleware(endpoint: Endpoint) -> Iterator[CheckMessage]:
    if (
        MIDDLEWARE not in middleware()
        or endpoint.is_rest
        or any(hasattr(layer, POLICY_MARK) for layer in endpoint.layers)
    ):
        return
    methods = policy().methods
    taken = [name for method, name in endpoint.handlers.items() if method.upper() in methods]
    if endpoint.view is not None and all(hasattr(getattr(endpoint.view, name), POLICY_MARK) for name in taken):
        return
    asking = asked_inside(endpoint, everything=True)
    if asking:
        yield Warning(
            f"/{endpoint.route}: IdempotencyMiddleware answers a repeat before {asking} asks for permission.",
            hint="Put @idempotent below it, and the middleware leaves the view alone; or @exempt where it takes no "
            f"{' and no '.join(sorted(methods))}.",
            id="django_idempotency.W033",
        )


def _never_beats(endpoint: Endpoint) -> Iterator[CheckMessage]:
    for arguments in {id(each): each for each, _ in policies(endpoint)}.values():
        chosen = arguments.policy()
        if chosen.heartbeat is not None and chosen.heartbeat <= chosen.lease:
            yield Warning(
                f"/{endpoint.route}: heartbeat is not longer than the lease of {chosen.lease}, so it extends little or "
                "nothing.",
                hint="heartbeat says for how long at most a lease is extended: make it longer than the lease.",
                id="django_idempotency.W034",
            )


def _async_and_atomic(endpoint: Endpoint) -> Iterator[CheckMessage]:
    decorated = [(layer, mark) for layer in endpoint.layers if (mark := mark_of(layer))]
    methods = [(getattr(endpoint.view, name), mark) for name, mark in endpoint.inside.items()]
    if any(iscoroutinefunction(each) and mark.policy().mode is Mode.ATOMIC for each, mark in (*decorated, *methods)):
        yield Error(
            f"/{endpoint.route}: an async view cannot be atomic, because Django's transactions are synchronous.",
            hint="Leave mode='atomic' out, and end the view with `await request.idempotency.afinish(write)`.",
            id="django_idempotency.E025",
        )


def _not_a_handler(endpoint: Endpoint) -> Iterator[CheckMessage]:
    if not _has_mixin(endpoint) or endpoint.view is None:
        return
    possible = set(endpoint.handlers.values())
    for name in endpoint.inside:
        hidden = mark_of(getattr(endpoint.view, name)) is None
        idle = name.startswith("perform_") if _is_view_set(endpoint) else name not in possible
        if name != "dispatch" and (hidden or idle):
            yield Error(
                f"/{endpoint.route}: @idempotent on {endpoint.view.__name__}.{name} has no effect, because "
                + ("a decorator above it hides it." if hidden else "that is not the method that answers a request."),
                hint="Give every decorator above it functools.wraps."
                if hidden
                else f"Decorate one of {', '.join(sorted(possible))}, or put the policy into `idempotency`.",
                id="django_idempotency.E026",
            )


def _nobody_to_ask(found: Sequence[Endpoint]) -> Iterator[CheckMessage]:
    doubtful: dict[str, str] = {}
    for endpoint in found:
        for arguments, _ in policies(endpoint):
            chosen = arguments.policy()
            if chosen.mode is Mode.LEASED and chosen.on_lost_lease is LostLease.UNKNOWN:
                doubtful.setdefault(chosen.operation or endpoint.name, endpoint.route)
    asked = reconciled_operations()
    for name, route in doubtful.items():
        if name not in asked:
            yield Warning(
                f"/{route}: nobody can be asked what became of a lost request: the operation {name!r} has no "
                "reconciler, so its unknown records wait for a person.",
                hint=f"Register one with @reconciler({name!r}) in a module named reconcilers. Or declare what the "
                "endpoint is: mode='atomic' when all its effects are in the database, on_lost_lease='restart' when it "
                "is safe to run again, on_lost_lease='resume' when it does nothing but run an operation.",
                id="django_idempotency.W031",
            )


_EACH: Final[tuple[Callable[[Endpoint], Iterator[CheckMessage]], ...]] = (
    _inside_atomic_requests,
    _without_mixin,
    _left_out_by_middleware,
    _async_and_atomic,
    _not_a_handler,
    _permission_inside,
    _permission_inside_middleware,
    _never_beats,
)


def _shared_operations(found: Sequence[Endpoint]) -> Iterator[CheckMessage]:
    named: dict[str, dict[tuple[int, str], str]] = defaultdict(dict)
    for endpoint in found:
        for arguments, action in policies(endpoint):
            operation = arguments.given.get("operation")
            if operation:
                named[operation].setdefault((id(arguments), action), f"/{endpoint.route} {action}".strip())
    for operation, users in named.items():
        if len(users) > 1:
            yield Error(
                f"The operation {operation!r} is named by several endpoints: {', '.join(sorted(users.values()))}. "
                "A key used at one of them is refused at the others.",
                hint="Give each its own `operation`, with @idempotent on each action, or leave it out: then the name "
                "of the route is taken.",
                id="django_idempotency.E023",
            )


def policies(endpoint: Endpoint) -> Iterator[tuple[Arguments, str]]:
    """Every policy of an endpoint; one that a view set has for several actions counts once for each."""
    yield from ((arguments, "") for arguments in (*endpoint.around, *endpoint.inside.values()))
    own = _of_class(endpoint)
    if own is None:
        return
    for method, name in endpoint.handlers.items():
        if method.upper() in own.policy().methods and not hasattr(getattr(endpoint.view, name), POLICY_MARK):
            yield own, name if _is_view_set(endpoint) else ""


def operation_names(root: str) -> Iterator[str]:
    """The operation of every protected view that this URLconf leads to."""
    for endpoint in endpoints(get_resolver(root).url_patterns):
        for arguments, _action in policies(endpoint):
            yield arguments.given.get("operation") or endpoint.name


def _is_view_set(endpoint: Endpoint) -> bool:
    return any(getattr(layer, "actions", None) for layer in endpoint.layers)


def _has_mixin(endpoint: Endpoint) -> bool:
    return hasattr(endpoint.view, "_class_arguments")


def _of_class(endpoint: Endpoint) -> Arguments | None:
    """The policy that the mixin holds for its class, or for this route alone."""
    own: Arguments | None = getattr(endpoint.view, "_class_arguments", None)
    routes = [layer.initkwargs for layer in endpoint.layers if "idempotency" in getattr(layer, "initkwargs", ())]
    return routes[0]["idempotency"] if routes else own


def _below(view: type) -> bool:
    from django_idempotency.http.private_names import is_made_by_api_view

    return is_made_by_api_view(view)
