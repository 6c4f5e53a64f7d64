"""The maintenance jobs as Celery tasks, their beat schedule, and tasks of your own that run once per message::

    CELERY_BEAT_SCHEDULE = {**beat_schedule(), ...}

Settings may import this module: models are imported when a task runs.
"""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, Final, NoReturn, TypeAlias

from celery import Task, current_app, current_task, shared_task
from celery.exceptions import Retry
from celery.signals import worker_process_shutdown

from django_idempotency.exceptions import InvalidKey, Misplaced, NotExecuted, StillRunning, StoreUnavailable
from django_idempotency.monitoring.jobs import SCHEDULED, Job

__all__ = [
    "beat_schedule",
    "once_per_message",
]

Function: TypeAlias = Callable[..., Any]

LONGEST_WAIT_SECONDS: Final = 60
WAITS: Final = "idempotency_waits"  # a header: how often the message was sent again


def _make_task(job: Job) -> Any:
    @shared_task(name=job.task_name, ignore_result=True)
    def run() -> dict[str, int]:
        from django_idempotency import maintenance

        return dict(getattr(maintenance, job.name)(maintenance.Bounds(**job.limits)))

    return run


globals().update({job.task: _make_task(job) for job in SCHEDULED})  # so that projects can import them by name


@shared_task(name="django_idempotency.run_operation", ignore_result=True)
def run_operation(record: str, schema: str = "") -> str:
    from django_idempotency.flow.schemas import enter_schema
    from django_idempotency.flow.worker import perform

    with enter_schema(schema):
        return perform(record)


def celery_sender() -> Callable[[str], object] | None:
    """Return what sends the message of a deferred operation; None if the project has no Celery application."""
    return _send if getattr(current_app, "set_as_current", False) else None  # Celery's default app is never current


def _send(record: str) -> None:
    """Send the message, with one retry: if the broker is down, the sweeper sends it again later."""
    from django_idempotency.flow.schemas import current_schema, has_schemas

    tenant = {"schema": current_schema()} if has_schemas() else {}
    run_operation.apply_async((record,), tenant, retry_policy={"max_retries": 1, "interval_start": 0})


@worker_process_shutdown.connect
def flush_counts(**kwargs: Any) -> None:
    """Write the counts of a pool process, which ends without running `atexit`."""
    from django_idempotency.monitoring.outcomes import COUNTERS

    COUNTERS.flush()


def beat_schedule(**seconds: int) -> dict[str, dict[str, Any]]:
    """Return entries for CELERY_BEAT_SCHEDULE. A message expires when the next one is due.

    To change an interval, pass the task's name and a number of seconds: `beat_schedule(sweep_zombies=15)`.
    """
    schedule: dict[str, dict[str, Any]] = {}
    for job in SCHEDULED:
        every = seconds.pop(job.task, job.every)
        # django-celery-beat drops `expires` and wants `expire_seconds`.
        options = {"expires": every, "expire_seconds": every}
        schedule[job.task_name] = {"task": job.task_name, "schedule": float(every), "options": options}
    if seconds:
        known = ", ".join(job.task for job in SCHEDULED)
        raise TypeError(f"There is no task {', '.join(map(repr, seconds))}; there are {known}.")
    return schedule


def once_per_message(
    scope: str, *, key: Callable[..., str] | None = None, payload: Function | None = None, **policy: Any
) -> Callable[[Function], Function]:
    """Make a task's function run at most once for each key, however often its message is delivered::

        @shared_task(acks_late=True)
        @once_per_message("receipts", key=lambda order: f"receipt of {order}")
        def send_receipt(claim, order): ...

    By default the key is the task's id, and the payload is its arguments. While another worker runs the task, the
    message is sent again later. If an attempt had no effect, Celery retries the task by the task's own rules. Other
    errors are raised.
    """
    from django_idempotency.once import once_per

    def decorate(function: Function) -> Function:
        bind = signature(function).bind

        def bind_arguments(*args: Any, **kwargs: Any) -> dict[str, Any]:
            """Return the arguments by name: positional and keyword arguments are the same payload."""
            bound = bind(None, *args, **kwargs)
            bound.apply_defaults()
            return dict(list(bound.arguments.items())[1:])

        guarded = once_per(scope, key=key or _get_message_id, payload=payload or bind_arguments, **policy)(function)

        @wraps(function)
        def task(*args: Any, **kwargs: Any) -> Any:
            if not current_task:
                raise Misplaced("Put @once_per_message below @shared_task or @app.task, directly above the function.")
            if args and isinstance(args[0], Task):
                raise Misplaced("@once_per_message does not support bind=True: use `celery.current_task`.")
            try:
                return guarded(*args, **kwargs)
            except StillRunning as busy:
                _send_again(busy)
            except (NotExecuted, StoreUnavailable) as nothing:
                raise current_task.retry(exc=nothing) from nothing

        return task

    return decorate


def _send_again(busy: StillRunning) -> NoReturn:
    """Send the message again later. `retry` would count it against the task's own `max_retries` and give up."""
    request = current_task.request
    if request.called_directly or request.is_eager:
        raise busy
    waits = request.get(WAITS, 0)
    wait = max(busy.retry_after, min(2**waits, LONGEST_WAIT_SECONDS))
    headers = request.as_execution_options()["headers"] or {}  # without those that the broker added
    again = current_task.signature_from_request(countdown=wait, headers={**headers, WAITS: waits + 1})
    again.apply_async()
    raise Retry(exc=busy, when=wait) from busy


def _get_message_id(*args: Any, **kwargs: Any) -> str:
    if not current_task.request.id:
        raise InvalidKey("empty", "The task runs without a message, so it has no task id to use as the key: pass key=.")
    return str(current_task.request.id)
