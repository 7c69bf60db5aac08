# SPDX-License-Identifier: MIT
"""System tests: the real programs, real processes, real signals.

RESC_VARIANT names the build: "test" (default), in which time is moved by the tests and failpoints exist; with "release" only the tests
that are marked smoke run, in real time.
"""
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import harness  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "smoke: also runs against the release build, in real time")


def pytest_sessionstart(session):
    missing = harness.programs_missing()
    if missing:
        pytest.exit("%s is not built: make VARIANT=%s all helpers" % (missing[0], harness.VARIANT), returncode=3)


def pytest_collection_modifyitems(config, items):
    if harness.VARIANT != "release":
        return
    for item in items:
        if item.get_closest_marker("smoke") is None:
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
def nothing_left_behind():
    yield
    prefix = "resc.resc-test-%d-" % os.getpid()
    assert [n for n in os.listdir(harness.SHM) if n.startswith(prefix)] == []
