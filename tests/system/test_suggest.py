# SPDX-License-Identifier: MIT
"""resctl suggest on a live host: the screens, and the JSON that says the same. What is worked out from which figures is tested one by one in
tests/unit/test_suggest.c.

Latencies are moved by the test clock, so the histogram is the same in each run. The watch sleeps in real time, 20 ms a look.
"""
import contextlib
import json
import signal
import subprocess

import pytest
from harness import RESCTL, Rescd, is_stopped, state_of, until

PAYMENTS = {"breaker": {"failure_rate": 0.5, "min_calls": 20}, "bulkhead": {"limit": 40}, "timeout": {"attempt": "800ms"}}
CONFIG = {"resources": {"payments": PAYMENTS, "own": {}, "fresh": {}, "blind": {"latency": False}}}
NOW = ("--watch", "0")


def measured(worker, name, *runs):
    """Whole calls: (times, ms, outcome), one after the other."""
    for times, ms, outcome in runs:
        worker.batch(["enter %s ticket=1" % name, "advance %d" % (ms * 1000000), "leave 1 %s" % outcome] * times)


def keys_of(value, path=""):
    """Every key of a document, with its place."""
    if isinstance(value, dict):
        return {path + "." + k for k in value} | set().union(*(keys_of(v, path + "." + k) for k, v in value.items()))
    return set().union(*(keys_of(v, path + "[]") for v in value)) if isinstance(value, list) else set()


def candidates(answer):
    return {c["ms"]: c for c in answer["timeouts"]}


@contextlib.contextmanager
def watching(rescd, *args):
    """resctl suggest, which has begun to watch: it has the segment, and sleeps between two looks. It counts its looks, and so it is held
    there until what it is to see has happened: however long that takes, it looks on."""
    with subprocess.Popen([RESCTL, "--instance", rescd.instance, "suggest", *args], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE) as process:
        def sleeps():
            with open("/proc/%d/maps" % process.pid, encoding="utf-8") as file:
                return rescd.instance in file.read() and state_of(process.pid) == "S"

        until(sleeps, what="it watches")
        process.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(process), what="it is held")

        def rest():
            """Lets it go on to its end; its answer."""
            process.send_signal(signal.SIGCONT)
            answer = json.loads(process.communicate(timeout=30)[0])
            assert process.returncode == 0
            return answer

        try:
            yield rest
        finally:
            process.kill()  # where the test has failed


@pytest.fixture(scope="module")
def busy():
    """Measured calls of all kinds, and three that are inside."""
    rescd = Rescd(CONFIG)
    try:
        worker, other = rescd.crew(2)
        measured(worker, "payments", (985, 75, "ok"), (10, 260, "ok"), (4, 450, "ignored"), (1, 640, "ok"))
        measured(worker, "own", (150, 50, "ok"), (50, 300, "timeout"))
        other.hold("payments", 3)
        rescd.kill()
        yield rescd
    finally:
        rescd.clean()


def test_timeouts_come_with_the_share_of_healthy_calls_that_they_cut_off(busy):
    answer = busy.ask("suggest", "payments", *NOW)
    assert (answer["latency"]["measured"], answer["latency"]["not_healthy"], answer["latency"]["timed_out"]) == (1000, 0, 0)
    cut = candidates(answer)
    assert {200, 300, 500, 800} <= set(cut)
    for ms, share in ((200, 0.015), (300, 0.005), (500, 0.001), (800, 0)):
        assert cut[ms]["cuts_off_least"] <= share <= cut[ms]["cuts_off_most"] and abs(cut[ms]["cuts_off"] - share) < 0.0005, cut[ms]
    assert "present" in cut[800]["why"]
    best = next(c for c in answer["timeouts"] if c["recommended"])
    assert best["ms"] == answer["recommended_timeout_ms"] and "p999_padded" in best["why"]
    text = busy.ctl("suggest", "payments", *NOW).stdout
    assert text.startswith("payments\n") and "of 1,000 calls measured" in text
    assert "recommended; p99.9 + 20%, rounded up" in text and "a usual number; timeout.attempt today" in text
    assert '"attempt": "%dms" cuts off' % best["ms"] in text


def test_a_limit_comes_from_the_calls_inside_also_while_rescd_is_dead(busy):
    answer = busy.ask("suggest", "payments", "--watch", "100ms")
    assert answer["load"]["samples"] == 5 and answer["load"]["watched"]
    assert answer["load"]["in_flight"] == {"p50": 3, "p99": 3, "p999": 3, "most": 3}
    # The test clock stood still, so there is no rate.
    assert answer["load"]["calls_per_second"] is None and answer["load"]["seconds"] == 0
    assert answer["limit"] == {"present": 40, "recommended": 5, "reached": False} and answer["load"]["workers"] == 2
    text = busy.ctl("suggest", "payments", "--watch", "20ms").stdout
    assert "p50 3, p99 3, p99.9 3, most 3" in text
    assert '"limit": 5' in text and "there are 2 live workers: where each has one call at a time, a limit of 2 or more never refuses" in text


