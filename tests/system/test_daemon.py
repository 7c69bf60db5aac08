# SPDX-License-Identifier: MIT
"""rescd comes and goes, by order or by SIGKILL: the segment stays as it is, and workers do not notice."""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

import harness
import keeper
import pytest
from harness import RESCD, SHM, Rescd, is_stopped, steady, until

BUSY = {"resources": {
    "payments": {"breaker": {"failure_rate": 0.9, "min_calls": 1000000}, "bulkhead": {"limit": 64},
                 "retry": {"budget": {"capacity": 20, "ratio": 0.1}}},
    "ledger": {"breaker": {"consecutive": 2, "cooldown": "10s"}, "bulkhead": {"limit": 8},
               "retry": {"budget": {"capacity": 20, "ratio": 0, "per_second": 0}}}}}


def arrange(rescd, worker):
    """ledger half-open with a probe out, two permits held, a token taken. The tickets."""
    kept = worker.hold("ledger", 2)
    for _ in range(3):
        worker.ask("retry", "ledger", "fail", 0)
    worker.fail("ledger", 2)
    rescd.advance("10s")
    kept.append(worker.enter("ledger")["ticket"])
    seen = rescd.show("ledger")
    assert (seen["state"], seen["probes"]["out"], seen["permits"]["in_use"], seen["retry"]["tokens"]) == ("half_open", 1, 3, 17)
    return kept


@pytest.mark.smoke
def test_it_tells_its_version(host):
    rescd = host({"resources": {}})
    for option in ("--version", "-V"):
        told = subprocess.run([RESCD, option], capture_output=True, timeout=60, check=False, encoding="utf-8")
        assert (told.returncode, told.stdout) == (0, "rescd %s\n" % rescd.ask("version")["version"]), told.stderr


@pytest.mark.smoke
def test_killed_and_restarted_under_load_it_changes_nothing_and_no_worker_notices(host):
    rescd = host(BUSY)
    crew = rescd.crew(4)
    for i, worker in enumerate(crew):
        worker.busy("payments", 0.2, i + 1)
    before = rescd.snapshot()
    for _ in range(5):
        rescd.kill()
        assert rescd.snapshot()["daemon"]["status"] == "stopped"
        rescd.start()
    after = rescd.snapshot()
    told = [worker.idle() for worker in crew]
    assert [t["errors"] + t["leave_errors"] + t["refused"] for t in told] == [0] * 4, told
    # Real time on a machine that also runs the tests: what this must not be is a wait for somebody.
    assert max(t["slowest_us"] for t in told) < 1_000_000
    assert after["segment"] == before["segment"]
    assert [w["worker"] for w in after["workers"]] == [w["worker"] for w in before["workers"]]
    counters = rescd.show("payments")["counters"]
    assert counters["enters"] == counters["admitted"] == sum(t["enters"] for t in told)
    assert counters["ended_fail"] == sum(t["fail"] for t in told)
    assert rescd.show("payments")["permits"]["in_use"] == 0


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restart_changes_no_state_window_permit_or_token(host, how):
    rescd = host(BUSY)
    worker, other = rescd.crew(2)
    kept = arrange(rescd, worker)
    other.loop("payments", 100, 0.3)
    before = [steady(r) for r in rescd.snapshot()["resources"]]
    getattr(rescd, how)()
    assert [steady(r) for r in rescd.snapshot()["resources"]] == before
    rescd.start()
    assert [steady(r) for r in rescd.snapshot()["resources"]] == before
    assert other.enter("ledger")["answer"] == "half_open"
    assert [worker.leave(t)["answer"] for t in kept] == ["stale", "stale", "ok"]
    assert rescd.show("ledger")["state"] == "closed"


