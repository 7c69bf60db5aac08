# SPDX-License-Identifier: MIT
"""resctl inject: an exact share of the host's calls fails or waits, for a time, only where the configuration allows it; and it is over."""
import os
import re

import pytest
from harness import metric, until

ALLOWED = {"resources": {"payments": {"injection": True, "timeout": {"attempt": "2s"}}, "ledger": {"breaker": {"consecutive": 5}}}}
FOR = ["--for", "60s", "--why", "game day"]


def start(crew, calls, **options):
    """So many calls of each worker, all at the same time."""
    for worker in crew:
        worker.send("loop", "payments", calls, 0, 1, *["%s=%s" % item for item in options.items()])
    return [worker.receive() for worker in crew]


def ended(rescd):
    return [(e["values"]["end"], e["text"]) for e in rescd.events("injection_ended")]


@pytest.mark.smoke
@pytest.mark.parametrize("share,calls", [("20%", 500), ("12.5%", 200), ("33.3%", 375)])
def test_of_all_calls_of_eight_workers_exactly_the_share_fails(host, share, calls):
    rescd = host(ALLOWED)
    crew = rescd.crew(8)
    rescd.ctl("inject", "payments", "--fail", share, *FOR)
    start(crew, calls)
    seen = rescd.show("payments")
    fails = round(8 * calls * float(share[:-1]) / 100)
    counters = seen["counters"]
    assert (counters["enters"], counters["admitted"], counters["injected_failures"]) == (8 * calls, 8 * calls, fails)
    assert (counters["ended_fail"], counters["ended_ok"], counters["injected_delays"]) == (fails, 8 * calls - fails, 0)
    assert seen["permits"]["in_use"] == 0


def test_what_workers_and_operators_see(host):
    rescd = host(ALLOWED)
    worker = rescd.worker()
    done = rescd.ctl("inject", "payments", "--fail", "100%", *FOR)
    assert re.match(r"payments: injecting 100% fail for 1m, until .*, by .*: game day \(end it: resctl inject payments --stop\)$", done.stdout)
    assert worker.enter("payments")["answer"] == "injected"
    seen = rescd.show("payments")["injection"]
    assert seen == {"fail": 1.0, "latency_ms": 0, "latency_share": 0.0, "set_ms": seen["set_ms"], "until_ms": seen["set_ms"] + 60000,
                    "left_ms": 60000, "uid": os.getuid(), "why": "game day"}
    rescd.advance("18s")
    assert "injected: 100% fail, 42s left" in rescd.ctl("list").stdout and "1 with injected faults" in rescd.ctl("list").stdout
    assert re.search(r"injected +100% fail for 18s by \S+: game day\n +it ends by itself in 42s", rescd.ctl("show", "payments").stdout)
    assert re.search(r"payments +injected: 100% fail .*for 1m: game day", rescd.ctl("events").stdout)
    page = rescd.scrape()
    assert metric(page, "resc_injection_fail_ratio", resource="payments") == 1
    assert metric(page, "resc_injection_left_seconds", resource="payments") == 42
    assert metric(page, "resc_injection_calls_total", resource="payments", fault="failures") == 1
    (event,) = rescd.events("injected")
    assert event["values"] == {"fail": 1.0, "latency_ms": 0, "latency_share": 0.0, "for_ms": 60000} and event["uid"] == os.getuid()
    assert rescd.show("ledger")["injection"] is None and worker.call("ledger")["r"] == 0


@pytest.mark.parametrize("daemon", [True, False])
def test_it_is_over_by_itself_with_and_without_the_daemon(host, daemon):
    rescd = host(ALLOWED)
    crew = rescd.crew(4)
    rescd.ctl("inject", "payments", "--fail", "50%", *FOR)
    if not daemon:
        rescd.kill()
    rescd.advance("59999ms")
    start(crew, 50)
    assert rescd.show("payments")["counters"]["injected_failures"] == 100
    rescd.advance("1ms")
    start(crew, 50)
    assert rescd.show("payments")["counters"]["injected_failures"] == 100
    assert rescd.show("payments")["injection"] is None
    assert ended(rescd) == [("expired", "game day")]


def test_over_also_where_nobody_calls(host):
    rescd = host(ALLOWED)
    rescd.ctl("inject", "payments", "--fail", "50%", *FOR)
    rescd.advance("60s")
    until(lambda: rescd.events("injection_ended"), what="rescd ends what is over")
    assert ended(rescd) == [("expired", "game day")]


