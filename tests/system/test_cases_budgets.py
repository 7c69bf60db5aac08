# SPDX-License-Identifier: MIT
"""Group D of the field cases: retry budgets and rate limits. The library, the snapshot and the metrics say the same."""
import pytest
from harness import agreed, moved, until

MOST = 4294967295


def budget(**keys):
    return {"resources": {"payments": {"retry": {"attempts": 100, "budget": keys}}}}


def rate(**keys):
    return {"resources": {"payments": {"rate": keys}}}


def tokens(rescd, worker, count, kind="retry"):
    """The three views agree that there are so many."""
    seen = agreed(rescd, worker, "payments")
    assert seen[kind]["tokens"] == pytest.approx(count, abs=2e-6), seen[kind]
    return seen


# ---- D3: clamped at both ends ----

def test_D3_a_day_of_success_banks_the_capacity_and_a_thousand_failures_leave_nothing(host):
    rescd = host(budget(capacity=10, ratio=0.1))
    first, second = rescd.crew(2)
    told = first.loop("payments", 1000000)
    assert told["ok"] == 1000000
    tokens(rescd, second, 10)
    assert second.granted("payments", 1000) == 10
    tokens(rescd, first, 0)
    first.call("payments")
    seen = tokens(rescd, second, 0.1)
    assert (seen["counters"]["retries"], seen["counters"]["retry_budget"]) == (10, 990)
    second.calls("payments", "ok*8")
    assert first.granted("payments", 1) == 0
    second.call("payments")
    assert first.granted("payments", 2) == 1
    tokens(rescd, second, 0)