@pytest.mark.smoke
def test_in_real_time_it_has_measured_every_call(host):
    rescd = host(CONFIG)
    worker = rescd.crew(1)[0]
    worker.batch(["enter fresh ticket=1", "leave 1 ok"] * 150)
    answer = rescd.ask("suggest", "fresh", "--watch", "50ms")
    assert (answer["latency"]["measured"], answer["latency"]["not_healthy"], answer["load"]["watched"]) == (150, 0, True)
    assert answer["recommended_timeout_ms"] is not None
    assert "of 150 calls measured" in rescd.ctl("suggest", "fresh", *NOW).stdout


def test_a_limit_from_a_few_calls_is_doubted(busy):
    text = busy.ctl("suggest", "payments", "--watch", "100ms").stdout
    assert '"limit": 5' in text and "0 calls came in while it watched, which is few: watch longer, or at a busy time, with --watch" in " ".join(text.split())


def test_without_a_watch_the_rate_is_that_of_the_whole_time(busy):
    answer = busy.ask("suggest", "payments", *NOW)
    load = answer["load"]
    assert (load["watched"], load["samples"], load["in_flight"], load["calls"]) == (False, 0, None, 1003)
    assert load["calls_per_second"] * load["seconds"] == pytest.approx(1003)
    assert load["inside"] == pytest.approx(load["calls_per_second"] * load["mean_us"] / 1e6)
    assert "on average since the segment was made" in busy.ctl("suggest", "payments", *NOW).stdout


def test_a_tail_that_is_cut_off_is_said_to_be_unknown(busy):
    answer = busy.ask("suggest", "own", *NOW)
    assert (answer["latency"]["timed_out"], answer["latency"]["cut_off_at_ms"], answer["latency"]["p99_is_least"]) == (50, None, True)
    assert answer["recommended_timeout_ms"] is None and candidates(answer)[500]["cuts_off_most"] == 0.25
    text = busy.ctl("suggest", "own", *NOW).stdout
    assert "p99 at least" in text and "50 of them were cut off by other timeouts than today's" in text
    assert "too few for a p99.9, which needs 1,000" in text and "none can be recommended: too many calls were cut off" in text


def test_without_measured_calls_it_says_what_to_do(busy):
    text = busy.ctl("suggest", "fresh", *NOW).stdout
    assert "no call has ended yet" in text and "none can be recommended without calls" in text and "TIMEOUT" not in text
    text = busy.ctl("suggest", "blind", *NOW).stdout
    assert 'not measured: write "latency": true, reload, and ask again after 1,000 calls' in text


def test_what_was_slow_is_not_said_to_have_failed(host):
    rescd = host({"resources": {"payments": {"injection": True, "timeout": {"attempt": "800ms"}}, "slow": {"timeout": {"attempt": "800ms"}}}})
    worker = rescd.worker()
    measured(worker, "payments", (199, 75, "ok"))
    rescd.ctl("inject", "payments", "--latency", "300ms", "--for", "1h", "--why", "drill")
    worker.send_enter("payments")
    until(lambda: rescd.show("payments")["counters"]["injected_delays"] == 1, what="it waits")
    rescd.advance("300ms")
    worker.leave(worker.receive()["ticket"])
    text = " ".join(rescd.ctl("suggest", "payments", *NOW).stdout.split())
    assert "given up" not in text and "at least 1 of them failed or waited because an operator injected it" in text
    measured(worker, "slow", (120, 300000, "ok"))
    text = " ".join(rescd.ctl("suggest", "slow", *NOW).stdout.split())
    assert "p50 at least 4m11s, p99 at least 4m11s, of 120 calls" in text
    assert "none can be recommended: too many calls took longer than 4m11s" in text and "operator" not in text
    assert "there is 1 live worker" in text and "choose" not in text
    assert rescd.ask("suggest", "slow", *NOW)["latency"]["p50_is_least"]


def test_only_the_watched_calls_tell_what_a_longer_timeout_would_do(host):
    rescd = host({"resources": {"payments": {"timeout": {"attempt": "300ms"}}}})
    worker = rescd.worker()
    measured(worker, "payments", (900, 75, "ok"), (100, 300, "timeout"))
    cut = rescd.ask("suggest", "payments", *NOW)
    assert cut["latency"]["cut_off_at_ms"] == 300 and cut["latency"]["p999_is_least"] and cut["recommended_timeout_ms"] is None
    assert candidates(cut)[800]["cuts_off_most"] == 0.1
    assert rescd.load({"resources": {"payments": {"timeout": {"attempt": "2s"}}}})["changed"] == ["payments"]
    with watching(rescd, "payments", "--watch", "1s", "--only-watched", "--json") as rest:
        measured(worker, "payments", (195, 75, "ok"), (5, 450, "ok"))
        answer = rest()
    told = answer["latency"]
    assert told["only_watched"] and (told["measured"], told["timed_out"], told["p99_is_least"]) == (200, 0, False)
    assert answer["recommended_timeout_ms"] > 500 and candidates(answer)[500]["cuts_off"] == 0
    assert answer["load"]["calls"] == 200 and answer["load"]["mean_us"] == pytest.approx(84375)


