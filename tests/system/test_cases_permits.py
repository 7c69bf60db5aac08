# SPDX-License-Identifier: MIT
"""Group C of the field cases: permits of the dead, waiters, limits that change. The library, the snapshot and the metrics say the same.

More of waiting and of shares of the live workers: test_waiting.py.
"""
import signal

import pytest
from harness import Gone, agreed, until, until_asleep


def bulkhead(**keys):
    return {"resources": {"payments": {"bulkhead": keys}}}


def in_use(rescd, worker, count, **permits):
    """The three views agree that so many permits are in use; and on these values of the snapshot's permits."""
    seen = agreed(rescd, worker, "payments")
    assert {"in_use": seen["permits"]["in_use"], **{k: seen["permits"][k] for k in permits}} == {"in_use": count, **permits}
    return seen


def back_to(worker, count):
    until(lambda: worker.state("payments")["in_flight"] == count, what="%d permits in use" % count)


# ---- C1: a crash leaks nothing ----

def test_C1_permits_of_four_killed_workers_are_back_and_those_of_the_living_stay(host):
    rescd = host(bulkhead(limit=5))
    living = rescd.worker()
    kept = living.hold("payments", 1)
    reclaimed = 0
    for round_ in range(8):
        crew = rescd.crew(4)
        holders = crew[:1 + round_ % 4]
        for worker in holders:
            worker.hold("payments", 1)
        reclaimed += len(holders)
        assert living.state("payments")["in_flight"] == 1 + len(holders)
        for worker in crew:
            worker.process.kill()
        for worker in crew:
            worker.process.wait()
        back_to(living, 1)
    seen = in_use(rescd, living, 1, limit=5, waiting=0)
    assert seen["counters"]["permits_reclaimed"] == reclaimed
    assert len(living.hold("payments", 4)) == 4 and living.enter("payments")["answer"] == "full"
    assert living.leave(kept[0])["answer"] == "ok"


# Where a call can die, and whether it has its permit by then.
POINTS = [("permit.taken", 1), ("enter.admitted", 1), ("leave.released", 0), ("leave.permit", 0), ("leave.counted", 0)]


@pytest.mark.parametrize("daemon", [True, False])
@pytest.mark.parametrize("point,holds", POINTS)
def test_C1_a_call_that_dies_anywhere_gives_its_permit_back(host, point, holds, daemon):
    rescd = host({"resources": {"payments": {"bulkhead": {"limit": 2}, "breaker": {"consecutive": 1000}}}})
    living = rescd.worker()
    living.hold("payments", 1)
    if not daemon:
        rescd.kill()
    for _ in range(2):
        victim = rescd.worker(env={"RESC_FAILPOINT": "%s=kill" % point})
        with pytest.raises(Gone):
            victim.leave(victim.enter("payments"), "fail")
        assert victim.died() == -signal.SIGKILL
        # Whoever finds it full looks for the dead, so it works without rescd too.
        ticket = living.until_admitted("payments", what="the permit of the dead")
        living.leave(ticket)
    if not daemon:
        rescd.start()
    back_to(living, 1)
    seen = in_use(rescd, living, 1)
    assert seen["counters"]["permits_reclaimed"] == 2 * holds


# ---- C3: waiters that give up hold nothing ----