@pytest.mark.parametrize("capacity", [10, 100, 1000])
def test_D3_grpcs_rule_stops_at_half_and_counts_failures(host, capacity):
    """From 10: four retries (9, 8, 7, 6 are left), and none at 5. L12, E17."""
    rescd = host(budget(capacity=capacity, ratio=0.1, threshold=0.5))
    first, second = rescd.crew(2)
    assert first.granted("payments", capacity // 2) == capacity // 2 - 1
    tokens(rescd, second, capacity / 2)
    second.call("payments")  # above the half again, but this failure is charged first
    assert first.granted("payments", 1) == 0
    tokens(rescd, second, capacity / 2 - 0.9)
    assert first.granted("payments", 2 * capacity) == 0
    tokens(rescd, second, 0)
    # 10 successes are a token: more than the half, and one for the failure.
    second.calls("payments", "ok*%d" % (capacity * 5 + 10))
    tokens(rescd, first, capacity / 2 + 1)
    assert first.granted("payments", 1) == 0
    second.calls("payments", "ok*11")
    assert first.granted("payments", 2) == 1


# ---- D4: extremes ----

def test_D4_ratio_0_has_only_the_floor(host):
    rescd = host(budget(capacity=10, ratio=0, per_second=0.5))
    worker = rescd.worker()
    assert worker.granted("payments", 20) == 10
    worker.calls("payments", "ok*100000")
    tokens(rescd, worker, 0)
    assert worker.granted("payments", 1) == 0
    worker.advance(1999)
    assert worker.granted("payments", 1) == 0
    worker.advance(1)
    assert worker.granted("payments", 2) == 1
    worker.advance(3600000)
    tokens(rescd, worker, 10)


def test_D4_a_thousandth_is_one_retry_in_a_thousand_calls(host):
    rescd = host(budget(capacity=10, ratio=0.001))
    first, second = rescd.crew(2)
    assert first.granted("payments", 11) == 10
    for _ in range(3):
        assert (first.calls("payments", "ok*500"), second.calls("payments", "ok*499")) == ([["ok", 500]], [["ok", 499]])
        assert second.granted("payments", 1) == 0
        second.call("payments")
        assert first.granted("payments", 2) == 1
    tokens(rescd, first, 0)


@pytest.mark.parametrize("ratio", [1, 10, 1000])
@pytest.mark.parametrize("capacity", [1, 1000, MOST])
def test_D4_large_ratios_and_capacities_do_not_wrap(host, ratio, capacity):
    rescd = host(budget(capacity=capacity, ratio=ratio))
    worker = rescd.worker()
    tokens(rescd, worker, capacity)
    taken = worker.granted("payments", min(capacity, 3000) + (capacity < 3000))
    assert taken == min(capacity, 3000)
    tokens(rescd, worker, capacity - taken)
    worker.calls("payments", "ok*2")
    tokens(rescd, worker, min(capacity, capacity - taken + 2 * ratio))
    worker.calls("payments", "ok*3000")
    tokens(rescd, worker, capacity)


# ---- D5: the lone failing call ----

@pytest.mark.parametrize("before_leave", [True, False])
def test_D5_the_answer_is_the_same_before_and_after_the_leave(host, before_leave):
    rescd = host(budget(capacity=1, ratio=1))
    worker, other = rescd.crew(2)
    for _ in range(3):
        ticket = worker.enter("payments")
        if before_leave:
            assert worker.retry("payments")["answer"] == "ok"
            worker.leave(ticket, "fail")
        else:
            worker.leave(ticket, "fail")
            assert worker.retry("payments")["answer"] == "ok"
        assert other.retry("payments")["answer"] == "budget"  # the budget is the host's
        tokens(rescd, other, 0)
        other.call("payments")
        tokens(rescd, worker, 1)


@pytest.mark.parametrize("before_leave", [True, False])
@pytest.mark.parametrize("keys", [{"ratio": 1, "capacity": 6}, {"in_flight_share": 1, "in_flight_floor": 0}])
def test_D5_six_that_fail_together_are_all_retried(host, keys, before_leave):
    rescd = host(budget(**keys))
    crew = rescd.crew(6)
    tickets = [worker.enter("payments") for worker in crew]
    if not before_leave:
        assert [w.leave(t, "fail")["answer"] for w, t in zip(crew, tickets)] == ["ok"] * 6
    assert [w.retry("payments")["answer"] for w in crew] == ["ok"] * 6
    if before_leave:
        assert [w.leave(t, "fail")["answer"] for w, t in zip(crew, tickets)] == ["ok"] * 6
    again = [worker.enter("payments", retry=True) for worker in crew]
    assert [t["answer"] for t in again] == ["ok"] * 6
    seen = agreed(rescd, crew[0], "payments")
    assert (seen["counters"]["retries"], seen["retry"]["in_flight"], seen["permits"]["in_use"]) == (6, 6, 6)


def test_D5_with_a_cap_the_lone_call_is_answered_the_same_too(host):
    rescd = host(budget(in_flight_share=1, in_flight_floor=0))
    worker, other = rescd.crew(2)
    ticket = worker.enter("payments")
    assert worker.retry("payments")["answer"] == "ok"
    worker.leave(ticket, "fail")
    assert worker.retry("payments")["answer"] == "ok"
    assert other.enter("payments", retry=True)["answer"] == "ok"
    seen = agreed(rescd, worker, "payments")
    assert seen["retry"]["in_flight"] == 1 and seen["counters"]["retries"] == 2


# ---- D8: live changes ----

@pytest.mark.parametrize("capacity,used,to,expected", [
    (104857600, 14857000, 1048576, 900006), (10, 2, 5, 4), (5, 1, 10, 8), (10, 10, 20, 0), (10, 0, 3, 3), (1, 1, MOST, 0), (MOST, 5, 1, 1)])
def test_D8_another_capacity_keeps_the_filled_share(host, capacity, used, to, expected):
    """The share, not the number: 8 of 10 become 4 of 5."""
    cost = 1000 if used > 1000 else 1
    rescd = host(budget(capacity=capacity, ratio=0, cost=cost))
    worker, other = rescd.crew(2)
    assert worker.granted("payments", used // cost) == used // cost
    tokens(rescd, other, capacity - used)
    rescd.load(budget(capacity=to, ratio=0))
    seen = tokens(rescd, other, min(expected, to) if capacity != MOST else (MOST - 5) / MOST)
    assert seen["retry"]["capacity"] == to
    for _ in range(3):  # and there it stays
        assert worker.granted("payments", 1) == (1 if expected >= 1 and capacity != MOST else 0)
        expected = max(0, expected - 1)
        if capacity != MOST:
            tokens(rescd, other, expected)
    rescd.load(budget(capacity=to, ratio=0))
    if capacity != MOST:
        tokens(rescd, other, expected)


def test_D8_another_floor_counts_from_that_moment(host):
    rescd = host(budget(capacity=100, ratio=0, per_second=1))
    worker = rescd.worker()
    assert worker.granted("payments", 101) == 100
    worker.advance(10000)
    tokens(rescd, worker, 10)
    rescd.load(budget(capacity=100, ratio=0, per_second=0.1))
    tokens(rescd, worker, 10)
    worker.advance(10000)
    tokens(rescd, worker, 11)
    rescd.load(budget(capacity=100, ratio=0, per_second=0))
    worker.advance(10000000)
    tokens(rescd, worker, 11)
    rescd.load(budget(capacity=100, ratio=0, per_second=2))
    tokens(rescd, worker, 11)
    worker.advance(2000)
    tokens(rescd, worker, 15)


@pytest.mark.parametrize("before,cost,after,expected", [
    ((104857600, 104857600), 14857600, (1048576, 1048576), 900000), ((1, 10), 2, (1, 5), 4), ((1, 5), 1, (1, 10), 8), ((1, 10), 10, (100, 20), 0),
    ((5, 10), 5, (5, 10), 5), ((1000000, 1), 1, (0.001, 4294967295), 0)])
def test_D8_another_rate_or_burst_keeps_the_filled_share_and_counts_from_that_moment(host, before, cost, after, expected):
    rescd = host(rate(per_second=before[0], burst=before[1]))
    worker, other = rescd.crew(2)
    assert worker.enter("payments", cost=cost)["r"] == 0
    near = 1 if max(before[0], after[0]) > 1000000 else max(1e-3, after[1] * 1e-6)  # a full bucket has room for less than one token more
    assert agreed(rescd, other, "payments")["rate"]["tokens"] == pytest.approx(before[1] - cost, abs=near)
    rescd.load(rate(per_second=after[0], burst=after[1]))
    assert rescd.show("payments")["rate"]["tokens"] == pytest.approx(expected, abs=near)
    first = worker.enter("payments", cost=max(1, int(expected) + 2))
    assert first["answer"] == ("cost" if expected + 2 > after[1] else "rate")
    if first["answer"] == "rate":
        missing = max(1, int(expected) + 2) - expected
        assert first["retry_after_ms"] == pytest.approx(missing / after[0] * 1000, rel=1e-3, abs=2)
    worker.advance(1000)
    assert agreed(rescd, other, "payments")["rate"]["tokens"] == pytest.approx(min(after[1], expected + after[0]), rel=1e-6, abs=near)


# ---- D10: conservation ----

def test_D10_workers_that_die_lose_no_tokens_and_make_none(host):
    """Grants are at most what was there and what came in; drained to the end they are that, to within one. The unit test has the large numbers."""
    rescd = host(budget(capacity=1, ratio=0.25))
    crew = rescd.crew(8)
    assert crew[0].granted("payments", 2) == 1
    rescd.load(budget(capacity=MOST, ratio=0.25))  # nothing is in it, and it never gets full
    start = tokens(rescd, crew[0], 0)
    for i, worker in enumerate(crew):
        worker.busy("payments", 0.1, i + 1)
    for worker in crew[4:]:
        worker.kill()
    for worker in crew[:2]:
        worker.idle()
        worker.batch(["retry payments fail 0"] * 1500)
    for worker in crew[2:4]:
        worker.idle()
    until(lambda: crew[0].state("payments")["in_flight"] == 0, what="nothing of the dead")
    now = agreed(rescd, crew[0], "payments")
    done = moved(start, now)
    # Each of the four may have died between counting its success and paying it in.
    paid = 0.25 * done["ended_ok"] - done["retries"]
    assert paid - 4 * 0.25 <= now["retry"]["tokens"] <= paid
    rescd.load(budget(capacity=MOST, ratio=0.25, cost=1000))
    thousands, rest = divmod(now["retry"]["tokens"], 1000)
    assert crew[1].granted("payments", int(thousands) + 1) == thousands
    rescd.load(budget(capacity=MOST, ratio=0.25))
    assert crew[2].granted("payments", int(rest) + 1) == int(rest)
    tokens(rescd, crew[3], rest - int(rest))
