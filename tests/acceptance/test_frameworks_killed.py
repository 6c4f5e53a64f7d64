"""A server is killed while a view of every framework runs in it. See tests/http/test_frameworks.py for the rest."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http.cookies import SimpleCookie

import pytest
from pytest_django.plugin import DjangoDbBlocker

from testproject.http import Answer, NoAnswer
from testproject.servers import kill_workers
from tests.acceptance.subjects import let_the_lease_run_out, new, quoted, refused_as
from tests.kit.frameworks import FRAMEWORKS, Framework
from tests.kit.journal import Journal
from tests.kit.processes import Site, running_site
from tests.kit.threads import wait_until

pytest.importorskip("ninja", reason="NOT TESTED: django-ninja is not installed")
pytest.importorskip("strawberry", reason="NOT TESTED: strawberry-graphql is not installed")

ENVIRONMENT = {
    "DJANGO_SETTINGS_MODULE": "tests.acceptance.served.frameworks_settings",
    "IDEMPOTENCY_LEASE_SECONDS": "600",  # until the test lets it run out
}


@dataclass
class Orders:
    """One order by each framework, under a key of its own, by alice in her session."""

    site: Site
    journal: Journal
    keys: dict[Framework, str] = field(default_factory=lambda: {each: new() for each in FRAMEWORKS})

    def __post_init__(self) -> None:
        answer = self.site.anyone.post("/login", {"name": "alice"}, key=None)
        cookies = SimpleCookie("; ".join(answer.headers.get_all("Set-Cookie", [])))
        session, token = cookies["sessionid"].value, cookies["csrftoken"].value
        self.headers = {"Cookie": f"sessionid={session}; csrftoken={token}", "X-CSRFToken": token}

    def send(self, framework: Framework) -> Answer:
        key = self.keys[framework]
        order = framework.body(name=key)
        return self.site.anyone.post(framework.path, order, key=quoted(key), headers=self.headers)

    def begin(self, framework: Framework, pool: ThreadPoolExecutor) -> Future[Answer]:
        first = pool.submit(self.send, framework)
        wait_until(lambda: self.begun(framework) or first.done())
        return first

    def begun(self, framework: Framework) -> int:
        return self.journal.count(self.keys[framework])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, http_database: str) -> Iterator[Orders]:
    """Each order has begun, its process was killed, and another one serves."""
    folder = tmp_path_factory.mktemp("frameworks")
    with running_site(folder, http_database, workers=1, environment=ENVIRONMENT) as site:
        orders = Orders(site, Journal(folder))
        with ThreadPoolExecutor(len(FRAMEWORKS)) as pool, orders.journal.gate_closed():
            begun = [orders.begin(framework, pool) for framework in FRAMEWORKS]
            kill_workers(site.service)
            assert all(isinstance(each.exception(), NoAnswer) for each in begun)
        yield orders


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=str)
def test_kill(killed: Orders, framework: Framework, django_db_blocker: DjangoDbBlocker) -> None:
    assert refused_as(killed.send(framework), 409, "key_in_progress")
    with django_db_blocker.unblock():
        let_the_lease_run_out(killed.site, killed.keys[framework])
    for _ in range(2):
        assert refused_as(killed.send(framework), 409, "outcome_unknown")
    assert killed.begun(framework) == 1
