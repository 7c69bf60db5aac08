# SPDX-License-Identifier: MIT
"""System tests: the real programs, real processes, real signals.

RESC_VARIANT names the build: "test" (default), in which time is moved by the tests and failpoints exist; with "release" only the tests
that are marked smoke, or plays, run, in real time.
"""
import glob
import os
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import harness  # noqa: E402
import keeper  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: also runs against the release build, in real time")
    config.addinivalue_line("markers", "plays: runs against the release build alone: it plays a rehearsal, which takes real time")


def pytest_sessionstart(session):
    missing = harness.programs_missing()
    if missing:
        pytest.exit("%s is not built: make VARIANT=%s all helpers" % (missing[0], harness.VARIANT), returncode=3)
    session.config.mark = keeper.watch(*harness.left_by_us())


def pytest_collection_modifyitems(config, items):
    real_time = harness.VARIANT not in ("test", "asan", "tsan")
    for item in items:
        plays = item.get_closest_marker("plays") is not None
        if plays and not real_time:
            item.add_marker(pytest.mark.skip(reason="plays in real time"))
        if harness.VARIANT == "release" and not plays and item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.skip(reason="needs the test clock"))


@pytest.fixture
def host():
    """host(config) is a running rescd with an instance of its own; all of it is gone after the test."""
    made = []

    def make(config, **kw):
        rescd = harness.Rescd(config, start=False, **{k: v for k, v in kw.items() if k != "start"})
        made.append(rescd)
        return rescd.start() if kw.get("start", True) else rescd

    yield make
    for rescd in reversed(made):
        rescd.clean()


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind(pytestconfig):
    yield
    assert [path for pattern in harness.left_by_us() for path in glob.glob(pattern)] == []
    harness.until(lambda: not list(keeper.marked(pytestconfig.mark)), what="no process of the tests is left")