@pytest.mark.smoke
def test_SIGTERM_leaves_the_segment_and_takes_the_socket_away(host):
    rescd = host(BUSY)
    worker = rescd.worker()
    worker.call("payments")
    generation = rescd.snapshot()["segment"]["generation"]
    rescd.process.send_signal(signal.SIGTERM)
    assert rescd.died() == 0
    assert os.path.exists(rescd.segment) and not os.path.exists(rescd.control_path)
    assert "stopped by SIGTERM" in rescd.log()
    assert worker.call("payments")["r"] == 0
    rescd.start()
    assert rescd.snapshot()["segment"]["generation"] == generation
    assert worker.status()["generation"] == generation
    assert [e["kind"] for e in rescd.events() if e["kind"].startswith("daemon")] == ["daemon_start", "daemon_stop", "daemon_start"]


@pytest.mark.smoke
def test_a_second_daemon_refuses_to_start(host):
    rescd = host(BUSY)
    said = subprocess.run([RESCD, "--config", rescd.config_path, "--instance", rescd.instance, "--control", rescd.control_path + "2"],
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=20, check=False, encoding="utf-8")
    assert said.returncode == 1
    assert "another rescd (pid %d) serves instance '%s'" % (rescd.process.pid, rescd.instance) in said.stderr
    assert rescd.process.poll() is None and rescd.reload()["ok"]
    assert os.path.exists(rescd.control_path)


def test_two_daemons_that_start_at_once_are_one(host):
    rescd = host(BUSY)
    for _ in range(10):
        rescd.kill()
        os.unlink(rescd.segment)
        processes = [subprocess.Popen([RESCD, "--config", rescd.config_path, "--instance", rescd.instance, "--control",
                                       "%s%d" % (rescd.control_path, i), "--metrics", ""], stderr=subprocess.DEVNULL) for i in range(2)]
        until(lambda: any(p.poll() is not None for p in processes), what="one of two gives up")
        until(lambda: rescd.ctl("list", code=None).returncode == 0, what="the other serves")
        assert [p.poll() for p in processes].count(1) == 1
        assert rescd.files() == [os.path.basename(rescd.segment)]
        for process in processes:
            process.kill()
            process.wait()
        rescd.start()


def test_notify_says_ready_reloading_and_stopping_and_feeds_the_watchdog(host):
    rescd = host(BUSY, start=False)
    rescd.start(env={"WATCHDOG_USEC": "100000"})
    until(lambda: any("WATCHDOG=1" in m for m in rescd.drain() + rescd.messages), what="the watchdog is fed")
    rescd.reload()
    rescd.stop()
    rescd.drain()
    said = [line for message in rescd.messages for line in message.split("\n") if line not in ("WATCHDOG=1",)]
    assert [line for line in said if not line.startswith("MONOTONIC_USEC=")] == ["READY=1", "RELOADING=1", "READY=1", "STOPPING=1"]
    stamp = int(next(line for line in said if line.startswith("MONOTONIC_USEC=")).split("=")[1])
    assert abs(stamp - time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000) < 60_000_000


