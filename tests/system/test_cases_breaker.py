# SPDX-License-Identifier: MIT
"""Groups A and B of the field cases: probes, half-open, trip rules and windows. The library, the snapshot and the metrics say the same."""
import signal

import pytest
from harness import agreed, metric, moved, steady, until

NEUTRAL = ["ignored", "cancelled"]


def one(breaker, **blocks):
    return {"resources": {"payments": {"breaker": breaker, **blocks}}}


def stands(rescd, worker, state, name="payments", **expected):
    """The three views agree on this state, and on these values of the snapshot: why, generation, probes (out), ... or a counter."""
    seen = agreed(rescd, worker, name)
    assert seen["state"] == state, seen
    for key, value in expected.items():
        places = {"probes_out": seen["probes"]["out"], "in_use": seen["permits"]["in_use"], "streak": seen["window"]["consecutive_failures"],
                  "calls": seen["window"]["calls"], "failures": seen["window"]["failures"], "due_left": seen["due_left_ms"]}
        found = places[key] if key in places else seen["counters"].get(key, seen.get(key))
        assert found == value, (key, found, seen)
    return seen


def open_and_due(rescd, worker, failures, cooldown_ms, name="payments"):
    """Opens it by failures in a row; the cooldown passes."""
    worker.fail(name, failures)
    assert worker.state(name)["state"] == "open"
    worker.advance(cooldown_ms)


# ---- A: half-open and probes ----

A1 = one({"consecutive": 3, "cooldown": "200ms", "probes": 1, "probe_timeout": "500ms"})


@pytest.mark.parametrize("daemon", [True, False])
def test_A1_the_probe_of_a_dead_owner_is_given_to_exactly_one_other(host, daemon):
    rescd = host(A1)
    victim, other, third = rescd.crew(3)
    open_and_due(rescd, victim, 3, 200)
    assert victim.enter("payments")["probe"]
    assert other.enter("payments")["answer"] == "half_open"
    if daemon:
        stands(rescd, other, "half_open", probes_out=1, probes_reclaimed=0)
    else:
        rescd.kill()
    victim.kill()
    # Time stands still: nothing but the death gives it back.
    again = other.until_admitted("payments", what="the probe of the dead")
    assert again["probe"]
    assert third.enter("payments")["answer"] == "half_open"
    if not daemon:
        rescd.start()
    assert metric(rescd.scrape(), "resc_probes_out", resource="payments") == 1
    stands(rescd, other, "half_open", probes_out=1, probes_reclaimed=1, opened=1)
    assert other.leave(again)["answer"] == "ok"
    stands(rescd, third, "closed", probes_out=0, probes=2, closed=1, why="probes_ok")


def test_A1_the_probe_of_a_stopped_owner_is_given_away_at_its_timeout_and_not_before(host):
    rescd = host(A1)
    frozen, other, third = rescd.crew(3)
    open_and_due(rescd, frozen, 3, 200)
    assert frozen.enter("payments")["probe"]
    frozen.signal(signal.SIGSTOP)
    frozen.until_stopped()
    for _ in range(9):  # 250 to 650 ms after the opening
        other.advance(50)
        assert other.enter("payments")["answer"] == "half_open"
    other.advance(49)
    assert other.enter("payments")["answer"] == "half_open"
    stands(rescd, other, "half_open", probes_out=1, probes_reclaimed=0)
    other.advance(1)
    again = other.enter("payments")
    assert again["probe"] and third.enter("payments")["answer"] == "half_open"
    stands(rescd, other, "half_open", probes_out=1, probes_reclaimed=1)
    other.leave(again)
    stands(rescd, other, "closed", probes_out=0)
    frozen.signal(signal.SIGCONT)


