"""What all commands have in common: silence, JSON, progress on a terminal, examples and links in their help."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command, get_commands, load_command_class
from django.db.models import F

from django_idempotency.core.links import DOCUMENTATION
from django_idempotency.management.base import PackageCommand
from django_idempotency.management.progress import MOST_COUNTED, count_due, describe_progress
from django_idempotency.models import MaintenanceRun
from django_idempotency.monitoring.findings import Code, Finding, Severity
from django_idempotency.monitoring.health import health
from django_idempotency.monitoring.jobs import JOBS
from testproject.servers import ROOT
from tests.kit.records import age, change, claimed, completed, dead_letter, doubtful, id_of
from tests.management.terminals import Terminal, said

DOCS = Path(ROOT, "docs")
OURS = sorted(name for name, app in get_commands().items() if app == "django_idempotency")
CHANGING = [name for name in OURS if not re.search("list$|inspect|stats|endpoints", name)]


def assert_it_leads_somewhere(url: str) -> None:
    page, _, anchor = url.removeprefix(DOCUMENTATION).partition("#")
    headings = re.findall(r"^#+ (.+)$", (DOCS / page.replace(".html", ".md")).read_text(), re.MULTILINE)
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}, url


@pytest.mark.parametrize("command", OURS)
def test_help_has_examples_that_parse_exit_codes_and_a_link(command: str) -> None:
    loaded = load_command_class("django_idempotency", command)
    assert isinstance(loaded, PackageCommand)
    parser = loaded.create_parser("manage.py", command)
    shown = parser.format_help()
    examples, _, end = shown.partition("examples:\n")[2].partition("\n\nexit codes:\n")
    assert [line.split()[:2] for line in examples.splitlines()] == [["manage.py", command]] * len(loaded.examples)
    for each in loaded.examples:
        parser.parse_args(re.findall(r"'[^']*'|\S+", each))
    assert [line.split()[0] for line in end.splitlines()[:3]] == ["0", "1", "2"]
    assert_it_leads_somewhere(end.splitlines()[-1])


@pytest.mark.parametrize("command", CHANGING)
def test_what_changes_something_can_be_tried_first(command: str) -> None:
    parser = load_command_class("django_idempotency", command).create_parser("manage.py", command)
    assert {"--dry-run", "--json"} <= {option for action in parser._actions for option in action.option_strings}


@pytest.mark.parametrize("code", Code)
def test_every_finding_leads_to_its_section(code: Code) -> None:
    assert_it_leads_somewhere(Finding(code).url)


@pytest.mark.django_db
@pytest.mark.parametrize("command", [*(f"idempotency_{job.name}" for job in JOBS), "idempotency_stats"])
def test_verbosity_0_is_silent(command: str) -> None:
    completed()
    assert said(command, verbosity=0) == ""
    assert said(command) != ""
    json.loads(said(command, "--json", verbosity=0))


@pytest.mark.django_db
def test_the_doctor_is_silent_too_and_still_fails() -> None:
    output = StringIO()
    with pytest.raises(CommandError, match="Problems found: 4"):
        call_command("idempotency_doctor", stdout=output, verbosity=0)
    assert output.getvalue() == ""


@pytest.mark.django_db
def test_an_error_is_json_where_json_was_asked_for() -> None:
    output = StringIO()
    with pytest.raises(CommandError):
        call_command("idempotency_inspect", "nothing-here", "--json", stdout=output)
    assert json.loads(output.getvalue())["error"]["code"] == "absent"
    with pytest.raises(CommandError):
        call_command("idempotency_sweep", "--json", "--batch-size=0", stdout=(output := StringIO()))
    error = json.loads(output.getvalue())["error"]
    assert (error["code"], error["message"].split()[0]) == ("error", "--batch-size")


@pytest.mark.django_db
def test_counts_are_no_text_inside_json() -> None:
    doubtful()
    call_command("idempotency_reconcile", stdout=StringIO())
    assert json.loads(said("idempotency_stats", "--json"))["jobs"]["reconcile"]["counts"] == {"postponed": 1}
    assert health().as_json()["jobs"]["reconcile"]["counts"] == {"postponed": 1}
    MaintenanceRun.objects.update(finished_at=F("finished_at") - timedelta(seconds=188), counts="{}")
    assert re.search("last reconcile: 3 min [89] s ago, nothing to do", said("idempotency_stats"))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("threshold", "fails"), [("critical", True), ("warning", True), ("advice", True), ("never", False)]
)
def test_the_doctor_fails_from_a_severity_on(threshold: str, fails: bool) -> None:
    dead_letter()
    output, arguments = StringIO(), ("idempotency_doctor", f"--fail-on={threshold}", "--no-color")
    if fails:
        with pytest.raises(CommandError, match=r"Problems found: \d \(1 critical"):
            call_command(*arguments, stdout=output)
    else:
        call_command(*arguments, stdout=output)
    assert "manage.py idempotency_list --status dead_letter" in output.getvalue()
    said("idempotency_doctor", "--fail-on=critical", "--ignore=dead-letters")


@pytest.mark.parametrize("severity", Severity)
def test_a_severity_is_from_itself_on(severity: Severity) -> None:
    order = list(Severity)
    assert [severity.is_from(each) for each in order] == [order.index(severity) <= place for place in range(3)]
    assert severity.is_from("never") is False


@pytest.mark.django_db
def test_each_finding_has_a_code_a_severity_and_a_link_for_programs() -> None:
    dead_letter()
    output = StringIO()
    with pytest.raises(CommandError):
        call_command("idempotency_doctor", "--json", stdout=output)
    first = json.loads(output.getvalue())["findings"][0]
    assert (first["code"], first["severity"]) == ("dead-letters", "critical")
    assert first["url"].endswith("#dead-letters")
    assert first["runbook"].endswith("runbooks.html#idempotencydeadletters")


@pytest.mark.django_db
def test_a_terminal_shows_how_far_a_run_is_and_a_pipe_does_not() -> None:
    for _ in range(3):
        age(claimed(), "locked_until")
    terminal, pipe = Terminal(), StringIO()
    call_command("idempotency_sweep", stdout=StringIO(), stderr=pipe)
    assert pipe.getvalue() == ""
    for _ in range(3):
        age(claimed(), "locked_until")
    call_command("idempotency_sweep", stdout=StringIO(), stderr=terminal)
    assert re.match(r"1 of 3, .*\x1b\[K\r", terminal.getvalue())
    assert terminal.getvalue().endswith("\r\x1b[K"), "the line is taken back"


@pytest.mark.parametrize("options", [{"verbosity": 0}, {"json": True}, {"dry_run": True}])
@pytest.mark.django_db
def test_some_runs_show_no_progress(options: Any) -> None:
    age(claimed(), "locked_until")
    terminal = Terminal()
    call_command("idempotency_sweep", stdout=StringIO(), stderr=terminal, **options)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (0, 38_049, 0, "0 of 38,049"),
        (12_000, 38_049, 10, "12,000 of 38,049, 1,200/s, 22 s left"),
        (3, 10, 6 * 60, "3 of 10, one in 2 min, 14 min left"),
        (12, 10, 6, "12 of 12, 2/s"),
        (12_000, MOST_COUNTED + 1, 10, "12,000 of more than 100,000, 1,200/s"),
    ],
)
def test_progress_has_a_total_a_rate_and_the_time_that_is_left(
    done: int, total: int, seconds: float, text: str
) -> None:
    assert describe_progress(done, total, seconds) == text


@pytest.mark.django_db
def test_the_due_records_of_each_job_are_counted() -> None:
    age(claimed(), "locked_until")
    unknown, resumable = doubtful(), doubtful()
    for each in (unknown, resumable):
        age(each, "reconcile_after")
    change(resumable, run_name="tests.work", on_lost_lease="resume", deferred=True)
    age(completed(), "expires_at")
    counted = {job.name: count_due(job.name, "default") for job in JOBS}
    assert counted == {"sweep": 1, "reconcile": 1, "resume": 1, "work": 1, "reap": 1}


@pytest.mark.django_db
def test_a_worker_says_what_it_waits_for_and_ends_in_time() -> None:
    assert said("idempotency_work", "--forever", "--max-runtime=0.01", "--every=60").startswith(
        "Looking for work every 1 min for "
    )
    assert said("idempotency_work", "--forever", "--max-runtime=0.01", "--json") == ""


@pytest.mark.django_db
def test_stats_use_the_names_of_the_admin_and_say_each_thing_once() -> None:
    dead_letter()
    change(completed(), status="failed_retryable", response_status=None, completed_at=None)
    text = said("idempotency_stats")
    assert "failed, can be retried: 1" in text
    assert text.count("dead letter") == 2, "how many there are, and how old the oldest is"
    assert str(id_of(dead_letter())) in said("idempotency_list", "--status=dead_letter")
