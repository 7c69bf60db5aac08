# SPDX-License-Identifier: MIT
"""Workers die, stop and freeze, anywhere. What they held comes back; nobody waits for them.

What a death between any two steps leaves is in test_every_step.py. Times here are real: best_of judges them.
"""
import contextlib
import os
import signal
import time

import pytest
from harness import Gone, best_of, until

FOUR = {"resources": {"payments": {"breaker": {"consecutive": 1, "cooldown": "1s", "probe_timeout": "1h"}, "bulkhead": {"limit": 4}}}}


def time_to_reclaim(rescd, watcher, victim, get_ready):
    """Seconds from SIGKILL until nothing of the victim's is in use any more."""
    get_ready(victim)
    state = watcher.state("payments")
    assert state["in_flight"] == 4
    began = time.monotonic()
    victim.process.kill()

    def all_back():
        state = watcher.state("payments")
        return (state["in_flight"], state["probes_out"]) == (0, 0)

    until(all_back, what="four permits back, and the probe where there was one")
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
    deaths = best_of(lambda: time_to_reclaim(rescd, watcher, rescd.worker(), lambda v: v.hold("payments", 4)), 0.050)
    reaped = rescd.until_reaped(deaths)
    assert len(reaped) == deaths and all("4 permits" in e["text"] for e in reaped)
    assert rescd.show("payments")["counters"]["permits_reclaimed"] == 4 * deaths


def has_pidfd(process, pid):
    """Does it hold a pidfd of that process?"""
    for fd in os.listdir("/proc/%d/fdinfo" % process):
        with contextlib.suppress(OSError), open("/proc/%d/fdinfo/%s" % (process, fd), encoding="utf-8") as file:
            if "Pid:\t%d\n" % pid in file.read():
                return True
    return False


def test_deaths_of_those_that_rescd_knows_are_learnt_by_their_pidfds(host):
    """The token is dropped a moment before, so now and then it is quicker. Without pidfds it always is."""
    rescd = host(FOUR)
    for death in range(1, 21):
        victim = rescd.worker()
        until(lambda: has_pidfd(rescd.process.pid, victim.pid), what="rescd knows the worker")
        victim.kill()
        until(lambda: rescd.log().count("worker died") == death, what="rescd has noticed its death")
        assert not has_pidfd(rescd.process.pid, victim.pid)
        if "learnt by pidfd" in rescd.log():
            return
    raise AssertionError("never learnt by pidfd:\n" + rescd.log())


def test_A1_a_probe_of_a_killed_worker_is_back_within_50_ms(host):
    rescd = host(FOUR)
    watcher = rescd.worker()

    def death():
        reclaimed = rescd.show("payments")["counters"]["probes_reclaimed"]
        took = time_to_reclaim(rescd, watcher, rescd.worker(), lambda v: take_a_probe_and_three_more(rescd, v))
        rescd.until_counted("payments", probes_reclaimed=reclaimed + 1)
        seen = rescd.show("payments")
        assert (seen["state"], seen["probes"]["out"]) == ("half_open", 0)
        again = watcher.enter("payments")  # exactly one new probe, and its ok closes
        assert again["probe"] and rescd.worker().enter("payments")["answer"] == "half_open"
        watcher.leave(again)
        assert rescd.show("payments")["state"] == "closed"
        return took

    best_of(death, 0.050)


def time_to_be_admitted(victim, other):
    """Seconds from the death of the victim until another is let in. And its ticket."""
    victim.kill()
    began = time.monotonic()
    ticket = other.until_admitted("payments", what="admission after the reclaim")
    return time.monotonic() - began, ticket


def test_without_rescd_who_meets_a_full_bulkhead_reclaims(host):
    rescd = host(FOUR)
    other = rescd.worker()
    rescd.kill()

    def death():
        victim = rescd.worker()
        victim.hold("payments", 4)
        assert other.enter("payments")["answer"] == "full"
        took, ticket = time_to_be_admitted(victim, other)
        assert other.leave(ticket)["r"] == 0
        return took

    deaths = best_of(death, 1.0, few=1)
    seen = rescd.show("payments")
    assert (seen["permits"]["in_use"], seen["counters"]["permits_reclaimed"]) == (0, 4 * deaths)


def test_without_rescd_who_meets_the_probe_of_a_dead_worker_takes_it_over(host):
    rescd = host(FOUR)
    other = rescd.worker()
    rescd.kill()

    def death():
        victim = rescd.worker()
        take_a_probe_and_three_more(rescd, victim)
        took, ticket = time_to_be_admitted(victim, other)
        assert ticket["probe"]
        other.leave(ticket)
        return took

    deaths = best_of(death, 1.0, few=1)
    seen = rescd.show("payments")
    assert (seen["state"], seen["permits"]["in_use"], seen["counters"]["probes_reclaimed"]) == ("closed", 0, deaths)


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