def test_A1_of_several_probes_only_those_of_the_dead_are_given_away(host):
    rescd = host(one({"consecutive": 1, "cooldown": "1s", "probes": 3, "probe_timeout": "1h"}))
    victim, living, other = rescd.crew(3)
    open_and_due(rescd, victim, 1, 1000)
    kept = living.enter("payments")
    assert kept["probe"] and victim.enter("payments")["probe"] and victim.enter("payments")["probe"]
    assert other.enter("payments")["answer"] == "half_open"
    victim.kill()
    until(lambda: other.state("payments")["probes_out"] == 1, what="two leases back")
    taken = [other.enter("payments") for _ in range(3)]
    assert [t["answer"] for t in taken] == ["ok", "ok", "half_open"]
    stands(rescd, other, "half_open", probes_out=3, probes_reclaimed=2)
    for worker, ticket in ((living, kept), (other, taken[0]), (other, taken[1])):
        assert worker.leave(ticket)["answer"] == "ok"
    stands(rescd, other, "closed", probes_out=0, stale=0)


@pytest.mark.parametrize("late", ["ok", "fail", "timeout", "ignored", "cancelled"])
@pytest.mark.parametrize("daemon", [True, False])
def test_A2_the_late_report_of_a_probe_that_was_given_away_touches_nothing(host, late, daemon):
    rescd = host(A1)
    first, second = rescd.crew(2)
    if not daemon:
        rescd.kill()
    open_and_due(rescd, first, 3, 200)
    lost = first.enter("payments")
    assert lost["probe"]
    first.signal(signal.SIGSTOP)
    first.until_stopped()
    second.advance(500)
    probe = second.enter("payments")
    assert probe["probe"]
    before = rescd.show("payments")
    first.signal(signal.SIGCONT)
    assert first.leave(lost, late)["answer"] == "stale"
    assert first.leave(lost, late)["answer"] == "error"  # it is over, whatever it was
    after = rescd.show("payments")
    assert moved(before, after) == {"stale": 1, "ended_" + late: 1}
    assert all(after[key] == before[key] for key in ("state", "since_ms", "generation", "probes", "reopened", "window"))
    if not daemon:
        rescd.start()
    stands(rescd, first, "half_open", probes_out=1, probes_reclaimed=1, stale=1)
    assert second.leave(probe)["answer"] == "ok"
    stands(rescd, first, "closed", probes_out=0, stale=1)


@pytest.mark.parametrize("late", ["ok", "fail"])
def test_A2_a_call_from_before_the_opening_touches_neither_the_trial_nor_what_comes_after(host, late):
    rescd = host(A1)
    slow, other = rescd.crew(2)
    old = [slow.enter("payments") for _ in range(3)]
    open_and_due(rescd, other, 3, 200)
    assert slow.leave(old[0], late)["answer"] == "stale"
    stands(rescd, other, "open", probe_due=True, stale=1)
    probe = other.enter("payments")
    assert slow.leave(old[1], late)["answer"] == "stale"
    stands(rescd, other, "half_open", probes_out=1, stale=2)
    other.leave(probe)
    assert slow.leave(old[2], late)["answer"] == "stale"
    stands(rescd, other, "closed", calls=0, streak=0, stale=3, in_use=0)


@pytest.mark.parametrize("outcomes", [
    ["ignored", "ignored", "ok", "ok"],
    ["ok", "ignored", "ok"],  # only the last one of the trial
    ["cancelled", "cancelled", "ok", "ok"],
    ["ok", "cancelled", "ignored", "cancelled", "ok"],
    (["ignored"] * 9 + ["cancelled"]) * 30 + ["ok", "ok"],
], ids=["A4", "variant 1", "variant 3", "mixed", "300 neutral"])
def test_A4_neutral_outcomes_give_the_probe_back_at_once_and_count_neither_way(host, outcomes):
    rescd = host(one({"consecutive": 1, "cooldown": "1s", "probes": 2}))
    worker = rescd.worker()
    open_and_due(rescd, worker, 1, 1000)
    for outcome in outcomes:
        ticket = worker.enter("payments")
        assert ticket["probe"], outcome
        assert worker.state("payments")["probes_out"] == 1
        assert worker.leave(ticket, outcome)["answer"] == "ok"
        assert worker.state("payments")["probes_out"] == 0
        if outcome in NEUTRAL and len(outcomes) < 10:
            stands(rescd, worker, "half_open", probes_out=0)
    stands(rescd, worker, "closed", why="probes_ok", probes=len(outcomes), opened=1, half_opened=1, closed=1)


