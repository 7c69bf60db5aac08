# SPDX-License-Identifier: MIT
"""L01 to L19: settings that people run in production, translated (tests/config/valid), each loaded and seen to do what it was made for.

Each trips where it should and not one call earlier, waits as long as it says, and gives way as its origin would.
"""
import glob
import os

import pytest
from harness import TOP, agreed, until, until_asleep

FILES = os.path.join(TOP, "tests", "config", "valid", "L%s.json")


@pytest.fixture
def setting(host):
    """setting("01") is a host with that file, and a worker of it."""
    def load(number):
        with open(FILES % number, encoding="utf-8") as file:
            rescd = host(file.read())
        rescd.ctl("check", FILES % number)
        return rescd, rescd.worker()

    return load


def state(rescd, worker, name, expected, why=None):
    seen = agreed(rescd, worker, name)
    assert seen["state"] == expected and (why is None or seen["why"] == why), seen
    return seen


def trips(rescd, worker, name, before, last, why, cooldown_ms):
    """Closed after the calls before, open after the last one, and due after the cooldown, not a millisecond earlier."""
    if before:
        worker.calls(name, *before)
    state(rescd, worker, name, "closed")
    worker.call(name, last)
    assert state(rescd, worker, name, "open", why)["due_left_ms"] == cooldown_ms
    worker.advance(cooldown_ms - 1)
    assert worker.enter(name)["answer"] == "open"
    worker.advance(1)


def trial(rescd, worker, name, outcomes, expected):
    """All its probes are out together; one more is refused. Then they end."""
    tickets = worker.hold(name, len(outcomes))
    assert worker.enter(name)["answer"] == "half_open"
    for ticket, outcome in zip(tickets, outcomes):
        worker.leave(ticket, outcome)
    state(rescd, worker, name, expected)


def slow_calls(worker, name, count, ms):
    tickets = worker.hold(name, count)
    worker.advance(ms)
    for ticket in tickets:
        worker.leave(ticket)


def test_every_setting_has_its_run():
    numbers = {os.path.basename(path)[1:3] for path in glob.glob(FILES % "*")}
    assert numbers == {"%02d" % n for n in range(1, 20)} and all("_L%s_" % n in " ".join(globals()) for n in numbers)


def test_L01_resilience4j_with_slow_calls(setting):
    rescd, worker = setting("01")
    worker.calls("l01", "ignored*100")  # answers of class 4xx
    trips(rescd, worker, "l01", ["ok*3", "fail*6"], "fail", "failure_rate", 120000)
    trial(rescd, worker, "l01", ["fail", "fail", "fail", "ok", "fail"], "open")  # 80 %
    worker.advance(120000)
    trial(rescd, worker, "l01", ["fail", "fail", "fail", "ok", "ok"], "closed")  # 60 %
    worker.calls("l01", "ok*3")
    slow_calls(worker, "l01", 6, 10001)
    slow_calls(worker, "l01", 1, 10000)
    state(rescd, worker, "l01", "closed")
    slow_calls(worker, "l01", 4, 10001)  # 10 of 14
    state(rescd, worker, "l01", "open", "slow_rate")


def test_L02_resilience4j_by_time_and_by_the_last_hundred_calls(setting):
    rescd, worker = setting("02")
    worker.calls("l02a", "fail*9")
    worker.advance(1000)  # they are out of the window
    trips(rescd, worker, "l02a", ["ok*9", "fail*2"], "fail", "failure_rate", 1000)
    trial(rescd, worker, "l02a", ["ok"] * 7 + ["fail"] * 3, "open")
    worker.advance(1000)
    trial(rescd, worker, "l02a", ["ok"] * 8 + ["fail"] * 2, "closed")
    worker.calls("l02b", "ok", "fail*50")
    worker.advance(86400000)  # by number: time is nothing to it
    trips(rescd, worker, "l02b", ["fail*49"], "fail", "failure_rate", 10000)
    trial(rescd, worker, "l02b", ["fail"] * 9 + ["ok"], "closed")


