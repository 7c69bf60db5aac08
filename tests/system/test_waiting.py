# SPDX-License-Identifier: MIT
"""Waiting for a permit, priorities, and limits that are a share of the live workers: what the library answers, what resctl says and what
the metrics page says. In the test build a wait ends when a test moves the clock."""
import random
import signal
import time

import pytest
from harness import VARIANT, metric, until, until_asleep

FULL, DEADLINE, QUEUE_FULL, PRIORITY = 4, 5, 6, 7


def config(workers=None, **bulkhead):
    made = {"resources": {"payments": {"bulkhead": {"limit": 2, "max_wait": "1s", "max_waiting": 2, **bulkhead}}}}
    return made if workers is None else {"workers": workers, **made}


def seen(rescd):
    """The bulkhead as resctl and the metrics page show it, which is the same."""
    page = rescd.scrape()  # first: a rescd that answers is not in the middle of anything
    shown = next(r for r in rescd.snapshot()["resources"] if r["name"] == "payments")
    permits, counters = shown["permits"], shown["counters"]
    for key, name in (("in_use", "resc_permits_in_use"), ("limit", "resc_permits_limit"), ("waiting", "resc_permits_waiting")):
        assert permits[key] == metric(page, name, resource="payments"), key
    assert counters["waited"] == metric(page, "resc_waited_calls_total", resource="payments")
    for reason in ("full", "queue_full", "priority"):
        assert counters["refused_" + reason] == metric(page, "resc_refusals_total", resource="payments", reason=reason), reason
    assert counters["enters"] == counters["admitted"] + sum(n for k, n in counters.items() if k.startswith("refused_"))
    return {**{k: permits[k] for k in ("in_use", "limit", "waiting")},
            **{k: counters[k] for k in ("admitted", "waited", "refused_full", "refused_queue_full", "refused_priority", "permits_reclaimed")}}


def permits(rescd):
    return rescd.show("payments")["permits"]


def until_waiting(rescd, count):
    until(lambda: permits(rescd)["waiting"] == count, what="%d calls that wait" % count)


def until_limit(rescd, limit):
    until(lambda: permits(rescd)["limit"] == limit, what="a limit of %d" % limit)


def waiting(rescd, worker, **options):
    """The worker waits for a permit; its answer comes by receive()."""
    before = permits(rescd)["waiting"]
    worker.send_enter("payments", **options)
    until_waiting(rescd, before + 1)
    until_asleep(worker)
    return worker


# ---- waiting ----

def test_who_waits_gets_what_comes_free(host):
    rescd = host(config())
    holder, waiter = rescd.crew(2)
    tickets = holder.hold("payments", 2)
    waiting(rescd, waiter)
    assert seen(rescd)["in_use"] == 2
    holder.leave(tickets[0])
    assert waiter.receive()["r"] == 0
    now = seen(rescd)
    assert (now["in_use"], now["waiting"], now["waited"], now["admitted"], now["refused_full"]) == (2, 0, 1, 3, 0)


def test_C3_a_queue_that_is_full_and_waits_that_are_in_vain_leave_everything_to_those_who_come_later(host):
    rescd = host(config(retry_after="3s"))
    holder, late, *waiters = rescd.crew(4)
    tickets = holder.hold("payments", 2)
    for waiter in waiters:
        waiting(rescd, waiter)
    refused = late.enter("payments")
    assert (refused["r"], refused["retry_after_ms"]) == (QUEUE_FULL, 3000)
    rescd.advance("999ms")
    assert permits(rescd)["waiting"] == 2
    rescd.advance("1ms")
    assert [w.receive()["r"] for w in waiters] == [FULL, FULL]
    for ticket in tickets:
        holder.leave(ticket)
    assert [late.enter("payments")["r"] for _ in range(2)] == [0, 0]
    now = seen(rescd)
    assert (now["in_use"], now["waiting"], now["waited"]) == (2, 0, 0)
    assert (now["refused_full"], now["refused_queue_full"], now["admitted"]) == (2, 1, 4)


def test_nobody_waits_beyond_its_deadline(host):
    rescd = host(config())
    holder, waiter = rescd.crew(2)
    holder.hold("payments", 2)
    waiting(rescd, waiter, deadline_ms=200)
    rescd.advance("200ms")
    assert waiter.receive()["r"] == DEADLINE
    assert seen(rescd)["waiting"] == 0


