"""The duties as Celery tasks, when beat runs them, and tasks of your own that run once for each message.

CELERY_BEAT_SCHEDULE = {**beat_schedule(), ...}

The settings may import this module: the models behind the duties are imported when a task runs.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, Final, NoReturn, TypeAlias

from celery import Task, current_app, current_task, shared_task
from celery.exceptions import Retry
from celery.signals import worker_process_shutdown

from django_idempotency.exceptions import InvalidKey, Misplaced, NotExecuted, StillRunning, StoreUnavailable

__all__ = [
    "beat_schedule",
    "once_per_message",
]

Function: TypeAlias = Callable[..., Any]

SECONDS: Final = {
    "django_idempotency.sweep_zombies": 60,
    "django_idempotency.reconcile_unknown": 60,
    "django_idempotency.resume_operations": 60,
    "django_idempotency.reap_expired": 3600,
}
LONGEST_WAIT_SECONDS: Final = 60
WAITS: Final = "idempotency_waits"  # a header: how often the message was told to come again
POLLING_SECONDS: Final = 55.0  # a provider that hangs must not hold one worker process after the other


@shared_task(name="django_idempotency.sweep_zombies", ignore_result=True)
def sweep_zombies() -> dict[str, int]:
    from django_idempotency.maintenance import sweep

    return dict(sweep())


@shared_task(name="django_idempotency.reconcile_unknown", ignore_result=True)
def reconcile_unknown() -> dict[str, int]:
    from django_idempotency.maintenance import Bounds, reconcile

    return dict(reconcile(Bounds(max_runtime=POLLING_SECONDS)))


@shared_task(name="django_idempotency.resume_operations", ignore_result=True)
def resume_operations() -> dict[str, int]:
    from django_idempotency.maintenance import Bounds, resume

    return dict(resume(Bounds(max_runtime=POLLING_SECONDS)))


@shared_task(name="django_idempotency.reap_expired", ignore_result=True)
def reap_expired() -> dict[str, int]:
    from django_idempotency.maintenance import Bounds, reap

    return dict(reap(Bounds(pause=0.05)))


@shared_task(name="django_idempotency.run_operation", ignore_result=True)
def run_operation(record: str) -> str:
    from django_idempotency.flow.worker import perform

    return perform(record)


def sender() -> Callable[[str], object] | None:
    """What sends the message of a deferred operation; None where the project has no Celery application."""
    return _send if getattr(current_app, "set_as_current", False) else None  # Celery's own stand-in is never current


def _send(record: str) -> None:
    """A broker that is down costs the request one more try, no more: the sweeper sends again."""
    run_operation.apply_async((record,), retry_policy={"max_retries": 1, "interval_start": 0})


@worker_process_shutdown.connect
def write_down_counts(**kwargs: Any) -> None:
    """A process of a pool ends without Python's own last steps."""
    from django_idempotency.monitoring.outcomes import COUNTERS

    COUNTERS.flush()


def beat_schedule(**seconds: int) -> dict[str, dict[str, Any]]:
    """Entries for CELERY_BEAT_SCHEDULE; a message that was not picked up before the next one is due expires.

    Another rhythm: `beat_schedule(sweep_zombies=15)`.
    """
    schedule: dict[str, dict[str, Any]] = {}
    for task, usual in SECONDS.items():
        every = seconds.pop(task.rpartition(".")[2], usual)
        # django-celery-beat drops `expires` and wants `expire_seconds`.
        options = {"expires": every, "expire_seconds": every}
        schedule[task] = {"task": task, "schedule": float(every), "options": options}
    if seconds:
        known = ", ".join(task.rpartition(".")[2] for task in SECONDS)
        raise TypeError(f"There is no task {', '.join(map(repr, seconds))}; there are {known}.")
    return schedule


def once_per_message(
    scope: str, *, key: Callable[..., str] | None = None, payload: Function | None = None, **policy: Any
) -> Callable[[Function], Function]:
    """Make a task's function run at most once for each key, however often its message is delivered.

        @shared_task(acks_late=True)
        @once_per_message("receipts", key=lambda order: f"receipt of {order}")
        def send_receipt(claim, order): ...

    The key is the message's task id where none is given, the payload are the task's arguments. While another worker
    runs it the message comes again later. What had no effect is retried by the task's own rules. The rest is raised.
    """
    from django_idempotency.once import once_per

    def decorate(function: Function) -> Function:
        bind = signature(function).bind

        def arguments(*args: Any, **kwargs: Any) -> dict[str, Any]:
            """By name, because they mean the same in either spelling."""
            bound = bind(None, *args, **kwargs)
            bound.apply_defaults()
            return dict(list(bound.arguments.items())[1:])

        guarded = once_per(scope, key=key or _message_id, payload=payload or arguments, **policy)(function)

        @wraps(function)
        def task(*args: Any, **kwargs: Any) -> Any:
            if not current_task:
                raise Misplaced("@once_per_message stands below @shared_task or @app.task, around the function itself.")
            if args and isinstance(args[0], Task):
                raise Misplaced("@once_per_message takes no bind=True: the task is `celery.current_task`.")
            try:
                return guarded(*args, **kwargs)
            except StillRunning as busy:
                _come_again(busy)
            except (NotExecuted, StoreUnavailable) as nothing:
                raise current_task.retry(exc=nothing) from nothing

        return task

    return decorate


def _come_again(busy: StillRunning) -> NoReturn:
    """Later, however often: `retry` would count it among the tries that the task has for itself, and give up."""
    request = current_task.request
    if request.called_directly or request.is_eager:
        raise busy
    waits = request.get(WAITS, 0)
    wait = max(busy.retry_after, min(2**waits, LONGEST_WAIT_SECONDS))
    headers = request.as_execution_options()["headers"] or {}  # without what a broker wrote into them
    again = current_task.signature_from_request(countdown=wait, headers={**headers, WAITS: waits + 1})
    again.apply_async()
    raise Retry(exc=busy, when=wait) from busy


def _message_id(*args: Any, **kwargs: Any) -> str:
    if not current_task.request.id:
        raise InvalidKey("empty", "There is no message and so no task id: say what the key is with key=.")
    return str(current_task.request.id)