def test_L03_a_minimum_above_the_window_is_said_and_the_window_is_used(setting):
    rescd, worker = setting("03")
    assert "never holds min_calls" in rescd.ctl("check", FILES % "03").stdout and "never holds min_calls" in rescd.log()
    assert rescd.show("l03")["policy"]["breaker"]["min_calls"] == 5
    trips(rescd, worker, "l03", ["ok*2", "fail*2"], "fail", "failure_rate", 30000)


def test_L04_resilience4j_with_everything(setting):
    rescd, worker = setting("04")
    other, third = rescd.crew(2)
    assert [worker.retry("l04", attempts=n)["wait_ns"] for n in (0, 1)] == [10 * 10 ** 9] * 2
    assert worker.retry("l04", attempts=2)["answer"] == "attempts"
    held = worker.hold("l04", 2)
    other.send_enter("l04")
    until(lambda: worker.state("l04")["waiting"] == 1, what="one that waits")
    until_asleep(other)
    worker.advance(999)
    worker.leave(held[0])
    ticket = other.receive()
    assert (ticket["answer"], ticket["timeout_ms"]) == ("ok", 1000)
    other.send_enter("l04")
    until(lambda: worker.state("l04")["waiting"] == 1, what="one that waits")
    until_asleep(other)
    worker.advance(1000)
    assert other.receive()["answer"] == "full"
    other.leave(ticket)
    worker.leave(held[1])
    worker.advance(10000)
    assert worker.call("l04", cost=5)["answer"] == "ok"
    other.send_enter("l04", cost=5)  # waits a second
    until(lambda: worker.enter("l04", deadline_ms=1)["answer"] == "rate" and third.enter("l04", deadline_ms=1)["retry_after_ms"] == 1200,
          what="one that has taken the tokens of the next second")
    third.send_enter("l04", cost=5)  # waits two
    until(lambda: worker.enter("l04", deadline_ms=1)["retry_after_ms"] == 2200, what="one that has taken those of the second after that")
    assert worker.enter("l04")["answer"] == "rate"  # nobody waits longer than two seconds
    worker.advance(2000)
    assert (other.receive()["answer"], third.receive()["answer"]) == ("ok", "ok")
    assert agreed(rescd, worker, "l04")["counters"]["waited"] == 3
    rescd.ctl("reset", "l04")
    for speaker in (other, third):  # what they hold is of before
        speaker.end()
    until(lambda: worker.state("l04")["in_flight"] == 0, what="nobody inside")
    trips(rescd, worker, "l04", ["ok", "fail*3"], "fail", "failure_rate", 20000)


def test_L05_Polly_one_percent_of_five_minutes(setting):
    rescd, worker = setting("05")
    trips(rescd, worker, "l05", ["ok*99"], "fail", "failure_rate", rescd.show("l05")["policy"]["breaker"]["cooldown_ms"])
    rescd.ctl("reset", "l05")
    worker.calls("l05", "ok*100", "fail")
    state(rescd, worker, "l05", "closed")
    rescd.ctl("reset", "l05")
    trips(rescd, worker, "l05", ["fail", "ok*8"], "ok", "failure_rate", rescd.show("l05")["policy"]["breaker"]["cooldown_ms"])


def test_L06_Polly_and_a_limiter_with_a_queue(setting):
    rescd, worker = setting("06")
    trips(rescd, worker, "l06a", ["fail*9"], "fail", "failure_rate", 30000)
    crew = rescd.crew(5)
    assert worker.call("l06b", cost=10)["answer"] == "ok"
    for n, waiter in enumerate(crew):  # 50 in the queue: half a second
        waiter.send_enter("l06b", cost=10)
        until(lambda: worker.enter("l06b", cost=10, deadline_ms=1)["retry_after_ms"] == 100 * (n + 2), what="%d in the queue" % (10 * n + 10))
    assert worker.enter("l06b", cost=10)["answer"] == "rate"
    worker.advance(500)
    assert [waiter.receive()["answer"] for waiter in crew] == ["ok"] * 5
    worker.advance(10000)
    trips(rescd, worker, "l06b", ["ok*2", "fail*2"], "fail", "failure_rate", 15000)