def test_A4_variant_2_four_of_five_ignored_closes_after_25_probes(host):
    rescd = host(one({"consecutive": 1, "cooldown": "1s", "probes": 5}))
    worker = rescd.worker()
    open_and_due(rescd, worker, 1, 1000)
    for i in range(25):
        stands(rescd, worker, "half_open" if i else "open", probes_out=0, probes=i)
        ticket = worker.enter("payments")
        assert ticket["probe"], i
        worker.leave(ticket, "ok" if i % 5 == 4 else "ignored")
    stands(rescd, worker, "closed", probes=25, opened=1)


@pytest.mark.parametrize("outcome", NEUTRAL)
def test_A4_neutral_outcomes_of_several_probes_that_are_out_together(host, outcome):
    rescd = host(one({"consecutive": 1, "cooldown": "1s", "probes": 5}))
    worker, other = rescd.crew(2)
    open_and_due(rescd, worker, 1, 1000)
    for _ in range(3):
        tickets = worker.hold("payments", 5)
        assert other.enter("payments")["answer"] == "half_open"
        for ticket in tickets:
            worker.leave(ticket, outcome)
        stands(rescd, other, "half_open", probes_out=0, refused_open=0)
    assert worker.calls("payments", "ok*5") == [["ok", 5]]
    stands(rescd, other, "closed")


@pytest.mark.parametrize("half_open", [True, False])
def test_A5_a_call_that_a_later_guard_refuses_leaves_the_probe_to_the_next_one(host, half_open):
    """test_pairs.py does it with every pair of guards."""
    def config(limit):
        return one({"consecutive": 1, "cooldown": "1s", "probes": 2}, bulkhead={"limit": limit}, rate={"per_second": 1, "burst": 5},
                   retry={"budget": {"capacity": 10, "ratio": 0.1}})

    rescd = host(config(2))
    holder, other = rescd.crew(2)
    held = holder.enter("payments")
    open_and_due(rescd, other, 1, 1000)
    if half_open:
        held = holder.leave(held) and holder.enter("payments")
        assert held["probe"]
    rescd.load(config(1))
    for _ in range(3):
        before = agreed(rescd, other, "payments")
        assert other.enter("payments")["answer"] == "full"
        after = agreed(rescd, other, "payments")
        assert moved(before, after) == {"enters": 1, "refused_full": 1}
        assert steady({**after, "counters": 0}) == steady({**before, "counters": 0})
    assert holder.leave(held)["answer"] == ("ok" if half_open else "stale")
    assert other.enter("payments")["probe"]
    stands(rescd, holder, "half_open", probes_out=1, in_use=1)


@pytest.mark.parametrize("probes", [1, 3])
def test_A6_exactly_so_many_probes_of_32_processes(host, probes):
    """test_one_view.py does it a thousand times with a barrier."""
    rescd = host(one({"consecutive": 1, "cooldown": "1s", "probes": probes, "probe_timeout": "1h"}))
    crew = rescd.crew(32)
    crew[0].call("payments", "fail")
    for _ in range(2):
        crew[0].advance(1001)
        for worker in crew:
            worker.send("enter", "payments")
        tickets = [worker.receive() for worker in crew]
        admitted = [(w, t) for w, t in zip(crew, tickets) if t["r"] == 0]
        assert len(admitted) == probes and all(t["probe"] for _, t in admitted)
        assert {t["answer"] for t in tickets if t["r"] != 0} == {"half_open"}
        stands(rescd, crew[5], "half_open", probes_out=probes)
        for worker, ticket in admitted:
            worker.leave(ticket)
        stands(rescd, crew[5], "closed", probes_out=0)
        crew[0].call("payments", "fail")
    seen = stands(rescd, crew[9], "open", opened=3, half_opened=2, closed=2, probes=2 * probes)
    assert seen["counters"]["refused_half_open"] == 2 * (32 - probes)


