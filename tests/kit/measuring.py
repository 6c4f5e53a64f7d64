"""A plugin for pytest under coverage: measure these tests only, because measuring doubles the processor time of a test.

dev.py measures every test on the first database. The other databases add what only they run of core and store.
"""

from pathlib import Path

import pytest
from coverage import Coverage

MEASURED = ("flow/", "http/test_swallowed_deadlocks.py", "maintenance/", "management/", "monitoring/", "store/")
TESTS = Path(__file__).parents[1]
COVERAGE = Coverage.current()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Go on with the measurement, or pause it."""
    measured = item.path.relative_to(TESTS).as_posix().startswith(MEASURED)
    if COVERAGE is None or measured is (Coverage.current() is COVERAGE):
        return
    if measured:
        COVERAGE.start()
    else:
        COVERAGE.stop()