def test_without_max_wait_a_full_bulkhead_refuses_at_once(host):
    rescd = host(config(max_wait="0s"))
    holder, other = rescd.crew(2)
    holder.hold("payments", 2)
    assert other.enter("payments")["r"] == FULL
    assert seen(rescd)["refused_full"] == 1


def test_C5_a_raised_limit_lets_in_who_waits(host):
    rescd = host(config())
    holder, *waiters = rescd.crew(3)
    holder.hold("payments", 2)
    for waiter in waiters:
        waiting(rescd, waiter)
    rescd.load(config(limit=4))
    assert [w.receive()["r"] for w in waiters] == [0, 0]
    now = seen(rescd)
    assert (now["in_use"], now["limit"], now["waiting"], now["waited"]) == (4, 4, 0, 2)


def test_a_breaker_that_opens_meanwhile_is_asked_again_after_the_wait(host):
    made = config()
    made["resources"]["payments"]["breaker"] = {"consecutive": 1, "cooldown": "10s"}
    rescd = host(made)
    holder, waiter = rescd.crew(2)
    tickets = holder.hold("payments", 2)
    waiting(rescd, waiter)
    holder.leave(tickets[0], "fail")
    answer = waiter.receive()
    # It looked after the permit was given back, and before or after the breaker opened.
    if answer["r"] == 0:
        waiter.leave(answer)
    else:
        assert answer["answer"] == "open"
    assert waiter.enter("payments")["answer"] == "open"
    assert seen(rescd)["waiting"] == 0


# ---- deaths ----

@pytest.mark.parametrize("daemon", [True, False])
def test_C1_the_death_of_a_holder_lets_in_who_waits(host, daemon):
    rescd = host(config())
    holder, waiter = rescd.crew(2)
    holder.hold("payments", 2)
    waiting(rescd, waiter)
    if not daemon:
        rescd.kill()
    holder.kill()
    assert waiter.receive()["r"] == 0
    if not daemon:
        rescd.start()
    until(lambda: permits(rescd)["in_use"] == 1)
    assert seen(rescd)["permits_reclaimed"] == 2


def test_C1_the_death_of_a_waiter_makes_room_in_the_queue_and_takes_nothing_along(host):
    rescd = host(config(limit=1, max_waiting=1))
    holder, dies, lives = rescd.crew(3)
    ticket = holder.hold("payments", 1)[0]
    waiting(rescd, dies)
    assert lives.enter("payments")["r"] == QUEUE_FULL
    dies.kill()
    until_waiting(rescd, 0)
    waiting(rescd, lives)
    holder.leave(ticket)
    assert lives.receive()["r"] == 0
    now = seen(rescd)
    assert (now["in_use"], now["waiting"], now["permits_reclaimed"]) == (1, 0, 0)


def test_C1_a_stopped_releaser_hinders_nobody_for_longer_than_a_slice(host):
    rescd = host(config(limit=1))
    holder = rescd.worker(env={"RESC_FAILPOINT": "signal.freed=stop"})
    waiter = rescd.worker()
    ticket = holder.hold("payments", 1)[0]
    waiting(rescd, waiter)
    holder.send("leave", ticket, "ok")
    assert waiter.receive()["r"] == 0  # no clock was moved: it did not wait in vain
    holder.until_stopped()
    holder.signal(signal.SIGCONT)
    assert holder.receive()["r"] == 0


@pytest.mark.parametrize("action", ["kill", "stop"])
def test_C1_who_is_stopped_in_line_is_passed_and_so_is_who_dies_or_stops_while_passing(host, action):
    rescd = host(config(max_wait="1h", max_waiting=8))
    holder, away, last = rescd.crew(3)
    tickets = holder.hold("payments", 2)
    waiting(rescd, away).signal(signal.SIGSTOP)
    away.until_stopped()
    holder.leave(tickets[0])
    passes = rescd.worker(env={"RESC_FAILPOINT": "waiting.passing@1=" + action})
    passes.send_enter("payments")
    until(lambda: passes.process.poll() is not None if action == "kill" else passes.is_stopped(), what="the next in line loses patience")
    if action == "kill":
        passes.process.wait()
    last.send_enter("payments")
    assert last.receive()["r"] == 0 and permits(rescd)["in_use"] == 2  # no clock was moved
    for worker in (away, passes) if action == "stop" else (away,):
        holder.leave(tickets.pop())
        tickets.append(worker)
        worker.signal(signal.SIGCONT)
        answer = worker.receive()
        assert answer["r"] == 0
        worker.leave(answer)
        tickets = [holder.enter("payments")]
    assert seen(rescd)["waiting"] == 0