@pytest.mark.parametrize("jitter,least,most", [(0.15, 60000, 69000), (0, 60000, 60000), (1, 60000, 120000)])
def test_A7_due_times_are_spread_and_drawn_once_an_opening(host, jitter, least, most):
    """Lengthened only: 60 to 69 s. It is also in the manual."""
    names = ["p%d" % i for i in range(100)]
    rescd = host({"defaults": {"breaker": {"consecutive": 1, "cooldown": "60s", "jitter": jitter}}, "resources": {n: {} for n in names}})
    one_, two = rescd.crew(2)
    for opening in range(2):  # the second opening is by a probe that fails, and by the other worker
        opener = (one_, two)[opening]
        for name in names:
            opener.call(name, "fail")
        due = [one_.state(n)["due_ms"] for n in names]
        assert due == [two.state(n)["due_ms"] for n in names] == [r["due_left_ms"] for r in rescd.snapshot()["resources"]]
        assert all(least <= d <= most for d in due), due
        assert len(set(due)) == 1 if jitter == 0 else len(set(due)) > 80
        # Drawn once: time passes, other calls fail to enter, and each is due when it was said.
        one_.advance(least - 1)
        assert {two.enter(n)["answer"] for n in names} == {"open"}
        assert [one_.state(n)["due_ms"] for n in names] == [d - least + 1 for d in due]
        one_.advance(most - least + 1)
        assert all(two.state(n)["probe_due"] for n in names)
    agreed(rescd, two, "p7")