def until_delayed(rescd, calls):
    """So many calls have begun to wait: from now on, whatever the clock says."""
    until(lambda: rescd.show("payments")["counters"]["injected_delays"] == calls, what="%d calls wait, or have waited" % calls)


def test_stopped_at_once_also_for_calls_that_wait(host):
    rescd = host(ALLOWED)
    worker = rescd.worker()
    rescd.ctl("inject", "payments", "--latency", "1s", *FOR)
    worker.send_enter("payments")
    until_delayed(rescd, 1)
    assert rescd.show("payments")["permits"]["in_use"] == 1
    rescd.ctl("inject", "payments", "--stop", "--why", "enough")
    assert worker.receive()["r"] == 0
    assert ended(rescd) == [("stopped", "enough")]
    assert "there is nothing to stop" in rescd.ctl("inject", "payments", "--stop", code=1).stderr


def test_stopped_at_once_also_where_the_segment_was_replaced_meanwhile(host):
    rescd = host(ALLOWED)
    worker = rescd.worker()
    rescd.ctl("inject", "payments", "--latency", "1s", *FOR)
    worker.send_enter("payments")
    until(lambda: rescd.show("payments")["permits"]["in_use"] == 1, what="the call waits")
    assert rescd.load({"resources": {**ALLOWED["resources"], **{"shard-%d" % i: {} for i in range(40)}}})["replaced"]
    rescd.ctl("inject", "payments", "--stop", "--why", "enough")
    entered = worker.receive()
    assert entered["r"] == 0
    assert worker.leave(entered["ticket"])["answer"] == "ok"
    assert rescd.show("payments")["counters"]["ended_ok"] == 1


def test_a_latency_takes_from_the_timeout_and_beyond_it_is_a_timeout(host):
    rescd = host(ALLOWED)
    worker = rescd.worker()
    rescd.ctl("inject", "payments", "--latency", "500ms", *FOR)
    worker.send_enter("payments")
    until_delayed(rescd, 1)
    rescd.advance("500ms")
    entered = worker.receive()
    assert (entered["r"], entered["timeout_ms"]) == (0, 1500)
    worker.leave(entered["ticket"])
    rescd.ctl("inject", "payments", "--latency", "2s", "--latency-share", "100%", *FOR)
    worker.send_enter("payments")
    until_delayed(rescd, 2)
    rescd.advance("2s")
    assert worker.receive()["answer"] == "injected_timeout"
    seen = rescd.show("payments")
    assert (seen["counters"]["ended_ok"], seen["counters"]["ended_timeout"], seen["permits"]["in_use"]) == (1, 1, 0)
    assert 2500000 <= seen["latency"]["sum_us"] <= 2501000


def test_probes_and_resc_run_meet_it_like_failures_of_the_dependency(host):
    rescd = host({"resources": {"payments": {"injection": True, "breaker": {"consecutive": 2, "cooldown": "1s"},
                                             "retry": {"attempts": 2, "backoff": "none", "budget": False}}}})
    worker = rescd.worker()
    rescd.ctl("inject", "payments", "--fail", "100%", *FOR)
    ran = worker.run("payments", "ok", "ok")
    assert ran["answer"] == "attempts" and rescd.show("payments")["state"] == "open"
    rescd.advance("1s")
    assert worker.enter("payments")["answer"] == "injected"
    seen = rescd.show("payments")
    assert (seen["state"], seen["why"], seen["counters"]["probes"]) == ("open", "probe_failed", 1)
    assert re.search(r"injected: 100% fail, .* left; probe in", rescd.ctl("list").stdout)


def test_refused_where_the_configuration_does_not_allow_it(host):
    rescd = host(ALLOWED)
    done = rescd.ctl("inject", "ledger", "--fail", "1%", *FOR, code=1)
    assert 'ledger: the configuration does not allow injection; set "injection": true for it, and resctl reload' in done.stderr
    assert rescd.events("injected") == []


