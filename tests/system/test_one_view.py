# SPDX-License-Identifier: MIT
"""The host learns once: eight workers stop together, and one probe is sent for all of them."""
import subprocess

import pytest
from harness import RESCD, VARIANT, helper, steady, until

FIVE = {"resources": {"payments": {"breaker": {"consecutive": 5, "cooldown": "5s"}, "bulkhead": {"limit": 64}}}}


def cooldown_passes(rescd, seconds):
    if VARIANT == "release":
        until(lambda: rescd.show("payments")["probe_due"], patience=seconds + 5)
    else:
        rescd.advance("%dms" % int(seconds * 1000))


@pytest.mark.smoke
def test_eight_workers_see_five_failures_and_not_forty(host):
    rescd = host({"resources": {"payments": {"breaker": {"consecutive": 5, "cooldown": "1h"}}}})
    crew = rescd.crew(8)
    reached = 0
    # Each would make its own five if it learnt alone.
    for _ in range(5):
        for worker in crew:
            ticket = worker.enter("payments")
            if ticket["r"] == 0:
                reached += 1
                worker.leave(ticket, "fail")
    assert reached == 5
    for worker in crew:
        assert worker.enter("payments")["answer"] == "open"
    seen = rescd.show("payments")
    assert seen["state"] == "open" and seen["why"] == "consecutive"
    assert (seen["counters"]["admitted"], seen["counters"]["opened"]) == (5, 1)


def test_calls_in_flight_are_all_that_comes_on_top(host):
    rescd = host(FIVE)
    crew = rescd.crew(8)
    tickets = [worker.enter("payments") for worker in crew]  # eight calls are inside
    answers = [worker.leave(ticket, "fail")["answer"] for worker, ticket in zip(crew, tickets)]
    # The fifth failure opened it; the three behind it are told that their news is old.
    assert answers == ["ok"] * 5 + ["stale"] * 3
    assert [worker.enter("payments")["answer"] for worker in crew] == ["open"] * 8
    counters = rescd.show("payments")["counters"]
    assert (counters["admitted"], counters["ended_fail"], counters["stale"], counters["refused_open"]) == (8, 8, 3, 8)


@pytest.mark.smoke
def test_one_probe_after_the_cooldown_and_its_ok_closes_for_all(host):
    rescd = host({"resources": {"payments": {"breaker": {"consecutive": 5, "cooldown": "300ms"}}}})
    crew = rescd.crew(8)
    crew[0].fail("payments", 5)
    cooldown_passes(rescd, 0.3)
    answers = [worker.enter("payments") for worker in crew]
    assert [a["answer"] for a in answers] == ["ok"] + ["half_open"] * 7
    assert answers[0]["probe"]
    assert rescd.show("payments")["probes"]["out"] == 1
    crew[0].leave(answers[0], "ok")
    assert all(worker.call("payments")["answer"] == "ok" for worker in crew)
    assert rescd.show("payments")["state"] == "closed"


def test_a_failed_probe_opens_it_again_and_the_cooldown_grows(host):
    rescd = host({"resources": {"payments": {"breaker": {"consecutive": 1, "cooldown": "1s", "cooldown_factor": 2, "cooldown_max": "3s"}}}})
    one, other = rescd.crew(2)
    one.call("payments", "fail")
    for expected in (2000, 3000, 3000):
        rescd.advance("%dms" % rescd.show("payments")["due_left_ms"])
        assert other.call("payments", "fail")["answer"] == "ok"
        seen = rescd.show("payments")
        assert (seen["state"], seen["why"], seen["due_left_ms"]) == ("open", "probe_failed", expected)


@pytest.mark.parametrize("probes", [1, 3])
def test_A6_exactly_so_many_probes_with_32_processes_in_1000_rounds(host, probes):
    rounds, processes = 1000, 32
    rescd = host({"resources": {"payments": {"breaker": {"consecutive": 2, "cooldown": "1s", "probes": probes}}}})
    seen = helper("probe_rounds", rescd.instance, "payments", processes, rounds, 1000)
    assert (seen["fewest"], seen["most"]) == (probes, probes), seen
    assert seen["probes"] == probes * rounds
    assert seen["refused_half_open"] == (processes - probes) * rounds
    assert (seen["other"], seen["leave_failed"], seen["not_opened"], seen["not_closed"]) == (0, 0, 0, 0), seen
    assert seen["cpu_s"] < 60  # nobody spins
    counters = rescd.show("payments")["counters"]
    assert (counters["opened"], counters["half_opened"], counters["closed"]) == (rounds, rounds, rounds)
    assert (counters["probes"], counters["probes_reclaimed"], counters["stale"]) == (probes * rounds, 0, 0)


