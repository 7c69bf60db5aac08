# SPDX-License-Identifier: MIT
"""Group E of the field cases: clocks that are set, clocks that stop, clocks that differ, and durations of nothing."""
import ctypes
import json
import mmap
import subprocess
import time

import pytest
from harness import RESCTL, VARIANT, agreed, may, moved, until

CONFIG = {"resources": {"payments": {
    "breaker": {"consecutive": 5, "failure_rate": 1, "min_calls": 4, "window": "10s", "cooldown": "300ms" if VARIANT == "release" else "10s"},
    "rate": {"per_second": 0.001, "burst": 100}, "retry": {"budget": {"capacity": 10, "ratio": 0}}, "bulkhead": {"limit": 9},
    "once": {"ttl": "1h"}}}}
BEHIND = ["unshare", "--time", "--boottime", "36000", "--fork", "--kill-child"]  # as after ten hours of suspend
AHEAD = ["unshare", "--time", "--monotonic", "86400", "--boottime", "86400", "--fork", "--kill-child"]
own_clock = pytest.mark.skipif(not may(*BEHIND, "true"), reason="time namespaces are not permitted here")
YEAR_2100 = 4102444800

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long long *shift;

__attribute__((constructor)) static void map_shift(void)
{
	int fd = open(getenv("SHIFT_FILE"), O_RDONLY | O_CLOEXEC);
	shift = mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	static int (*real)(clockid_t, struct timespec *);
	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	int r = real(id, t);
	if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && shift != NULL)
		t->tv_sec += *shift;
	return r;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
	struct timespec t;
	(void)zone;
	clock_gettime(CLOCK_REALTIME, &t);
	tv->tv_sec = t.tv_sec;
	tv->tv_usec = t.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	if (out != NULL)
		*out = t.tv_sec;
	return t.tv_sec;
}
"""


@pytest.fixture
def wall(tmp_path):
    """A wall clock that the test sets for all programs that get its environment: wall(seconds)."""
    source, shim, path = tmp_path / "shim.c", tmp_path / "shim.so", tmp_path / "shift"
    source.write_text(SHIM)
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
    path.write_bytes(bytes(8))
    with open(path, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 8)
    shift = ctypes.c_longlong.from_buffer(shared)

    def set_to(seconds):
        shift.value = seconds

    set_to.env = {"LD_PRELOAD": str(shim), "SHIFT_FILE": str(path)}
    yield set_to
    del shift
    shared.close()


def told_wall_time(worker):
    """What the worker takes for the time of day, by the library's own eyes: from a date of HTTP."""
    told = worker.retry_after("Fri, 01 Jan 2100 00:00:00 GMT")
    assert told["r"] == 0
    return YEAR_2100 - told["ms"] / 1000


STEPS = [-3600, 86400, 50 * 365 * 86400]


@pytest.mark.parametrize("seconds", STEPS)
def test_E1_a_wall_clock_that_is_set_changes_nothing_but_printed_times(host, wall, seconds):
    rescd = host(CONFIG, env=wall.env)
    worker = rescd.worker(env=wall.env)
    worker.calls("payments", "fail*3")
    worker.batch(["retry payments fail 0"] * 4)
    begun = worker.once_begin("payments", "key")
    held = worker.enter("payments", deadline_ms=5000)
    before, here = agreed(rescd, worker, "payments"), told_wall_time(worker)
    wall(seconds)
    if here + seconds < YEAR_2100:
        assert told_wall_time(worker) == pytest.approx(here + seconds, abs=60)
    assert agreed(rescd, worker, "payments") == before
    other = rescd.worker(env=wall.env)  # one that comes after the step
    assert other.once_begin("payments", "key")["answer"] == "once_busy"
    ticket = other.enter("payments", deadline_ms=5000)
    assert ticket["timeout_ms"] == held["timeout_ms"] == 5000
    assert other.leave(ticket, "fail")["answer"] == "ok"  # the fourth of the same window
    seen = agreed(rescd, other, "payments")
    assert (seen["state"], seen["why"], seen["due_left_ms"]) == ("open", "failure_rate", 10000)
    wall(-seconds)
    worker.advance(9999)
    assert agreed(rescd, other, "payments")["probe_due"] is False
    assert other.enter("payments")["answer"] == "open"
    worker.advance(1)
    assert agreed(rescd, other, "payments")["probe_due"] is True
    assert other.call("payments")["answer"] == "ok"
    assert worker.once_done(begun, b"done")["answer"] == "ok"
    assert other.once_begin("payments", "key")["stored"] == b"done"
    assert agreed(rescd, other, "payments")["state"] == "closed"