def test_L07_cockatiel_needs_thirty_calls(setting):
    rescd, worker = setting("07")
    worker.call("l07", "fail")
    worker.advance(30000)
    worker.calls("l07", "ok*100")
    state(rescd, worker, "l07", "closed")
    rescd.ctl("reset", "l07")
    trips(rescd, worker, "l07", ["fail", "ok*28"], "ok", "failure_rate", 10000)


def test_L08_Envoy_with_pending_requests_and_a_retry_budget(setting):
    rescd, worker = setting("08")
    assert worker.timeouts("l08")["total_ms"] == 15000
    worker.hold("l08", 10, retry=True)  # the floor
    assert worker.enter("l08", retry=True)["answer"] == "retries"
    worker.hold("l08", 61)
    worker.hold("l08", 3, retry=True)  # a quarter of them
    seen = agreed(rescd, worker, "l08")
    assert (seen["permits"]["in_use"], seen["retry"]["in_flight"]) == (74, 13)
    worker.hold("l08", 1, retry=True)
    waiters = rescd.crew(35)
    for waiter in waiters:
        waiter.send_enter("l08")
    until(lambda: worker.state("l08")["waiting"] == 35, what="35 pending")
    until_asleep(*waiters)
    assert worker.enter("l08")["answer"] == "queue_full"
    agreed(rescd, worker, "l08")
    worker.advance(15000)
    assert {waiter.receive()["answer"] for waiter in waiters} == {"full"}


def test_L08_a_quarter_of_the_calls_in_flight_may_be_retries(setting):
    rescd, worker = setting("08")
    worker.hold("l08", 56)
    worker.hold("l08", 18, retry=True)  # the last one is the 74th call, and 74 / 4 = 18.5
    assert worker.enter("l08", retry=True)["answer"] == "retries"
    assert worker.retry("l08")["answer"] == "retry_in_flight"
    assert worker.enter("l08")["answer"] == "ok"
    assert agreed(rescd, worker, "l08")["retry"]["in_flight"] == 18


@pytest.mark.parametrize("number,count", [("09", 200), ("19", 150)])
def test_L09_L19_retries_without_a_limit_and_up_to_the_calls_in_flight(setting, number, count):
    """Envoy's 0xffffffff does not overflow; max(100, calls in flight) never stops a retry, which is one of these itself."""
    rescd, worker = setting(number)
    name = "l" + number
    worker.hold(name, count, retry=True)
    assert worker.retry(name)["answer"] == "ok"
    seen = agreed(rescd, worker, name)
    assert (seen["retry"]["in_flight"], seen["permits"]["in_use"]) == (count, count)


def test_L10_Envoy_a_hundred_and_a_queue(setting):
    rescd, worker = setting("10")
    tickets = worker.hold("l10", 100)
    waiters = rescd.crew(3)
    for waiter in waiters:
        waiter.send_enter("l10")
    until(lambda: worker.state("l10")["waiting"] == 3, what="three pending")
    assert agreed(rescd, worker, "l10")["policy"]["bulkhead"]["max_waiting"] == 128
    for ticket in tickets[:3]:
        worker.leave(ticket)
    assert [waiter.receive()["answer"] for waiter in waiters] == ["ok"] * 3
    assert agreed(rescd, worker, "l10")["permits"]["in_use"] == 100