def test_C1_killed_anywhere_holders_and_waiters_leave_the_others_working(host):
    rescd = host(config(max_waiting=16))
    dice = random.Random(3)
    crew = rescd.crew(6)
    for number, worker in enumerate(crew):
        worker.busy("payments", seed=number)
    for _ in range(25):
        victim = dice.randrange(len(crew))
        time.sleep(dice.random() * 0.01)
        crew[victim].kill()
        crew[victim] = rescd.worker()
        before = crew[victim].counters("payments")["admitted"]
        until(lambda w=crew[victim], b=before: w.counters("payments")["admitted"] > b, what="calls that go on")
        crew[victim].busy("payments", seed=victim)
    for worker in crew:
        worker.kill()
    until(lambda: permits(rescd)["in_use"] == 0 and permits(rescd)["waiting"] == 0)
    last = rescd.worker()
    assert len(last.hold("payments", 2)) == 2


# ---- priorities ----

def test_low_priority_waits_while_others_come_in_and_has_its_share_of_the_queue(host):
    rescd = host(config(limit=4, max_waiting=4, low=0.5))
    holder, low, other_low, normal, third_low = rescd.crew(5)
    held = holder.hold("payments", 2)
    waiting(rescd, low, priority="low")
    waiting(rescd, other_low, priority="low")
    assert third_low.enter("payments", priority="low")["r"] == QUEUE_FULL
    others = normal.hold("payments", 2)  # there is room for them
    waiting(rescd, holder)  # full for everybody, and the queue is not
    normal.leave(others[0])
    answer = holder.receive()
    assert answer["r"] == 0  # low may not: four are inside
    assert permits(rescd)["waiting"] == 2
    for worker, ticket in ((holder, held[0]), (holder, held[1])):
        worker.leave(ticket)
    assert permits(rescd)["waiting"] == 2  # two are still inside
    normal.leave(others[1])
    until_waiting(rescd, 1)
    holder.leave(answer)
    assert [w.receive()["r"] for w in (low, other_low)] == [0, 0]
    now = seen(rescd)
    assert (now["in_use"], now["waiting"], now["waited"], now["refused_queue_full"]) == (2, 0, 3, 1)


def test_a_share_that_is_used_up_is_told_when_the_wait_is_over(host):
    rescd = host(config(limit=4, low=0.5))
    holder, low = rescd.crew(2)
    holder.hold("payments", 2)
    waiting(rescd, low, priority="low")
    rescd.advance("1s")
    assert low.receive()["r"] == PRIORITY
    assert seen(rescd)["refused_priority"] == 1


# ---- a share of the live workers ----

def admitted(rescd):
    """How many calls are really let in by a worker that is there already."""
    worker = rescd.workers[0]
    tickets = []
    while (answer := worker.enter("payments"))["r"] == 0:
        tickets.append(answer)
    for ticket in tickets:
        worker.leave(ticket)
    return len(tickets)