@pytest.mark.parametrize("end", ["time is up", "killed", "cancelled by their deadline"])
def test_C3_eight_waiters_that_are_gone_take_no_permit(host, end):
    rescd = host(bulkhead(limit=8, max_wait="50ms" if end == "time is up" else "1h"))
    holder, *waiters = rescd.crew(9)
    held = holder.hold("payments", 8)
    for worker in waiters:
        worker.send_enter("payments", **({"deadline_ms": 50} if end.startswith("cancelled") else {}))
    until(lambda: holder.state("payments")["waiting"] == 8, what="eight that wait")
    until_asleep(*waiters)
    in_use(rescd, holder, 8, waiting=8)
    if end == "killed":
        for worker in waiters:
            worker.kill()
        until(lambda: holder.state("payments")["waiting"] == 0, what="nobody waits")
    else:
        holder.advance(50)
        answers = {worker.receive()["answer"] for worker in waiters}
        assert answers == ({"full"} if end == "time is up" else {"deadline"})
    in_use(rescd, holder, 8, waiting=0)
    for ticket in held:
        assert holder.leave(ticket)["answer"] == "ok"
    in_use(rescd, holder, 0, waiting=0)
    assert len(rescd.worker().hold("payments", 8)) == 8
    seen = in_use(rescd, holder, 8)
    assert seen["counters"]["waited"] == 0 and seen["counters"]["refused_full"] == (8 if end == "time is up" else 0)


def test_C3_a_permit_goes_to_a_waiter_that_lives(host):
    """One of two waiters dies; the permit that is given back then goes to the other one."""
    rescd = host(bulkhead(limit=1, max_wait="1h", max_waiting=2))
    holder, first, second = rescd.crew(3)
    held = holder.enter("payments")
    for worker in (first, second):
        worker.send_enter("payments")
    until(lambda: holder.state("payments")["waiting"] == 2, what="two that wait")
    until_asleep(first, second)
    first.signal(signal.SIGSTOP)  # it can take nothing
    first.until_stopped()
    holder.leave(held)
    ticket = second.receive()  # it may be the second in line, and passes the first
    assert ticket["answer"] == "ok"
    in_use(rescd, holder, 1, waiting=1)
    first.kill()
    until(lambda: holder.state("payments")["waiting"] == 0, what="nobody waits")
    second.leave(ticket)
    seen = in_use(rescd, holder, 0, waiting=0)
    assert (seen["counters"]["waited"], seen["counters"]["admitted"]) == (1, 2)


# ---- C5: the limit changes under holders ----

def test_C5_who_comes_with_the_same_limit_adds_nothing(host):
    rescd = host(bulkhead(limit=100))
    first = rescd.worker()
    held = first.hold("payments", 1)
    second = rescd.worker()
    rescd.load(bulkhead(limit=100))
    in_use(rescd, second, 1, limit=100, effective=100)
    assert first.leave(held[0])["answer"] == "ok"
    assert len(second.hold("payments", 100)) == 100
    assert first.enter("payments")["answer"] == "full"
    in_use(rescd, first, 100, limit=100)


@pytest.mark.parametrize("held,low,high", [(8, 5, 20), (10, 1, 11), (3, 2, 3), (8, 5, 200)])
def test_C5_holders_keep_theirs_and_the_total_is_never_above_the_limit(host, held, low, high):
    rescd = host(bulkhead(limit=10))
    first, second = rescd.crew(2)
    tickets = first.hold("payments", held)
    rescd.load(bulkhead(limit=low))
    in_use(rescd, second, held, limit=low)
    for left in range(held - 1, low - 1, -1):  # down to the limit: no room yet
        assert second.enter("payments")["answer"] == "full"
        assert first.leave(tickets.pop())["answer"] == "ok"
        in_use(rescd, second, left, limit=low)
    assert second.enter("payments")["answer"] == "full"
    first.leave(tickets.pop())
    tickets_of_second = [second.enter("payments")]
    assert tickets_of_second[0]["r"] == 0 and second.enter("payments")["answer"] == "full"
    rescd.load(bulkhead(limit=high))
    tickets_of_second += second.hold("payments", high - low)
    assert second.enter("payments")["answer"] == "full"
    in_use(rescd, first, high, limit=high, effective=high)
    for worker, ticket in [(first, t) for t in tickets] + [(second, t) for t in tickets_of_second]:
        assert worker.leave(ticket)["answer"] == "ok"
        assert worker.leave(ticket)["answer"] == "error"
    in_use(rescd, first, 0)
