"""System checks of single views that look protected and are not. They read the URLconf and open no connection."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from asgiref.sync import iscoroutinefunction
from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Error, Warning
from django.db import connections

from django_idempotency.checks.objects import no_object_to_ask, object_not_asked
from django_idempotency.checks.permissions import functions_inside, permission_in, refusals_inside
from django_idempotency.checks.transactions import durable_inside
from django_idempotency.checks.webhooks import key_of_anybody
from django_idempotency.core.policy import Mode
from django_idempotency.http.private_names import NON_ATOMIC_REQUESTS, is_made_by_api_view
from django_idempotency.http.urlconf import Endpoint, project_endpoints, project_routes
from django_idempotency.http.wrapping import mark_of


def check_endpoints(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E005, E020, E021, E025, E026, E032, W034, W036, W037, E038, W039, W044: each view that the URLconf leads to."""
    messages = [message for endpoint in project_endpoints() for check in _CHECKS for message in check(endpoint)]
    return [*_contradictions(), *messages]


def _contradictions() -> Iterator[CheckMessage]:
    for endpoint in project_routes():
        if endpoint.contradiction:
            yield Error(
                f"/{endpoint.route}: the policy and the settings contradict each other: {endpoint.contradiction}",
                hint="The settings supply what the policy leaves out. Name it in the policy: mode='leased', for "
                "example, where IDEMPOTENCY has MODE 'atomic'.",
                id="django_idempotency.E005",
            )


def _inside_atomic_requests(endpoint: Endpoint) -> Iterator[CheckMessage]:
    opted_out = getattr(endpoint.callback, NON_ATOMIC_REQUESTS, ())
    around = [
        alias for alias, each in connections.settings.items() if each["ATOMIC_REQUESTS"] and alias not in opted_out
    ]
    if around and endpoint.is_protected:
        yield Error(
            f"/{endpoint.route}: ATOMIC_REQUESTS of {', '.join(map(repr, around))} opens a transaction around "
            "@idempotent, and a rollback would delete the record of the key.",
            hint="Put @idempotent where the URL callback carries it, below decorators that check a permission: on a "
            'class with @method_decorator(idempotent, name="dispatch"), above @api_view. Give every decorator above it '
            "functools.wraps, or add @transaction.non_atomic_requests.",
            id="django_idempotency.E020",
        )


def _before_authentication(endpoint: Endpoint) -> Iterator[CheckMessage]:
    view = endpoint.view
    if not endpoint.is_rest or view is None:
        return
    outside = any(mark is not endpoint.of_class for mark in endpoint.around) or "dispatch" in endpoint.inside
    if outside or (endpoint.inside and not endpoint.has_mixin and not is_made_by_api_view(view)):
        yield Error(
            f"/{endpoint.route}: @idempotent on {view.__name__} runs before Django REST framework's authentication "
            "and permissions, or cannot run at all.",
            hint=f"Write `class {view.__name__}(IdempotentMixin, …)`; the policy of all its methods goes into "
            "`idempotency`, that of one method into @idempotent on the method.",
            id="django_idempotency.E021",
        )


def _async_and_atomic(endpoint: Endpoint) -> Iterator[CheckMessage]:
    decorated = [(layer, mark) for layer in endpoint.layers if (mark := mark_of(layer))]
    methods = [(getattr(endpoint.view, name), mark) for name, mark in endpoint.inside.items()]
    if any(iscoroutinefunction(each) and mark.policy().mode is Mode.ATOMIC for each, mark in (*decorated, *methods)):
        yield Error(
            f"/{endpoint.route}: an async view cannot be atomic, because Django's transactions are synchronous.",
            hint="Use mode='leased', and end the view with `await request.idempotency.afinish(write)`.",
            id="django_idempotency.E025",
        )


def _not_a_handler(endpoint: Endpoint) -> Iterator[CheckMessage]:
    if not endpoint.has_mixin or endpoint.view is None:
        return
    handlers = set(endpoint.handlers.values())
    for name in endpoint.inside:
        if name == "dispatch":
            continue
        if mark_of(getattr(endpoint.view, name)) is None:
            why, hint = "a decorator above it hides it", "Give every decorator above it functools.wraps."
        elif name.startswith("perform_") if endpoint.is_view_set else name not in handlers:
            why = "it is not the method that answers a request"
            names = " or ".join(sorted(handlers - {"options", "head"}))
            hint = f"Decorate {names}, or put the policy into `idempotency`."
        else:
            continue
        message = f"/{endpoint.route}: @idempotent on {endpoint.view.__name__}.{name} has no effect, because {why}."
        yield Error(message, hint=hint, id="django_idempotency.E026")


def _misplaced_inside(endpoint: Endpoint) -> Iterator[CheckMessage]:
    found = functions_inside(endpoint)
    permission = permission_in(found)
    if permission:
        yield Error(
            f"/{endpoint.route}: @idempotent is outside {permission}, so a retry would be answered before the "
            "permission is checked, and a response that denies it would be stored.",
            hint="Put @idempotent below it; on a class decorate the method that answers, `post` for example, or put "
            "@method_decorator([permission_required(…), idempotent], name='dispatch') in place of the mixin. On a view "
            "of Django REST framework use permission_classes.",
            id="django_idempotency.E032",
        )
    yield from refusals_inside(endpoint, found, "@idempotent")
    yield from durable_inside(endpoint, found)


def _heartbeat_too_short(endpoint: Endpoint) -> Iterator[CheckMessage]:
    for arguments in {id(each): each for each, _ in endpoint.policies()}.values():
        policy = arguments.policy()
        if policy.heartbeat is not None and policy.heartbeat <= policy.lease:
            yield Warning(
                f"/{endpoint.route}: heartbeat is not longer than the lease of {policy.lease}, so it extends the lease "
                "little or not at all.",
                hint="heartbeat is the total time for which a lease is extended: make it longer than the lease.",
                id="django_idempotency.W034",
            )


_CHECKS: Final[tuple[Callable[[Endpoint], Iterator[CheckMessage]], ...]] = (
    _inside_atomic_requests,
    _before_authentication,
    _async_and_atomic,
    _not_a_handler,
    _misplaced_inside,
    _heartbeat_too_short,
    no_object_to_ask,
    object_not_asked,
    key_of_anybody,
)