def test_L11_Istio_is_away_longer_each_time(setting):
    rescd, worker = setting("11")
    waiter, third = rescd.crew(2)
    held = worker.enter("l11a")
    waiter.send_enter("l11a")
    until(lambda: worker.state("l11a")["waiting"] == 1, what="one pending")
    assert third.enter("l11a")["answer"] == "queue_full"
    worker.leave(held)
    waiter.leave(waiter.receive())
    for name, failures, minutes in (("l11a", 1, [3, 5, 5]), ("l11b", 2, [10, 20, 40, 60, 60])):
        trips(rescd, worker, name, ["fail"] * (failures - 1), "fail", "consecutive", minutes[0] * 60000)
        for longer in minutes[1:]:
            worker.call(name, "fail")
            assert state(rescd, worker, name, "open", "probe_failed")["due_left_ms"] == longer * 60000
            worker.advance(longer * 60000)
        worker.call(name)
        state(rescd, worker, name, "closed")
        trips(rescd, worker, name, ["fail"] * (failures - 1), "fail", "consecutive", minutes[0] * 60000)  # from the beginning again


def test_L12_gRPC_stops_at_half(setting):
    rescd, worker = setting("12")
    for name, capacity in (("l12a", 10), ("l12b", 100), ("l12c", 1000)):
        assert worker.granted(name, capacity // 2) == capacity // 2 - 1
        assert agreed(rescd, worker, name)["retry"]["tokens"] == capacity // 2
        worker.calls(name, "ok*10")
        assert worker.granted(name, 1) == 0  # it pays for itself first, and half is not above half
        worker.calls(name, "ok*11")
        assert worker.granted(name, 2) == 1


@pytest.mark.parametrize("name,ratio,floor,ttl_ms", [("l13a", 0.2, 10, 10000), ("l13b", 0.2, 10, 120000), ("l13c", 0.01, 1, 10000)])
def test_L13_Linkerd_forgets_what_was_earned(setting, name, ratio, floor, ttl_ms):
    rescd, worker = setting("13")
    worker.advance(2 * ttl_ms)  # what it started with is gone: what is left is the floor of the last ttl
    steady = floor * ttl_ms / 1000
    kept = agreed(rescd, worker, name)["retry"]["tokens"]
    assert 0.85 * steady <= kept <= 1.1 * steady
    worker.calls(name, "fail*500")  # a request earns, however it ends
    earned = agreed(rescd, worker, name)["retry"]["tokens"] - kept
    assert earned == pytest.approx(500 * ratio, abs=1e-3)
    worker.advance(ttl_ms * 8 // 10)
    assert agreed(rescd, worker, name)["retry"]["tokens"] >= 500 * ratio
    worker.advance(ttl_ms * 4 // 10)
    left = int(agreed(rescd, worker, name)["retry"]["tokens"])
    assert 0.85 * steady <= left <= 1.1 * steady
    assert worker.granted(name, left + 1) == left


def test_L14_Semian(setting):
    rescd, worker = setting("14")
    assert worker.enter("l14a")["timeout_ms"] == -1
    rescd.ctl("reset", "l14a")
    trips(rescd, worker, "l14a", ["fail*2"], "fail", "consecutive", 10000)
    probe = worker.enter("l14a")
    assert (probe["probe"], probe["timeout_ms"]) == (True, 5000)
    assert worker.enter("l14a")["answer"] == "full"  # two tickets
    worker.leave(probe)
    state(rescd, worker, "l14a", "closed")
    crew = rescd.crew(4)
    until(lambda: worker.state("l14b")["limit"] == 3, what="half of five workers, rounded up")
    assert crew[0].hold("l14b", 3) and worker.enter("l14b")["answer"] == "full"
    trips(rescd, worker, "l14c", ["fail*2"], "fail", "consecutive", 30000)
    for expected in ("half_open", "closed"):
        probe = worker.enter("l14c")
        assert (probe["probe"], probe["timeout_ms"]) == (True, 50) and worker.enter("l14c")["answer"] == "half_open"
        worker.leave(probe)
        state(rescd, worker, "l14c", expected)
    assert worker.enter("l14c")["timeout_ms"] == 250


def test_L15_Sentinel_slow_calls(setting):
    rescd, worker = setting("15")
    slow_calls(worker, "l15a", 4, 500)
    slow_calls(worker, "l15a", 5, 501)
    state(rescd, worker, "l15a", "closed")
    slow_calls(worker, "l15a", 1, 501)
    assert state(rescd, worker, "l15a", "open", "slow_rate")["due_left_ms"] == 10000
    slow_calls(worker, "l15c", 9, 501)
    worker.advance(1000)  # its window is a second
    slow_calls(worker, "l15c", 9, 501)
    state(rescd, worker, "l15c", "closed")
    slow_calls(worker, "l15c", 1, 499)  # a quick one; but now there are ten, and nine were slow
    assert state(rescd, worker, "l15c", "open", "slow_rate")["due_left_ms"] == 100000
    slow_calls(worker, "l15b", 1, 500)
    state(rescd, worker, "l15b", "closed")
    worker.advance(10000)
    slow_calls(worker, "l15b", 1, 501)
    state(rescd, worker, "l15b", "open", "slow_rate")


def test_L16_Hystrix(setting):
    rescd, worker = setting("16")
    ticket = worker.enter("l16a")
    assert ticket["timeout_ms"] == 3010 and len(worker.hold("l16a", 9)) == 9 and worker.enter("l16a")["answer"] == "full"
    for number in range(ticket["ticket"], ticket["ticket"] + 10):
        worker.leave(number, "cancelled")
    trips(rescd, worker, "l16a", ["ok*10", "fail*9"], "fail", "failure_rate", 5000)
    worker.call("l16a", "fail")
    state(rescd, worker, "l16a", "open", "probe_failed")
    trips(rescd, worker, "l16b", ["ok*24"], "fail", "failure_rate", 5000)
    rescd.ctl("reset", "l16b")
    trips(rescd, worker, "l16b", ["ok*25", "fail"], "fail", "failure_rate", 5000)
    trips(rescd, worker, "l16c", ["ok*2", "fail*2"], "fail", "failure_rate", 15000)
    worker.call("l16c")
    assert len(worker.hold("l16c", 100)) == 100 and worker.enter("l16c")["answer"] == "full"
    agreed(rescd, worker, "l16c")


def test_L17_APISIX_breaks_longer_each_time_and_limits_requests(setting):
    rescd, worker = setting("17")
    trips(rescd, worker, "l17a", ["fail*2"], "fail", "consecutive", 2000)
    for seconds in (4, 8, 16, 32, 64, 128, 256, 300, 300):
        worker.call("l17a", "fail")
        assert state(rescd, worker, "l17a", "open")["due_left_ms"] == seconds * 1000
        worker.advance(seconds * 1000)
    worker.call("l17a")
    state(rescd, worker, "l17a", "half_open")
    worker.call("l17a")
    state(rescd, worker, "l17a", "closed")
    trips(rescd, worker, "l17b", ["ok*5", "fail*4"], "fail", "failure_rate", 60000)
    trial(rescd, worker, "l17b", ["ok"] * 3, "closed")
    worker.advance(1000)
    assert worker.calls("l17c", "ok*30") == [["ok", 25], ["rate", 5]]
    worker.advance(20)
    assert worker.calls("l17c", "ok*2") == [["ok", 1], ["rate", 1]]
    other = rescd.worker()
    assert worker.call("l17d")["answer"] == "ok"
    other.send_enter("l17d")
    until(lambda: worker.enter("l17d", deadline_ms=1)["retry_after_ms"] == 40, what="one in the queue")
    worker.advance(20)
    assert other.receive()["answer"] == "ok"
    agreed(rescd, worker, "l17d")


def test_L18_gobreaker_a_hundred_in_a_row(setting):
    rescd, worker = setting("18")
    trips(rescd, worker, "l18", ["fail*99", "ok", "fail*99"], "fail", "consecutive", 100)
    trial(rescd, worker, "l18", ["ok"], "closed")