def test_notify_works_with_an_abstract_socket(host):
    rescd = host(BUSY, start=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0" + rescd.instance)
        listener.settimeout(10)
        rescd.spawn(env={"NOTIFY_SOCKET": "@" + rescd.instance})
        assert listener.recv(4096) == b"READY=1"


def test_SIGHUP_loads_the_configuration_again(host):
    rescd = host({"resources": {"payments": {"bulkhead": {"limit": 4}}}})
    rescd.write_config({"resources": {"payments": {"bulkhead": {"limit": 5}}}})
    rescd.process.send_signal(signal.SIGHUP)
    until(lambda: rescd.show("payments")["permits"]["limit"] == 5, what="the new limit")
    assert rescd.process.poll() is None


@pytest.mark.skipif(os.environ.get("RESC_VARIANT") == "release", reason="needs failpoints")
def test_SIGHUP_that_comes_before_it_listens_is_not_its_end(host):
    rescd = host({"resources": {"payments": {"bulkhead": {"limit": 4}}}})
    rescd.kill()
    rescd.spawn(env={"RESC_FAILPOINT": "start.loading=stop"})
    until(lambda: is_stopped(rescd.process), what="rescd is stopped before it has loaded anything")
    rescd.process.send_signal(signal.SIGHUP)
    rescd.process.send_signal(signal.SIGCONT)
    until(lambda: any("READY=1" in m for m in rescd.drain()) or rescd.process.poll() is not None, what="rescd is ready")
    until(lambda: rescd.process.poll() is not None or rescd.log().count("loaded ") == 1, what="loaded again")
    assert rescd.process.poll() is None


def test_a_stopped_daemon_holds_nobody_up(host):
    rescd = host(BUSY)
    worker = rescd.worker()
    rescd.process.send_signal(signal.SIGSTOP)
    told = worker.loop("payments", 20000, 0.1)
    assert told["errors"] == 0
    assert rescd.ctl("force", "ledger", "open", "--for", "2s", "--why", "it hangs").returncode == 0
    assert worker.enter("ledger")["answer"] == "forced_open"
    assert rescd.worker().hello["mode"] == "shared"


def test_a_daemon_that_cannot_start_leaves_nothing(host):
    rescd = host({"resources": {"payments": {"bulkhead": {"limit": "many"}}}}, start=False)
    said = rescd.fails_to_start()
    assert "resc.json:" in said and "payments" in said and "limit" in said
    assert rescd.files() == [] and not os.path.exists(rescd.control_path)
    rescd.write_config(BUSY)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = rescd.fails_to_start(args=["--metrics", "127.0.0.1:%d" % taken.getsockname()[1]])
    assert "metrics" in said.lower()
    assert rescd.files() == [] and not os.path.exists(rescd.control_path)
    rescd.start()


def open_descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def test_reloads_and_workers_leave_no_descriptors_in_the_daemon(host):
    rescd = host(BUSY)
    before = open_descriptors(rescd.process.pid)
    for i in range(20):
        rescd.worker().kill() if i % 2 else rescd.worker().end()
        assert rescd.reload()["ok"]
        rescd.scrape()
    until(lambda: rescd.snapshot()["workers"] == [], what="no worker")
    until(lambda: open_descriptors(rescd.process.pid) <= before, patience=20, what="as many descriptors as before")


def test_a_harness_that_is_left_takes_everything_away():
    rescd = Rescd(BUSY)
    worker = rescd.worker()
    rescd.clean()
    assert rescd.files() == [] and not os.path.exists(rescd.dir)
    assert worker.process.poll() is not None


LEFT = """
import signal, sys
import harness, keeper
mark = keeper.watch(*harness.left_by_us())
rescd = harness.Rescd(%r)
busy, stopped, parent = rescd.crew(3)
busy.busy("payments")
stopped.signal(signal.SIGSTOP)
parent.fork("bare").fork("signal")
if harness.may(*%r, "true"):
    rescd.worker(before=%r)
print(mark, rescd.instance, len(list(keeper.marked(mark))), flush=True)
sys.stdin.read()
"""
LEFT_ALONE = ["unshare", "--pid", "--fork"]  # its worker lives on when unshare is gone


def test_tests_that_are_killed_leave_no_process_and_no_file_behind():
    """No fixture runs then. The processes are busy, stopped, children of children, in namespaces, and one is rescd."""
    process = subprocess.Popen([sys.executable, "-c", LEFT % (BUSY, LEFT_ALONE, LEFT_ALONE)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.dirname, (harness.__file__, keeper.__file__)))}, encoding="utf-8")
    mark, instance, count = process.stdout.readline().split()
    assert int(count) >= 6 and ".%d-" % process.pid in mark
    process.kill()
    process.wait()
    until(lambda: not list(keeper.marked(mark)), what="none of them lives")
    ours = instance.rstrip("0123456789")
    until(lambda: not [n for d in (SHM, tempfile.gettempdir()) for n in os.listdir(d) if ours in n], what="nothing of theirs is left")
    process.stdin.close()
    process.stdout.close()