@pytest.mark.smoke
def test_A6_in_real_time(host):
    rescd = host({"resources": {"payments": {"breaker": {"consecutive": 2, "cooldown": "20ms", "probes": 3, "probe_timeout": "1h"}}}})
    seen = helper("probe_rounds", rescd.instance, "payments", 32, 30, 40)
    assert (seen["fewest"], seen["most"]) == (3, 3), seen
    assert (seen["other"], seen["leave_failed"], seen["not_closed"]) == (0, 0, 0), seen


def test_a_ticket_that_is_none_changes_nothing(host):
    rescd = host(FIVE)
    one, other = rescd.crew(2)
    ticket = one.enter("payments")
    inside = other.enter("payments")
    before = steady(rescd.show("payments"))
    garbage = one.ask("garbage")
    assert garbage["accepted"] == 0 and garbage["tried"] > 50
    assert steady(rescd.show("payments")) == before
    assert one.leave(ticket)["r"] == 0
    after = steady(rescd.show("payments"))
    assert one.leave(ticket)["answer"] == "error"  # twice
    assert one.leave(4000)["answer"] == "error"  # never entered: zeroed
    assert steady(rescd.show("payments")) == after
    assert after["permits"]["in_use"] == 1
    other.leave(inside)
    assert rescd.show("payments")["permits"]["in_use"] == 0


def test_K4_looking_moves_nothing(host):
    rescd = host(FIVE)
    rescd.worker().fail("payments", 5)
    rescd.advance("1h")
    for _ in range(3):
        seen = rescd.show("payments")
        assert (seen["state"], seen["probe_due"], seen["probes"]["out"]) == ("open", True, 0)
    assert "probe due" in rescd.ctl("list").stdout


def test_a_whole_request_in_one_call(host):
    rescd = host({"resources": {"payments": {"retry": {"attempts": 3, "backoff": "fixed", "base": "1ms", "cap": "1ms"}}}})
    worker = rescd.worker()
    assert worker.ask("run", "payments", "fail,timeout,ok") == {"r": 0, "answer": "ok", "attempts": 3, "last": 0}
    told = worker.ask("run", "payments", "fail,fail,fail,ok")
    assert (told["answer"], told["attempts"], told["last"]) == ("attempts", 3, 1)
    counters = rescd.show("payments")["counters"]
    assert (counters["ended_ok"], counters["ended_fail"], counters["ended_timeout"]) == (1, 4, 1)
    assert (counters["retries"], counters["retry_attempts"]) == (4, 1)


@pytest.mark.smoke
def test_help_teaches(host):
    for program in (RESCD,):
        done = subprocess.run([program, "--help"], stdout=subprocess.PIPE, check=True, encoding="utf-8")
        assert "Examples:" in done.stdout and "Exit codes" in done.stdout
        assert subprocess.run([program, "--no-such-option"], stderr=subprocess.DEVNULL, check=False).returncode == 2


@pytest.mark.smoke
def test_attach_is_quick_and_calls_are_counted_in_real_time(host):
    rescd = host({"resources": {"payments": {"breaker": {"failure_rate": 0.9}, "bulkhead": {"limit": 8}}}})
    crew = rescd.crew(3)
    for i, worker in enumerate(crew):
        worker.send("loop", "payments", 20000, 0.1, i + 1)
    told = [worker.receive() for worker in crew]
    counters = rescd.show("payments")["counters"]
    assert counters["enters"] == 60000 and counters["admitted"] == sum(t["admitted"] for t in told)
    assert counters["ended_fail"] == sum(t["fail"] for t in told)
    assert rescd.show("payments")["permits"]["in_use"] == 0
