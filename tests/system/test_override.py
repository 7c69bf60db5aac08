# SPDX-License-Identifier: MIT
"""An operator decides over a breaker: all workers obey at their next call, it ends by itself, and it can be read who did it and why."""
import os
import subprocess
import time

import pytest
from harness import RESCTL, may, until

FIVE = {"resources": {"payments": {"breaker": {"consecutive": 5, "cooldown": "5s"}}, "ledger": {"breaker": {"consecutive": 5}}}}
NOBODY = 65534


@pytest.mark.parametrize("daemon", [True, False])
def test_forced_open_for_two_seconds_with_and_without_the_daemon(host, daemon):
    rescd = host(FIVE)
    crew = rescd.crew(8)
    assert all(worker.call("payments")["r"] == 0 for worker in crew)
    if not daemon:
        rescd.kill()
    rescd.ctl("force", "payments", "open", "--for", "2s", "--why", "vendor maintenance")
    assert [worker.enter("payments")["answer"] for worker in crew] == ["forced_open"] * 8
    assert crew[0].call("ledger")["r"] == 0
    seen = rescd.show("payments")["override"]
    assert (seen["mode"], seen["left_ms"], seen["uid"], seen["why"]) == ("open", 2000, os.getuid(), "vendor maintenance")
    rescd.advance("1999ms")
    assert crew[3].enter("payments")["answer"] == "forced_open"
    rescd.advance("1ms")
    assert [worker.call("payments")["answer"] for worker in crew] == ["ok"] * 8
    seen = rescd.show("payments")
    assert (seen["override"], seen["state"], seen["window"]["consecutive_failures"]) == (None, "closed", 0)
    forced, expired = rescd.events("forced"), rescd.events("expired")
    assert [(e["resource"], e["uid"], e["text"], e["values"]) for e in forced] == \
        [("payments", os.getuid(), "vendor maintenance", {"for_ms": 2000})]
    assert [(e["resource"], e["text"]) for e in expired] == [("payments", "vendor maintenance")]
    assert "vendor maintenance" in rescd.ctl("events").stdout
    assert rescd.show("payments")["counters"]["refused_forced_open"] == 9


@pytest.mark.smoke
def test_forced_open_ends_by_itself_in_real_time_even_if_nobody_calls(host):
    rescd = host(FIVE)
    worker = rescd.worker()
    rescd.ctl("force", "payments", "open", "--for", "300ms", "--why", "drill")
    began = time.monotonic()
    if os.environ.get("RESC_VARIANT", "test") != "release":
        rescd.advance("300ms")
    until(lambda: rescd.events("expired"), what="rescd ends an override that is over")
    assert time.monotonic() - began < 5
    assert worker.call("payments")["r"] == 0


def test_forced_open_never_half_opens_and_forced_closed_still_counts(host):
    rescd = host(FIVE)
    worker = rescd.worker()
    worker.fail("payments", 5)
    rescd.ctl("force", "payments", "open", "--until-released", "--why", "x")
    rescd.advance("1h")
    assert worker.enter("payments")["answer"] == "forced_open"
    rescd.ctl("force", "payments", "closed", "--for", "1h", "--why", "false alarm")
    worker.fail("payments", 10)
    assert worker.enter("payments")["answer"] == "ok"
    counters = rescd.show("payments")["counters"]
    assert (counters["ended_fail"], counters["opened"]) == (15, 1)
    rescd.ctl("release", "payments", "--why", "over")
    seen = rescd.show("payments")
    assert (seen["state"], seen["override"], seen["window"]["calls"], seen["window"]["consecutive_failures"]) == ("closed", None, 0, 0)
    worker.fail("payments", 4)
    assert rescd.show("payments")["state"] == "closed"
    worker.fail("payments", 1)
    assert rescd.show("payments")["state"] == "open"


def test_disabled_decides_and_records_nothing(host):
    rescd = host(FIVE)
    worker = rescd.worker()
    rescd.ctl("force", "payments", "disabled", "--for", "1h", "--why", "new cluster")
    worker.fail("payments", 20)
    seen = rescd.show("payments")
    assert (seen["state"], seen["window"]["calls"], seen["counters"]["opened"], seen["counters"]["ended_fail"]) == ("closed", 0, 0, 20)