def test_a_reload_that_forbids_it_ends_it(host):
    rescd = host(ALLOWED)
    worker = rescd.worker()
    rescd.ctl("inject", "payments", "--fail", "100%", *FOR)
    assert worker.enter("payments")["answer"] == "injected"
    forbidden = {"resources": {**ALLOWED["resources"], "payments": {}}}
    rescd.load(forbidden)
    assert worker.call("payments")["r"] == 0
    assert ended(rescd) == [("forbidden", "game day")] and rescd.show("payments")["injection"] is None
    rescd.load(ALLOWED)
    assert worker.call("payments")["r"] == 0
    rescd.ctl("inject", "payments", "--fail", "100%", *FOR)
    rescd.load({"resources": {"ledger": {}}})
    rescd.load(ALLOWED)
    assert worker.call("payments")["r"] == 0
    assert ended(rescd) == [("forbidden", "game day")] * 2


def test_it_outlives_reload_restart_and_a_larger_segment(host):
    rescd = host(ALLOWED)
    crew = rescd.crew(8)
    rescd.ctl("inject", "payments", "--fail", "20%", *FOR)
    before = rescd.show("payments")["injection"]
    start(crew, 50)
    assert rescd.reload()["ok"]
    rescd.restart()
    start(crew, 50)
    more = {"resources": {**ALLOWED["resources"], **{"shard-%d" % i: {} for i in range(40)}}}
    assert rescd.load(more)["replaced"]
    assert rescd.show("payments")["injection"] == before
    start(crew, 50)
    counters = rescd.show("payments")["counters"]
    assert (counters["admitted"], counters["injected_failures"], counters["ended_fail"]) == (1200, 240, 240)
    rescd.advance("60s")
    start(crew, 50)
    assert rescd.show("payments")["counters"]["injected_failures"] == 240


@pytest.mark.parametrize("point", ["note.claimed", "injection.claimed", "injection.setting", "injection.text", "injection.set"])
def test_a_resctl_that_dies_while_injecting_leaves_all_or_nothing(host, point):
    rescd = host(ALLOWED)
    crew = rescd.crew(4)
    rescd.ctl("inject", "payments", "--fail", "50%", *FOR)
    rescd.ctl("inject", "payments", "--fail", "100%", "--for", "60s", "--why", "cut off", code=-9,
              env={**os.environ, "RESC_FAILPOINT": point + "=kill"})
    seen = rescd.show("payments")["injection"]
    assert (seen["fail"], seen["why"]) == ((1.0, "cut off") if point == "injection.set" else (0.5, "game day"))
    start(crew, 10)
    assert rescd.show("payments")["counters"]["injected_failures"] == 40 * seen["fail"]
    rescd.ctl("inject", "payments", "--fail", "25%", "--for", "60s", "--why", "again")
    assert rescd.show("payments")["injection"]["why"] == "again"
    rescd.ctl("inject", "payments", "--stop")
    assert rescd.ctl("doctor").returncode == 0


@pytest.mark.parametrize("point", ["injection.ending", "injection.gone"])
def test_a_worker_that_dies_while_ending_it_is_finished_by_others(host, point):
    rescd = host(ALLOWED)
    rescd.ctl("inject", "payments", "--fail", "50%", *FOR)
    rescd.kill()
    rescd.advance("60s")
    dying = rescd.worker(env={**os.environ, "RESC_FAILPOINT": point + "=kill"})
    dying.send("enter", "payments")
    dying.died()
    assert rescd.worker().call("payments")["r"] == 0
    assert rescd.show("payments")["injection"] is None


@pytest.mark.parametrize("words,said", [
    (["payments"], "inject what?"), (["--fail", "20%"], "which resource?"), (["payments", "--fail", "20"], "like 20%"),
    (["payments", "--fail", "0%"], "more than 0%"), (["payments", "--fail", "100.1%"], "at most 100%"),
    (["payments", "--fail", "0.00001%"], "one call in a million"), (["payments", "--fail", "1%", "--why", "x"], "how long?"),
    (["payments", "--fail", "1%", "--for", "61m", "--why", "x"], "at most 1h"), (["payments", "--fail", "1%", "--for", "1m"], "why?"),
    (["payments", "--latency", "61s"], "at most 1m"), (["payments", "--fail", "1%", "--latency-share", "5%", "--for", "1m", "--why", "x"],
                                                       "--latency DURATION says how long"),
    (["payments", "--stop", "--fail", "1%"], "it goes with --why alone"), (["payments", "ledger", "--stop"], "one resource at a time")])
def test_what_is_missing_or_contradicts_is_said(host, words, said):
    rescd = host(ALLOWED)
    assert said in rescd.ctl("inject", *words, code=2).stderr
    assert rescd.events("injected") == []
