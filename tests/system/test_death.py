# SPDX-License-Identifier: MIT
"""Workers die, stop and freeze, anywhere. What they held comes back; nobody waits for them.

What a death between any two steps leaves is in test_every_step.py. Times here are real. They are measured several times and the best one
is judged: a loaded machine may be late, a broken program always is.
"""
import os
import signal
import time

import pytest
from harness import Gone, may, until

FOUR = {"resources": {"payments": {"breaker": {"consecutive": 1, "cooldown": "1s", "probe_timeout": "1h"}, "bulkhead": {"limit": 4}}}}
OTHER_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child"]
needs_namespaces = pytest.mark.skipif(not may(*OTHER_NAMESPACE, "true"), reason="unshare is not permitted here")


def time_to_reclaim(rescd, watcher, victim, get_ready):
    """Seconds from SIGKILL until nothing of the victim's is in use any more."""
    get_ready(victim)
    state = watcher.state("payments")
    assert state["in_flight"] == 4
    began = time.monotonic()
    victim.process.kill()
    until(lambda: watcher.state("payments")["in_flight"] == 0, what="four permits back")
    took = time.monotonic() - began
    victim.process.wait()
    return took


def take_a_probe_and_three_more(rescd, victim):
    """Three calls from before the opening, then the probe of the trial."""
    victim.hold("payments", 3)
    victim.call("payments", "fail")
    rescd.advance("1s")
    assert victim.enter("payments")["probe"]


@pytest.mark.smoke
def test_permits_of_a_killed_worker_are_back_within_50_ms(host):
    rescd = host(FOUR)
    watcher = rescd.worker()
    times = [time_to_reclaim(rescd, watcher, rescd.worker(), lambda v: v.hold("payments", 4)) for _ in range(5)]
    assert min(times) < 0.050, times
    reaped = rescd.events("reaped")
    assert len(reaped) == 5 and all("4 permits" in e["text"] for e in reaped)
    assert rescd.show("payments")["counters"]["permits_reclaimed"] == 20


def test_a_death_of_one_that_rescd_knows_is_learnt_by_its_pidfd(host):
    rescd = host(FOUR)
    for death in range(1, 4):
        victim = rescd.worker()
        victim.hold("payments", 4)
        time.sleep(0.1)  # rescd looks at the slots of those that came 50 ms ago for the last time: it has the pidfd now
        victim.kill()
        until(lambda: rescd.log().count("learnt by pidfd") == death, what="rescd says how it has learnt of it")


def test_A1_a_probe_of_a_killed_worker_is_back_within_50_ms(host):
    rescd = host(FOUR)
    watcher = rescd.worker()
    times = []
    for round_ in range(1, 4):
        times.append(time_to_reclaim(rescd, watcher, rescd.worker(), lambda v: take_a_probe_and_three_more(rescd, v)))
        seen = rescd.show("payments")
        assert (seen["state"], seen["probes"]["out"], seen["counters"]["probes_reclaimed"]) == ("half_open", 0, round_)
        again = watcher.enter("payments")  # exactly one new probe, and its ok closes
        assert again["probe"] and rescd.worker().enter("payments")["answer"] == "half_open"
        watcher.leave(again)
        assert rescd.show("payments")["state"] == "closed"
    assert min(times) < 0.050, times


def test_without_rescd_who_meets_a_full_bulkhead_reclaims(host):
    rescd = host(FOUR)
    victim, other = rescd.crew(2)
    rescd.kill()
    victim.hold("payments", 4)
    assert other.enter("payments")["answer"] == "full"
    victim.kill()
    began = time.monotonic()
    ticket = other.until_admitted("payments", what="admission after the reclaim")
    assert time.monotonic() - began < 1.0
    assert other.leave(ticket)["r"] == 0
    seen = rescd.show("payments")
    assert (seen["permits"]["in_use"], seen["counters"]["permits_reclaimed"]) == (0, 4)


def test_without_rescd_who_meets_the_probe_of_a_dead_worker_takes_it_over(host):
    rescd = host(FOUR)
    victim, other = rescd.crew(2)
    rescd.kill()
    take_a_probe_and_three_more(rescd, victim)
    victim.kill()
    began = time.monotonic()
    ticket = other.until_admitted("payments", what="a probe after the reclaim")
    assert time.monotonic() - began < 1.0 and ticket["probe"]
    other.leave(ticket)
    seen = rescd.show("payments")
    assert (seen["state"], seen["permits"]["in_use"], seen["counters"]["probes_reclaimed"]) == ("closed", 0, 1)


# ---- two deaths ----

@pytest.mark.parametrize("point", ["reap.dead", "reap.permit", "reap.probe", "reap.cells"])
def test_F7_a_reaper_that_dies_is_finished_by_the_next_one(host, point):
    rescd = host(FOUR)
    victim = rescd.worker()
    take_a_probe_and_three_more(rescd, victim)
    rescd.kill()
    victim.kill()
    reaper = rescd.worker(env={"RESC_FAILPOINT": "%s=kill" % point})
    with pytest.raises(Gone):
        until(lambda: reaper.enter("payments") and None)
    assert reaper.died() == -signal.SIGKILL
    other = rescd.worker()
    ticket = other.until_admitted("payments", what="a probe after two deaths")
    assert ticket["probe"]
    other.leave(ticket)
    seen = rescd.show("payments")
    assert (seen["state"], seen["permits"]["in_use"]) == ("closed", 0)
    assert (seen["counters"]["permits_reclaimed"], seen["counters"]["probes_reclaimed"]) == (4, 1)