@pytest.mark.parametrize("late", [True, False])
def test_A10_state_and_times_belong_together_while_workers_fail_and_die(host, late):
    """60 % fail, a cooldown of 9 ms, a worker dies now and then: then it is healthy, and closes within two cooldowns and a probe timeout."""
    rescd = host(one({"failure_rate": 0.5, "min_calls": 5, "window": "1s", "cooldown": "9ms", "probes": 2, "probe_timeout": "50ms"}))
    crew = rescd.crew(4)
    watcher = rescd.worker()
    for i, worker in enumerate(crew):
        worker.busy("payments", 0.6, i + 1)
    for turn in range(40):
        watcher.advance(3)
        seen = rescd.show("payments")
        assert (seen["state"] == "open") == (seen["opened_since_ms"] is not None) == (seen["due_ms"] is not None), seen
        assert seen["probes"]["out"] <= 2 and (seen["state"] == "half_open" or seen["probes"]["out"] == 0), seen
        state = watcher.state("payments")
        assert (state["state"] == "open") == (state["due_ms"] >= 0) and (state["state"] == "half_open" or state["probes_out"] == 0), state
        if turn % 10 == 5:
            crew[turn // 10].kill()
    # What one of them left undone is done by whoever comes next: a verdict, or an opening by a window in which too many have failed.
    watcher.calls("payments", "ok*5")
    if late:
        watcher.advance(100000)
    watcher.advance(2 * 9 + 50)
    until(lambda: watcher.call("payments")["r"] >= 0 and watcher.calls("payments", "ok*4") and watcher.state("payments")["state"] == "closed",
          what="closed without a further step of time")
    until(lambda: watcher.state("payments")["in_flight"] == 0, what="nothing in use")
    stands(rescd, watcher, "closed", probes_out=0, in_use=0)


@pytest.mark.parametrize("took_ns,rule,state", [
    (5000000000, True, "open"), (5000000000, False, "closed"),
    (999000000, True, "closed"), (1000000000, True, "closed"), (1000000001, True, "open"), (1001000000, True, "open"),
    (1001000000, False, "closed"),
])
def test_A11_a_probe_that_succeeds_too_slowly_opens_it_again_and_says_so(host, took_ns, rule, state):
    """Slow is strictly longer than slow_call."""
    rescd = host(one({"consecutive": 1, "cooldown": "1s", "probes": 2, **({"slow_call": "1s", "slow_rate": 0.5} if rule else {})}))
    worker = rescd.worker()
    open_and_due(rescd, worker, 1, 1000)
    for _ in range(2):
        ticket = worker.enter("payments")
        assert ticket["probe"]
        worker.advance(ns=took_ns)
        assert worker.leave(ticket)["answer"] == "ok"
        if worker.state("payments")["state"] != "half_open":
            break
    slow = state == "open"
    stands(rescd, worker, state, why="probe_slow" if slow else "probes_ok", opened=2 if slow else 1, reopened=1 if slow else 0)
    assert rescd.events("breaker")[-1]["why"] == ("probe_slow" if slow else "probes_ok")


# ---- B: trip rules and windows ----

@pytest.mark.parametrize("limit", [2, 3, 7])
def test_B1_failures_in_a_row_are_in_a_row(host, limit):
    rescd = host(one({"consecutive": limit}))
    first, second = rescd.crew(2)
    for n in range(1, limit):
        first.call("payments", ["fail", "timeout"][n % 2])
        stands(rescd, second, "closed", streak=n)
    assert second.calls("payments", "ok*10000") == [["ok", 10000]]  # another worker's successes end the row
    stands(rescd, first, "closed", streak=0)
    for n in range(1, limit + 1):
        stands(rescd, first, "closed", streak=n - 1)
        (first, second)[n % 2].call("payments", "fail")
    stands(rescd, first, "open", why="consecutive", opened=1)


@pytest.mark.parametrize("between", ["ignored", "cancelled", "ignored*10000"])
def test_B1_neutral_outcomes_neither_count_nor_end_the_row(host, between):
    rescd = host(one({"consecutive": 2}))
    worker = rescd.worker()
    worker.calls("payments", "fail", between)
    stands(rescd, worker, "closed", streak=1, calls=1)
    worker.call("payments", "fail")
    stands(rescd, worker, "open", why="consecutive")


def failing(worker, times_ms, count=1):
    """Moves to each time (since now) and fails there."""
    passed = 0
    for at in times_ms:
        worker.advance(at - passed)
        passed = at
        worker.calls("payments", "fail*%d" % count)


def test_B2_no_call_from_outside_the_window_counts(host):
    rescd = host(one({"failure_rate": 1, "window": "5s", "min_calls": 3}))
    worker = rescd.worker()
    worker.advance(5000)
    failing(worker, [0, 5000, 6000])
    stands(rescd, worker, "closed", calls=2, failures=2)
    failing(worker, [500])
    stands(rescd, worker, "open", why="failure_rate")


@pytest.mark.parametrize("window,bucket_ms", [("100ms", 10), ("1s", 100), ("5s", 500), ("300s", 30000), ("1234ms", 124)])
@pytest.mark.parametrize("age_of_bucket", [0, 1])
def test_B2_the_window_is_nine_tenths_to_all_of_its_length(host, window, bucket_ms, age_of_bucket):
    """A bucket is a tenth, rounded up to a millisecond. What happened at the beginning (0) or at the end (1) of one counts as long as its bucket does."""
    rescd = host(one({"failure_rate": 1, "window": window, "min_calls": 3, "cooldown": "1s"}))
    worker = rescd.worker()
    now = worker.advance(0)
    start = (now // bucket_ms + 20) * bucket_ms + age_of_bucket * (bucket_ms - 1)
    last_inside = (start // bucket_ms + 10) * bucket_ms - 1
    worker.advance(start - now)
    failing(worker, [0])
    worker.advance(last_inside - start)
    stands(rescd, worker, "closed", calls=1)
    worker.advance(1)
    stands(rescd, worker, "closed", calls=0)
    worker.calls("payments", "fail*2")
    stands(rescd, worker, "closed", calls=2)
    worker.call("payments", "fail")
    stands(rescd, worker, "open")
    # And once more, with the others a moment earlier: all three are inside.
    rescd.ctl("reset", "payments")
    now = worker.advance(0)
    start = (now // bucket_ms + 20) * bucket_ms + age_of_bucket * (bucket_ms - 1)
    worker.advance(start - now)
    failing(worker, [0])
    worker.advance((start // bucket_ms + 10) * bucket_ms - 1 - start)
    worker.call("payments", "fail")
    stands(rescd, worker, "closed", calls=2)
    worker.call("payments", "fail")
    stands(rescd, worker, "open")


@pytest.mark.parametrize("idle_ms", [5000, 8000, 16 * 500, 3600000, 30 * 86400000, 10 * 365 * 86400000])
def test_B2_however_long_it_was_idle_before(host, idle_ms):
    rescd = host(one({"failure_rate": 1, "window": "5s", "min_calls": 3}))
    worker = rescd.worker()
    worker.calls("payments", "fail*2")
    worker.advance(idle_ms)
    worker.call("payments", "fail")
    stands(rescd, worker, "closed", calls=1)
    worker.calls("payments", "fail*2")
    stands(rescd, worker, "open")


@pytest.mark.parametrize("rate,least,outcomes,opens", [
    (1, 10, "fail*10", True), (1, 10, "fail*9", False), (1, 10, "ok,fail*9", False), (0.5, 10, "ok*5,fail*5", True),
    (0.5, 10, "fail*5,ok*5", True), (0.5, 10, "fail*4,ok*6", False), (0.5, 10, "fail*9", False), (0.5, 10, "fail*4,ok*5,ignored*9,fail", True),
    ("12.5%", 8, "ok*7,fail", True), ("12.6%", 8, "ok*7,fail", False), ("33.3333%", 3, "ok*2,fail", True), ("33.3334%", 3, "ok*2,fail", False),
    ("0.1%", 1000, "ok*999,fail", True), ("0.1%", 1000, "ok*1000,fail", False), ("0.0001%", 10, "ok*9,timeout", True), (1, 1, "fail", True),
])
def test_B5_at_the_threshold_it_opens_and_one_call_before_it_does_not(host, rate, least, outcomes, opens):
    rescd = host(one({"failure_rate": rate, "min_calls": least, "window": "60s"}))
    first, second = rescd.crew(2)
    *before, last = outcomes.split(",")
    times = int(last.split("*")[1]) if "*" in last else 1
    before += ["%s*%d" % (last.split("*")[0], times - 1)] if times > 1 else []
    if before:
        first.calls("payments", *before)
        stands(rescd, second, "closed")
    second.call("payments", last.split("*")[0])
    stands(rescd, second, "open" if opens else "closed", opened=int(opens), **({"why": "failure_rate"} if opens else {}))


@pytest.mark.parametrize("rate", [0, 101, 1.000001, "0%", "100.0001%", "101%", -1, -0.5, "-1%", "1e-9%", True, None, "half"])
def test_B5_rates_that_are_none_are_refused_with_their_path(host, rate):
    rescd = host(one({"failure_rate": 0.5}))
    rescd.write_config(one({"failure_rate": rate}))
    assert "resources.payments.breaker.failure_rate" in rescd.ctl("check", rescd.config_path, code=1).stdout
    assert not rescd.reload()["ok"]
    assert rescd.show("payments")["policy"]["breaker"]["failure_rate"] == 0.5
    assert metric(rescd.scrape(), "resc_config_reload_success") == 0


def test_B7_the_window_rolls(host):
    rescd = host(one({"failure_rate": 0.5, "window": "10s", "min_calls": 10}))
    first, second = rescd.crew(2)
    for _ in range(100):
        assert first.calls("payments", "ok*100") == [["ok", 100]]
        first.advance(100)
    for i in range(10):
        assert (first, second)[i % 2].calls("payments", *["fail*9,ok"] * 10) == [["ok", 100]], i
        stands(rescd, first, "closed", failures=90 * (i + 1))
        first.advance(100)
    # More of that: it opens as soon as half of what is inside has failed, and not one call earlier.
    seen = rescd.show("payments")["window"]
    wanted = seen["calls"] - 2 * seen["failures"]
    assert wanted > 0 and first.calls("payments", "fail*%d" % (wanted - 1)) == [["ok", wanted - 1]]
    stands(rescd, second, "closed")
    second.call("payments", "fail")
    stands(rescd, second, "open", why="failure_rate", opened=1)


def test_B9_the_hosts_own_refusals_are_no_failures_of_the_dependency(host):
    rescd = host({"resources": {
        "payments": {"breaker": {"consecutive": 2}, "bulkhead": {"limit": 1, "low": 1}},
        "mail": {"breaker": {"failure_rate": 0.01, "min_calls": 1}, "rate": {"per_second": 1, "burst": 1}},
        "front": {"breaker": {"failure_rate": 1, "min_calls": 1000}, "throttle": {"k": 1, "window": "2m"}}}})
    holder, other = rescd.crew(2)
    holder.enter("payments")
    holder.call("mail")
    front = 60
    holder.calls("front", "fail*%d" % front)
    calls = holder.counters("front")["admitted"]
    for name, options, answer in (("payments", {}, "full"), ("payments", {"deadline_ms": 0}, "deadline"), ("mail", {}, "rate"),
                                  ("mail", {"cost": 2}, "cost"), ("mail", {"deadline_ms": 0}, "deadline")):
        before = agreed(rescd, other, name)
        for _ in range(100):
            refused = other.enter(name, **options)
            assert refused["answer"] == answer
            assert other.leave(refused, "fail")["answer"] == "error"  # a refusal is no ticket
        after = agreed(rescd, other, name)
        assert moved(before, after) == {"enters": 100, "refused_" + answer: 100}
        assert steady({**after, "counters": 0}) == steady({**before, "counters": 0})
    answers = []
    while answers.count("throttled") < 100:
        ticket = other.enter("front")
        answers.append(ticket["answer"])
        assert other.leave(ticket, "cancelled")["answer"] == ("error" if ticket["r"] else "ok")
        assert len(answers) < 200, "it lets too many pass"
    stands(rescd, other, "closed", "front", calls=calls, failures=calls)
    stands(rescd, other, "closed", "mail", calls=1, failures=0)
    stands(rescd, other, "closed", calls=0, streak=0)


def test_B11_each_try_is_booked_and_one_that_was_refused_is_not(host):
    """A breaker counts calls on the wire, not requests."""
    rescd = host(one({"consecutive": 5, "cooldown": "1h"},
                     retry={"attempts": 3, "backoff": "none", "budget": {"capacity": 100, "ratio": 0}}))
    worker, other = rescd.crew(2)
    told = worker.run("payments", "fail", "fail", "fail")
    assert (told["answer"], told["attempts"]) == ("attempts", 3)
    stands(rescd, other, "closed", streak=3, ended_fail=3)
    told = worker.run("payments", "fail", "fail", "fail")
    assert (told["answer"], told["attempts"], told["last"]) == ("open", 2, 1)
    stands(rescd, other, "open", why="consecutive", ended_fail=5, admitted=5, refused_open=1)
    told = worker.run("payments", "ok")
    assert (told["answer"], told["attempts"], told["last"]) == ("open", 0, -1)
    stands(rescd, other, "open", ended_fail=5, admitted=5, refused_open=2, stale=0)
