"""What every test has: hypothesis profiles, and the repetition that `make soak` asks for.

Property tests draw new examples in every run, and most of them in a soak. CI alone draws the same
ones for the same tests: it judges a change, and gives the same answer when it is asked again. A
failure prints a line that reproduces it (`@reproduce_failure`).

A test marked `soak` injects faults or makes up input, so that a second run of it may find what the
first did not; every property test is marked. With `TALLY_SOAK_SECONDS` set, such a test is repeated
until its share of that time is over. It must stand being called again with the same fixtures.
"""

import os
import time

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

SOAK_SECONDS = float(os.environ.get("TALLY_SOAK_SECONDS", "0"))
SOAK_SHARE = pytest.StashKey[float]()

# A loaded machine makes examples slowly, which says nothing about the code: no deadline, no
# complaint about slowness. Sixty examples each time, since there is a next time, and `make soak`
# for as many as you like.
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
    """Share the time of a soak out among its tests, which run on several workers at once."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    soaked = sum(1 for item in items if item.get_closest_marker("soak"))
    config.stash[SOAK_SHARE] = SOAK_SECONDS * workers / soaked if soaked else 0.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Call a soaked test again and again until its share of the time is over; leave others to pytest."""
    share = pyfuncitem.config.stash[SOAK_SHARE]
    if not share or pyfuncitem.get_closest_marker("soak") is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    end = time.monotonic() + share
    while True:
        pyfuncitem.obj(**arguments)
        if time.monotonic() >= end:
            return True