def test_an_override_outlives_reload_restart_and_a_larger_segment(host):
    rescd = host(FIVE)
    worker = rescd.worker()
    rescd.ctl("force", "payments", "open", "--for", "1h", "--why", "long night")
    before = rescd.show("payments")["override"]
    assert rescd.reload()["ok"]
    rescd.restart()
    more = {"resources": {**FIVE["resources"], **{"shard-%d" % i: {} for i in range(40)}}}
    assert rescd.load(more)["replaced"]
    assert rescd.show("payments")["override"] == before
    assert worker.enter("payments")["answer"] == "forced_open"
    rescd.advance("1h")
    assert worker.call("payments")["r"] == 0


def test_release_of_nothing_is_told(host):
    rescd = host(FIVE)
    done = rescd.ctl("release", "payments", code=1)
    assert "not forced" in done.stderr and rescd.events("released") == []
    rescd.ctl("force", "payments", "open", "--for", "1m", "--why", "x")
    rescd.ctl("release", "payments", "--why", "back early")
    assert [(e["text"], e["uid"]) for e in rescd.events("released")] == [("back early", os.getuid())]
    rescd.ctl("release", "payments", code=1)


def test_reset_closes_with_a_fresh_window_and_a_full_budget(host):
    rescd = host({"resources": {"payments": {"breaker": {"consecutive": 5}, "retry": {"budget": {"capacity": 9}}}}})
    worker = rescd.worker()
    worker.ask("retry", "payments", "fail", 0)
    worker.fail("payments", 5)
    rescd.ctl("reset", "payments", "--why", "certificate renewed")
    seen = rescd.show("payments")
    assert (seen["state"], seen["window"]["calls"], seen["retry"]["tokens"], seen["why"]) == ("closed", 0, 9, "reset")
    assert seen["counters"]["ended_fail"] == 5
    assert worker.call("payments")["r"] == 0
    assert rescd.events("reset")[0]["text"] == "certificate renewed"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_the_event_has_the_uid_of_the_operator(host):
    rescd = host({**FIVE, "group": "nogroup"})
    assert may("setpriv", "--reuid", str(NOBODY), "--clear-groups", "true")
    somebody = ["setpriv", "--reuid", str(NOBODY), "--regid", str(os.stat(rescd.segment).st_gid), "--clear-groups"]
    assert subprocess.run([*somebody, RESCTL, "-i", rescd.instance, "force", "payments", "open", "--for", "1m", "--why", "I may"],
                          stdout=subprocess.DEVNULL, check=False).returncode == 0
    assert rescd.events("forced")[0]["uid"] == NOBODY
    assert rescd.show("payments")["override"]["uid"] == NOBODY


@pytest.mark.parametrize("point", ["note.claimed", "override.text", "override.set"])
def test_a_resctl_that_dies_while_forcing_leaves_all_or_nothing(host, point):
    rescd = host(FIVE)
    worker = rescd.worker()
    rescd.ctl("force", "payments", "closed", "--for", "1h", "--why", "before")
    done = rescd.ctl("force", "payments", "open", "--for", "1h", "--why", "cut off", code=-9, env={**os.environ, "RESC_FAILPOINT": point + "=kill"})
    assert done.stdout == ""
    seen = rescd.show("payments")["override"]
    assert (seen["mode"], seen["why"]) in (("closed", "before"), ("open", "cut off"))
    assert worker.enter("payments")["answer"] == ("forced_open" if seen["mode"] == "open" else "ok")
    rescd.ctl("force", "payments", "open", "--for", "1h", "--why", "again")
    assert worker.enter("payments")["answer"] == "forced_open"
    rescd.ctl("release", "payments")
    assert worker.enter("payments")["answer"] == "ok"


@pytest.mark.parametrize("point", ["override.ending", "override.closed", "override.gone", "reset.closed"])
def test_a_worker_or_resctl_that_dies_while_ending_is_finished_by_others(host, point):
    rescd = host(FIVE)
    worker = rescd.worker()
    worker.fail("payments", 3)
    rescd.ctl("force", "payments", "open", "--for", "1h", "--why", "x")
    command = "reset" if point.startswith("reset") else "release"
    rescd.ctl(command, "payments", code=-9, env={**os.environ, "RESC_FAILPOINT": point + "=kill"})
    rescd.advance("1h")
    assert worker.call("payments")["r"] == 0
    seen = rescd.show("payments")
    assert (seen["state"], seen["override"]) == ("closed", None)