def test_C5_a_share_follows_the_workers_as_they_come_go_and_die(host):
    rescd = host(config(limit=0.5, max_wait="0s"))
    for count in range(1, 8):
        rescd.worker().status()
        until_limit(rescd, (count + 1) // 2)
        assert admitted(rescd) == (count + 1) // 2
    rescd.workers.pop().end()
    until_limit(rescd, 3)
    for _ in range(3):
        rescd.workers.pop().kill()
    until_limit(rescd, 2)
    assert admitted(rescd) == 2
    assert seen(rescd)["limit"] == 2


def test_C5_a_share_follows_the_workers_without_rescd(host):
    rescd = host(config(limit="100%", max_wait="0s"))
    rescd.worker().status()
    until_limit(rescd, 1)
    rescd.kill()
    crew = rescd.crew(3)
    for worker in crew:
        worker.status()
    assert admitted(rescd) == 4
    crew[0].end()
    assert admitted(rescd) == 3
    crew[1].kill()
    # Found by a call that meets a full bulkhead.
    until(lambda: admitted(rescd) == 2)
    rescd.start()
    assert seen(rescd)["limit"] == 2


def test_C5_a_share_takes_no_permit_from_its_holder(host):
    rescd = host(config(limit="100%", max_wait="0s"))
    holder, *others = rescd.crew(6)
    for other in others:
        other.status()
    until_limit(rescd, 6)
    tickets = holder.hold("payments", 6)
    for other in others[1:]:
        other.kill()
    until_limit(rescd, 2)
    assert seen(rescd)["in_use"] == 6
    for ticket in tickets[:5]:
        assert others[0].enter("payments")["r"] == FULL
        assert holder.leave(ticket)["r"] == 0
    assert others[0].enter("payments")["r"] == 0
    assert seen(rescd)["in_use"] == 2


def test_C5_a_share_may_become_a_number_and_again_a_share(host):
    rescd = host(config(limit="100%", max_wait="0s"))
    for worker in rescd.crew(3):
        worker.status()
    until_limit(rescd, 3)
    for limit, expected in ((7, 7), ("200%", 6), (0.5, 2)):
        rescd.load(config(limit=limit, max_wait="0s"))
        assert seen(rescd)["limit"] == expected
        assert admitted(rescd) == expected


def test_C5_a_worker_that_comes_lets_in_who_waits(host):
    rescd = host(config(limit="100%"))
    holder = rescd.worker()
    waiter = rescd.worker()
    waiter.status()
    until_limit(rescd, 2)
    holder.hold("payments", 2)
    waiting(rescd, waiter)
    rescd.worker().status()
    assert waiter.receive()["r"] == 0


# ---- a new segment ----

def test_who_waits_goes_on_waiting_in_a_new_segment(host):
    rescd = host(config(workers=16))
    holder, *waiters = rescd.crew(3)
    tickets = holder.hold("payments", 2)
    for waiter in waiters:
        waiting(rescd, waiter)
    assert rescd.load(config(workers=512))["replaced"]
    until_waiting(rescd, 2)  # there, and at once
    holder.leave(tickets[0])
    until_waiting(rescd, 1)
    holder.leave(tickets[1])
    assert [w.receive()["r"] for w in waiters] == [0, 0]
    now = seen(rescd)
    assert (now["in_use"], now["waiting"], now["waited"]) == (2, 0, 2)


def test_a_share_does_not_collapse_while_workers_are_on_their_way_to_a_new_segment(host):
    rescd = host(config(workers=16, limit="100%", max_wait="0s"))
    crew = rescd.crew(5)
    for worker in crew:
        worker.status()
    until_limit(rescd, 5)
    assert rescd.load(config(workers=512, limit="100%", max_wait="0s"))["replaced"]
    assert crew[0].call("payments")["r"] == 0  # one has come
    assert seen(rescd)["limit"] == 5
    assert admitted(rescd) == 5
    for worker in crew[1:4]:
        assert worker.call("payments")["r"] == 0
    rescd.advance("5s")
    until_limit(rescd, 4)  # the fifth does not call
    assert crew[4].call("payments")["r"] == 0
    until_limit(rescd, 5)


# ---- in real time ----

@pytest.mark.smoke
def test_a_wait_ends_with_a_permit_or_after_max_wait(host):
    rescd = host(config(limit=1, max_wait="400ms"))
    holder, waiter = rescd.crew(2)
    ticket = holder.hold("payments", 1)[0]
    began = time.monotonic()
    waiter.send_enter("payments")
    if VARIANT == "release":
        assert waiter.receive()["r"] == FULL
        assert time.monotonic() - began >= 0.39
    else:
        until_waiting(rescd, 1)
        until_asleep(waiter)
        rescd.advance("400ms")
        assert waiter.receive()["r"] == FULL
    rescd.load(config(limit=1, max_wait="1h"))
    waiting(rescd, waiter)
    holder.leave(ticket)
    assert waiter.receive()["r"] == 0
    assert seen(rescd)["waited"] == 1
