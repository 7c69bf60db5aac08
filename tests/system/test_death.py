# SPDX-License-Identifier: MIT
"""Workers die, stop and freeze, anywhere. What they held comes back; nobody waits for them.

Times here are real. They are measured several times and the best one is judged: a loaded machine may be late, a broken program always is.
"""
import os
import select
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


# ---- between any two steps ----

POINTS = ["register.life", "register.locked", "register.claimed", "permit.taken", "enter.permit", "enter.half_open", "probe.leased",
          "enter.admitted", "leave.permit", "leave.lease", "leave.counted", "leave.tally", "trip.summed", "transition.claimed",
          "transition.proposed", "transition.won", "transition.explained", "transition.recorded", "transition.event", "event.claimed",
          "event.filled", "budget.claim", "budget.claimed"]
ALL = {"resources": {
    "payments": {"breaker": {"consecutive": 2, "failure_rate": 0.9, "min_calls": 100, "cooldown": "1s", "probe_timeout": "1h"},
                 "retry": {"budget": {"capacity": 20, "per_second": 5}}, "bulkhead": {"limit": 8}}}}


def live_through(worker):
    """A life that meets every point: failures, an opening, a probe, a closing, a retry."""
    worker.ask("retry", "payments", "fail", 0)
    worker.advance("1s")
    worker.ask("retry", "payments", "fail", 0)
    worker.fail("payments", 2)
    worker.advance("1s")
    worker.call("payments")
    worker.ask("status")


def start_victim(rescd, point, action):
    """The victim, or None where it is gone before it could say a word."""
    try:
        return rescd.worker(env={"RESC_FAILPOINT": "%s=%s" % (point, action)})
    except Gone:
        return None


def transitions(rescd):
    """The generations whose transition is in the events, each as often as it is there."""
    return sorted(e["generation"] for e in rescd.events("breaker"))


def events_are_complete(rescd):
    return transitions(rescd) == list(range(2, rescd.show("payments")["generation"] + 1))


def check_all_is_well(rescd, witness, kept):
    """
    Nothing is held but what the witness holds; a breaker that is open closes again; every transition is counted once and in the events
    once, whoever was cut off in the middle of its record.
    """
    until(lambda: witness.state("payments")["in_flight"] == len(kept), what="only the witness's permits in use")
    until(lambda: rescd.show("payments")["probes"]["out"] == 0, what="no probe out")

    def closed():
        rescd.advance("1s")
        witness.call("payments")
        return rescd.show("payments")["state"] == "closed"

    until(closed, what="the breaker closed by an ok probe")
    assert all(witness.leave(t)["answer"] in ("ok", "stale") for t in kept)
    seen = rescd.show("payments")
    assert transitions(rescd) == list(range(2, seen["generation"] + 1))
    counters = seen["counters"]
    assert seen["permits"]["in_use"] == 0
    assert counters["opened"] + counters["half_opened"] + counters["closed"] == seen["generation"] - 1
    assert counters["enters"] == counters["admitted"] + sum(v for k, v in counters.items() if k.startswith("refused_"))


@pytest.mark.parametrize("point", POINTS)
def test_F7_a_death_between_any_two_steps_leaves_nothing(host, point):
    rescd = host(ALL)
    witness = rescd.worker()
    kept = witness.hold("payments", 3)
    victim = start_victim(rescd, point, "kill")
    if victim:
        victim.advance = rescd.advance
        with pytest.raises(Gone):
            live_through(victim)
        assert victim.died() == -signal.SIGKILL
    until(lambda: events_are_complete(rescd), what="an event for each transition, also those whose author died")
    check_all_is_well(rescd, witness, kept)


@pytest.mark.parametrize("point", [p for p in POINTS if not p.startswith("register.")])
def test_F7_nobody_waits_for_one_that_is_stopped_between_two_steps(host, point):
    rescd = host(ALL)
    witness = rescd.worker()
    kept = witness.hold("payments", 3)
    victim = start_victim(rescd, point, "stop")
    victim.advance = rescd.advance

    steps = [("retry", "payments", "fail", 0), None, ("retry", "payments", "fail", 0), ("enter", "payments"), ("leave", 0, "fail"),
             ("enter", "payments"), ("leave", 1, "fail"), None, ("enter", "payments"), ("leave", 2, "ok")]
    for step in steps:
        if step is None:
            rescd.advance("1s")
            continue
        victim.send(*step)
        until(lambda: victim.is_stopped() or victim.answers in select.select([victim.answers], [], [], 0)[0])
        if victim.is_stopped():
            break
        victim.receive()
    assert victim.is_stopped(), "the point was not met"
    told = witness.loop("payments", 20000, 0.01, 7)
    assert told["errors"] == told["leave_errors"] == 0 and told["slowest_us"] < 2_000_000
    rescd.ctl("list")
    rescd.advance("1ms")
    victim.kill()
    check_all_is_well(rescd, witness, kept)


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
