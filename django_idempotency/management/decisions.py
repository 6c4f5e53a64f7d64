"""What an operator decides in a terminal: the admin's actions, what each would do, and why it was refused."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from django.utils.translation import override

from django_idempotency.conf import conf
from django_idempotency.console.actions import ACTIONS, OUTCOMES, Action
from django_idempotency.console.forms import LandedForm
from django_idempotency.console.outlook import (
    describe_danger,
    describe_outlook,
    describe_written,
    find_step,
    is_left_alone,
)
from django_idempotency.console.timeline import load_steps
from django_idempotency.core.progress import StepState
from django_idempotency.core.transitions import Event
from django_idempotency.flow.resolve import may_be_about
from django_idempotency.flow.settle import DoubtfulStep, Outcome
from django_idempotency.management.base import CommandError, PackageCommand
from django_idempotency.management.references import Target
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.units import format_clock, format_interval
from django_idempotency.store.records import alias

_NO_WRITES: Final = " No domain writes were made: check your own tables."
_TOO_EARLY: Final = {
    Event.DISMISS: "the grace period ends in %s; until then a late effect of the attempt may still arrive.",
    Event.ENQUEUE: "the last message may still be in flight. Another one can be sent in %s.",
}


def carry_out_action(
    command: PackageCommand, action: Action, target: Target, options: dict[str, Any], **given: Any
) -> None:
    """Carry the action out and say what became of it, or with `--dry-run` what would. CommandError if refused."""
    if options["dry_run"]:
        _foresee(command, action, target, options, **given)
        return
    # Before the trail says that it was asked, or a retry runs again.
    refusal = find_refusal(action, target) if action.polls or describe_danger(action, target.row) else ""
    if refusal:
        raise _refuse(f"Nothing was changed: {refusal}", "refused", target)
    outcome = action.run(target.reference, using=target.using, **given)
    now = target.read_again()
    if outcome not in action.done:
        raise _refuse(f"Nothing was changed: {explain(action, now, outcome)}", outcome.value, now)
    if options["json"]:
        command.write_json({"outcome": outcome, "id": now.row.id, "status": now.row.status})
        return
    command.say(command.style.SUCCESS(_describe_outcome(action, now, outcome)))


def _foresee(command: PackageCommand, action: Action, target: Target, options: dict[str, Any], **given: Any) -> None:
    refusal = find_refusal(action, target)
    if refusal:
        raise _refuse(f"Would be refused: {refusal}", "refused", target)
    if options["json"]:
        command.write_json({"would": action.name, "id": target.row.id, "status": target.row.status})
        return
    command.say(describe_effect(action, target, **given))


def _refuse(text: str, code: str, target: Target) -> CommandError:
    return CommandError(text, code, status=target.row.status, allowed=list_options(target))


@override("en")
def describe_effect(action: Action, target: Target, **given: Any) -> str:
    """Return what the action would do to the record as it is."""
    label = str(action.label)
    sentences = [f"Would {label[0].lower()}{label[1:]}. {action.sentence}"]
    if action.polls:
        sentences.append(f"Try {target.row.reconcile_attempts + 1} of {conf.RECONCILE_TRIES}.")
    if given.get("status"):
        body = str(given["body"])
        content = f"with {len(body.encode())} bytes of {given['content_type']}" if body else "without a body"
        sentences.append(f"The response is {given['status']} {content}.")
    if action.after_grace:
        sentences += _describe_evidence(target)
    return " ".join(sentences)


def _describe_evidence(target: Target) -> Iterator[str]:
    """Yield what a person who frees a key should have seen: the grace period and the steps."""
    left = target.row.grace_left
    if target.row.grace_until is not None:
        yield f"The grace period ends in {format_interval(left + 1)}." if left > 0 else _ended(-left)
    if steps := describe_steps(target.row):
        yield f"Steps: {steps}."


def _ended(ago: float) -> str:
    return f"The grace period ended {format_interval(ago)} ago."


def _describe_outcome(action: Action, target: Target, outcome: Outcome) -> str:
    with override("en"):
        if outcome is Outcome.POSTPONED:
            left = format_interval(max(target.row.grace_left, 0) + 1)
            return f"Not decided: the grace period ends in {left}; the reconciler asks again then."
        text = str(OUTCOMES[outcome])
    return text + (_NO_WRITES if action.form is LandedForm else "")


@override("en")
def explain(action: Action, target: Target, outcome: Outcome) -> str:
    """Return why an action changed nothing: what was found, and what would be allowed."""
    if outcome in (Outcome.ABSENT, Outcome.TOO_LATE):
        return str(OUTCOMES[outcome])
    return find_refusal(action, target) or "the record was changed at the same moment. Look at it again."


@override("en")
def find_refusal(action: Action, target: Target) -> str:
    """Return why the record, as it is, does not allow the action; empty if it does."""
    row = target.row
    if row.status not in action.statuses:
        needed = " or ".join(f"`{status}`" for status in sorted(action.statuses))
        other = ", ".join(list_options(target)) or "nothing by hand"
        return f"the record's status is `{row.status}`, and {_name(action)} needs {needed}. Possible now: {other}."
    if written := describe_written(action, row):
        return written
    if left := seconds_to_wait(action, row):
        return _TOO_EARLY[action.event] % format_interval(left)
    step = find_step(row)
    if action.after_grace and not may_be_about(step, target.reference, row):
        return f"{target.reference} is the downstream key of a step that is not in doubt; {_doubt(step)}."
    if action.polls and is_left_alone(row):
        return f"no reconciler is registered for {row.operation!r} in this process. Settle it with idempotency_resolve."
    return describe_danger(action, row)


def seconds_to_wait(action: Action, row: IdempotencyKey) -> float:
    """Return how long what was sent last may still arrive, until when the action is rejected."""
    if action.after_grace:
        left = row.grace_left
    elif action.event is Event.ENQUEUE and row.locked_until is not None:
        left = (row.locked_until - row.read_at).total_seconds()
    else:
        return 0.0
    return left + 1 if left > 0 else 0.0


def _doubt(step: DoubtfulStep | None) -> str:
    return "no step is" if step is None else f"the step {step.name!r} is, with the key {step.key}"


def _name(action: Action) -> str:
    return action.option or "idempotency_reconcile"


def list_options(target: Target) -> list[str]:
    """Return what may be asked for now, as options of `idempotency_resolve` and other commands."""
    return [_name(each) for each in _list_fitting(target)]


def list_commands(target: Target) -> Iterator[tuple[str, str]]:
    """Yield the commands that fit the record, each with what it does, and when if that is not yet possible."""
    for action in _list_fitting(target):
        label, left = str(action.label), seconds_to_wait(action, target.row)
        if left:
            then = format_clock(target.row.read_at + timedelta(seconds=left))
            label += f"; possible from {then} on, in {format_interval(left)}"
        yield _write_command(action, target), label


def _list_fitting(target: Target) -> list[Action]:
    outlook = describe_outlook(target.row)
    return [each for each in ACTIONS if target.row.status in each.statuses and outlook.allows(each)]


def _write_command(action: Action, target: Target) -> str:
    """Return the line to paste. A person replaces the words in capitals."""
    row = target.row
    name, option = ("idempotency_resolve", [action.option]) if action.option else ("idempotency_reconcile", [])
    response = ["STATUS", "--body", "'BODY'"] if action.form is LandedForm else []
    database = ["--database", target.using] if target.using != alias() else []
    who = ["--by", "'WHO'", "--reason", "'WHY'"]
    return " ".join(["python manage.py", name, str(row.id), *option, *response, *database, *who])


def describe_steps(row: Any) -> str:
    """Return how many steps are done, and which one is in doubt."""
    steps = load_steps(row)
    started = find_doubtful(row)
    parts = [f"{len(steps) - len(started)} done"]
    if started:
        parts.append(f"{len(started)} in doubt: {', '.join(started)}")
    return ", ".join(parts) if steps else ""


def find_doubtful(row: Any) -> list[str]:
    """Return the names of the steps that began and whose end is not known: one at most."""
    return [step.name for step in load_steps(row) if step.state is not StepState.DONE]