def test_what_an_operator_injected_is_told(host):
    rescd = host({"resources": {"payments": {"injection": True}}})
    worker = rescd.worker()
    rescd.ctl("inject", "payments", "--fail", "20%", "--for", "1m", "--why", "game day")
    worker.calls("payments", "ok*100")
    told = rescd.ask("suggest", "payments", *NOW)["latency"]
    assert (told["measured"], told["injected"], told["not_healthy"]) == (100, 20, 20)
    assert "at least 20 of them failed or waited because an operator injected it" in rescd.ctl("suggest", "payments", *NOW).stdout


def test_a_tail_that_an_operator_cut_off_is_no_reason_to_raise_the_timeout(host):
    rescd = host({"resources": {"payments": {"injection": True, "timeout": {"attempt": "1s"}}}})
    worker = rescd.worker()
    rescd.ctl("inject", "payments", "--latency", "1s", "--latency-share", "2%", "--for", "1h", "--why", "game day")
    worker.send("loop", "payments", 100, 0, 1)
    for number in (1, 2):  # the clock moves while one waits, and not under a call that is just going on
        until(lambda: rescd.show("payments")["counters"]["injected_delays"] == number, what="one that waits")
        rescd.advance("1s")
    worker.receive()
    text = " ".join(rescd.ctl("suggest", "payments", *NOW).stdout.split())
    assert "too many calls were cut off, perhaps all by what an operator injected" in text and "Raise the timeout" not in text


def test_every_key_is_always_there(busy):
    full, empty = busy.ask("suggest", "payments", "--watch", "20ms"), busy.ask("suggest", "fresh", *NOW)
    inside = {k for k in keys_of(full) if k.startswith(".timeouts[]") or k.count(".") == 3}
    assert keys_of(full) - inside == keys_of(empty) and ".load.in_flight" in keys_of(empty)
    assert inside == {".timeouts[]." + k for k in ("ms", "why", "cuts_off", "cuts_off_least", "cuts_off_most", "recommended")} | {
        ".load.%s.%s" % (what, k) for what in ("in_flight", "waiting", "retries") for k in ("p50", "p99", "p999", "most")}


def test_settings_that_cannot_work_are_told(host):
    rescd = host({"resources": {"payments": {
        "breaker": {"failure_rate": 0.5, "min_calls": 500, "slow_rate": 0.5, "slow_call": "50ms", "cooldown": "100ms", "window": "10s"},
        "bulkhead": {"limit": 2, "max_wait": "5s", "mode": "shadow"}, "throttle": {"k": 1},
        "retry": {"attempts": 4, "backoff": "fixed", "base": "100ms", "jitter": "none", "budget": {"capacity": 2}},
        "timeout": {"attempt": "60ms", "total": "400ms"}}}})
    worker, _ = rescd.crew(2)
    measured(worker, "payments", (100, 80, "ok"))
    told = {s["id"]: s for s in rescd.ask("suggest", "payments", *NOW)["settings"]}
    assert set(told) == {"timeout.short", "retry.total", "budget.capacity", "breaker.quiet", "breaker.always_slow", "bulkhead.idle",
                         "bulkhead.wait", "throttle.k"}
    assert {tuple(sorted(s)) for s in told.values()} == {("id", "key", "shadow", "text")}
    assert told["bulkhead.idle"]["shadow"] and not told["timeout.short"]["shadow"]
    assert told["retry.total"]["key"] == "timeout.total"
    assert "4 attempts of 60ms and the waits between them take up to 540ms, and timeout.total is 400ms" in told["retry.total"]["text"]
    text = rescd.ctl("suggest", "payments", *NOW).stdout
    assert "in shadow mode: the limit is 2, and there are 2 live workers" in text
    assert "min_calls is 500: no rate can open it at this load" in text


def test_a_segment_that_is_replaced_meanwhile_is_watched_anew(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.hold("payments", 2)
    with watching(rescd, "payments", "--watch", "1s", "--json") as rest:
        assert rescd.load({"resources": {**CONFIG["resources"], "payments": {**PAYMENTS, "bulkhead": {"limit": 3000}}}})["replaced"]
        worker.call("fresh")
        answer = rest()
    assert answer["limit"]["present"] == 3000 and answer["load"]["samples"] == 50


@pytest.mark.parametrize("args, code, text", [
    ((), 2, "which resource? resctl list shows them"),
    (("payments", "own"), 2, "'own': one resource at a time"),
    (("nope",), 1, 'has no resource "nope"'),
    (("payments", "--watch", "2h"), 2, "--watch 2h: at most 1h; 0 watches nothing"),
    (("payments", "--watch", "3"), 2, "--watch 3: not a duration"),
    (("payments", "--only-watched", "--watch", "0"), 2, "--only-watched needs calls that are watched"),
])
def test_mistakes_are_told(busy, args, code, text):
    assert text in busy.ctl("suggest", *args, code=code).stderr