@pytest.mark.smoke
@pytest.mark.parametrize("seconds", STEPS)
def test_E1_in_real_time_a_breaker_is_due_when_it_was_said(host, wall, seconds):
    rescd = host(CONFIG, env=wall.env)
    worker = rescd.worker(env=wall.env)
    began = time.monotonic()
    worker.fail("payments", 4)
    if VARIANT != "release":
        assert worker.enter("payments")["answer"] == "open"
    wall(seconds)
    if VARIANT != "release":
        worker.advance(10000)
    ticket = worker.until_admitted("payments", what="a probe")
    assert ticket["probe"] and (VARIANT != "release" or time.monotonic() - began >= 0.29)
    assert rescd.show("payments")["counters"]["opened"] == 1
    worker.leave(ticket)
    assert rescd.show("payments")["state"] == "closed"


@pytest.mark.smoke
@own_clock
def test_E2_after_ten_hours_of_suspend_all_use_the_clock_that_stood_still(host):
    """CLOCK_MONOTONIC everywhere: ages and due times do not count a suspend. Here CLOCK_BOOTTIME is ten hours ahead of it."""
    rescd = host(CONFIG, before=BEHIND)
    with open("/proc/%d/task/%d/children" % (rescd.process.pid, rescd.process.pid), encoding="ascii") as file:
        inside = ["nsenter", "--time=/proc/%s/ns/time" % file.read().split()[0]]
    first, second = (rescd.worker(before=inside) for _ in range(2))
    assert [w.hello["mode"] for w in (first, second)] == ["shared"] * 2
    first.fail("payments", 4)

    def resctl(*args):
        done = subprocess.run([*inside, RESCTL, "--instance", rescd.instance, *args, "--json"], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    snapshot, states = resctl("snapshot"), [w.state("payments") for w in (first, second)]
    seen = snapshot["resources"][0]
    longest = 300 if VARIANT == "release" else 10000
    assert seen["state"] == states[0]["state"] == states[1]["state"] == "open"
    assert all(0 <= due <= longest for due in (seen["due_left_ms"], states[0]["due_ms"], states[1]["due_ms"]))
    assert 0 <= seen["since_age_ms"] < 60000 and snapshot["now_ms"] < 3600000
    assert all(w["age_ms"] < 3600000 for w in snapshot["workers"] if "age_ms" in w)
    if VARIANT != "release":
        first.advance(10000)
    assert until(lambda: second.enter("payments")["r"] == 0, what="a probe, when it was due")
    assert resctl("show", "payments")[0]["state"] == "half_open"


@own_clock
def test_E4_a_worker_with_another_clock_is_refused_and_nobody_believes_it(host):
    rescd = host(CONFIG)
    near = rescd.worker()
    near.calls("payments", "fail*4")
    kept = near.retry("payments")
    before = agreed(rescd, near, "payments")
    far = rescd.worker(before=AHEAD)
    assert far.hello["mode"] == "private" and "time namespace" in far.hello["reason"]
    # It goes on alone, and says so; it can neither open a breaker for a day nor fill a bucket, nor take the living for dead.
    assert far.call("payments", "fail")["r"] == 0
    far.loop("payments", 1000, 0.5)
    assert agreed(rescd, near, "payments") == before and kept["answer"] == "ok"
    assert [w["pid"] for w in rescd.snapshot()["workers"]] == [near.pid]
    done = subprocess.run([*AHEAD, RESCTL, "--instance", rescd.instance, "force", "payments", "open", "--for", "1h", "--why", "x"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    assert done.returncode != 0 and "time namespace" in done.stderr
    assert moved(before, agreed(rescd, near, "payments")) == {}


# ---- E6: durations of nothing ----

MEANINGLESS = ["breaker.cooldown", "breaker.cooldown_max", "breaker.window", "breaker.slow_call", "breaker.probe_timeout", "retry.base",
               "retry.cap", "retry.budget.ttl", "timeout.attempt", "timeout.connect", "timeout.total", "timeout.probe", "throttle.window",
               "once.ttl"]
MEANT = ["breaker.retry_after_max", "bulkhead.max_wait", "rate.max_wait", "once.max_wait"]
NEEDED = {"breaker": {"slow_rate": 0.5, "slow_call": "1s"}, "bulkhead": {"limit": 1}, "rate": {"per_second": 1, "burst": 1},
          "retry": {}, "retry.budget": {"ratio": 0.1, "capacity": 10}, "timeout": {}, "throttle": {}, "once": {}}


def with_key(path, value):
    *blocks, key = path.split(".")
    block = {**NEEDED[".".join(blocks)], key: value}
    return {"resources": {"payments": {blocks[0]: block if len(blocks) == 1 else {blocks[1]: block}}}}


@pytest.mark.parametrize("zero", ["0s", "0ms", "0us", "0.0s", "0h"])
def test_E6_a_duration_of_nothing_is_refused_with_its_path_where_it_means_nothing(host, zero):
    rescd = host({"resources": {}}, start=False)
    for path in MEANINGLESS:
        rescd.write_config(with_key(path, zero))
        said = rescd.ctl("check", rescd.config_path, code=1).stdout
        assert "resources.payments.%s:" % path in said, (path, said)
    for path in MEANT:
        rescd.write_config(with_key(path, zero))
        rescd.ctl("check", rescd.config_path)


def test_E6_where_nothing_is_meant_it_is_nothing(host):
    rescd = host({"resources": {
        "pool": with_key("bulkhead.max_wait", "0s")["resources"]["payments"], "front": with_key("rate.max_wait", "0s")["resources"]["payments"],
        "once": with_key("once.max_wait", "0s")["resources"]["payments"],
        "mail": {"breaker": {"consecutive": 1, "cooldown": "10s", "retry_after_max": "0s"}}}})
    first, second = rescd.crew(2)
    for name, answer in (("pool", "full"), ("front", "rate")):  # no wait: the answer comes although time stands still
        first.enter(name)
        assert second.enter(name)["answer"] == answer
        assert agreed(rescd, first, name)["counters"]["waited"] == 0
    first.once_begin("once", "key")
    assert second.once_begin("once", "key")["answer"] == "once_busy"
    first.leave(first.enter("mail"), "fail", retry_after_ms=1)
    assert agreed(rescd, second, "mail")["due_left_ms"] == 10000  # the dependency's word is not asked


@pytest.mark.parametrize("deadline_ms,answer", [(0, "deadline"), (-5, "deadline"), (1, "ok")])
def test_E6_a_deadline_of_nothing_is_past(host, deadline_ms, answer):
    rescd = host(CONFIG)
    worker = rescd.worker()
    before = agreed(rescd, worker, "payments")
    told = worker.enter("payments", deadline_ms=deadline_ms)
    assert told["answer"] == answer
    after = moved(before, agreed(rescd, worker, "payments"))
    assert after == ({"enters": 1, "refused_deadline": 1} if answer == "deadline" else {"enters": 1, "admitted": 1})
