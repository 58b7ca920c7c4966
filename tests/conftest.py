"""Hypothesis profiles for all tests, and the repetition for `make soak`.

Property tests generate new examples in every run, and most of them in a soak. In CI they generate
the same examples for the same tests, so that results are reproducible. A failure prints a
`@reproduce_failure` line.

A test marked `soak` injects faults or generates input, so that another run may find more; property
tests are marked automatically. With `TALLY_SOAK_SECONDS`, such a test is repeated until its share
of that time has passed. It must tolerate repeated calls with the same fixtures.
"""

import os
import time

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

SOAK_SECONDS = float(os.environ.get("TALLY_SOAK_SECONDS", "0"))
SOAK_SHARE = pytest.StashKey[float]()

# Slow examples on a loaded machine say nothing about the code, so there is no deadline. Sixty
# examples per run are enough; `make soak` runs more.
settings.register_profile(
    "default",
    deadline=None,
    print_blob=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("soak", settings.get_profile("default"), max_examples=200)


def pytest_configure() -> None:
    in_ci = os.environ.get("CI") == "true"
    settings.load_profile("soak" if SOAK_SECONDS else "ci" if in_ci else "default")


def pytest_itemcollected(item: pytest.Item) -> None:
    if is_hypothesis_test(getattr(item, "obj", None)):
        item.add_marker("soak")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Divide the time of a soak among its tests, which run on several workers."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    soak_tests = sum(1 for item in items if item.get_closest_marker("soak"))
    config.stash[SOAK_SHARE] = SOAK_SECONDS * workers / soak_tests if soak_tests else 0.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Repeat a soak test until its share of the time has passed; leave others to pytest."""
    share = pyfuncitem.config.stash[SOAK_SHARE]
    if not share or pyfuncitem.get_closest_marker("soak") is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    end = time.monotonic() + share
    while True:
        pyfuncitem.obj(**arguments)
        if time.monotonic() >= end:
            return True
