# SPDX-License-Identifier: MIT
"""resctl doctor against the real programs: clean is clean, under load and after whatever rescd repairs by itself; and with rescd dead or
stopped it finds what is left, says it, and repairs it. Which damages it finds is tested one by one in tests/unit/test_doctor.c.

A finding has stood for a second where no rescd is there, and for four where there is one: tests that wait do several things at once.
"""
import json
import os
import re
import signal
import subprocess

import pytest
from harness import RESCTL, may, until

FULL = {"breaker": {"consecutive": 3, "failure_rate": 0.5, "min_calls": 20, "cooldown": "50ms", "probes": 2, "probe_timeout": "1h"},
        "retry": {"attempts": 3, "budget": {"capacity": 20, "ratio": 0.1, "per_second": 5, "ttl": "10s"}},
        "bulkhead": {"limit": 6, "max_wait": "1h", "max_waiting": 8, "low": 0.5}, "rate": {"per_second": 100000, "burst": 10000},
        "throttle": {"k": 2}, "timeout": {"attempt": "800ms"}, "once": {"ttl": "1m"}}
CONFIG = {"mode": "0640", "resources": {
    "payments": FULL,
    "ledger": {**FULL, "mode": "shadow", "bulkhead": {"limit": "200%"}},
    "search": {"breaker": {"failure_rate": 0.5, "window": 16, "min_calls": 4, "cooldown": "50ms"}},
    "shard-*": {"breaker": {"consecutive": 5}}}}
LARGER = {**CONFIG, "workers": 4096}  # a larger table: a successor
needs_setpriv = pytest.mark.skipif(not may("setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups", "true"),
                                   reason="setpriv is not permitted here")
needs_points = pytest.mark.skipif(os.environ.get("RESC_VARIANT") == "release", reason="needs failpoints")


def findings(rescd, *args, code=1):
    """{(id, resource, place): finding}"""
    document = rescd.ask("doctor", *args, code=code)
    assert document["instance"] == rescd.instance and document["checks"] > 40
    assert document["clean"] == (code == 0)
    return {(f["id"], f["resource"], f["place"]): f for f in document["findings"]}


@pytest.mark.smoke
def test_a_busy_host_is_clean_whatever_rescd_repairs(host):
    """Load on every guard, breakers that open and close, workers that are killed, reloads and a larger table: no finding, ever."""
    rescd = host(CONFIG)
    crew = rescd.crew(3)
    for name, worker in zip(["payments", "ledger", "search"], crew):
        worker.busy(name, 0.3)
    clean = [rescd.ctl("doctor").stdout]
    for turn in range(3):
        rescd.worker().call("shard-%d" % turn)
        victim = rescd.worker()
        victim.busy("payments", 0.5)
        victim.kill()
        clean.append(rescd.ctl("doctor").stdout)
    assert rescd.load(LARGER)["replaced"]
    clean.append(rescd.ctl("doctor").stdout)
    for worker in crew:
        worker.idle()
        worker.call("payments")  # in the successor
    clean.append(rescd.ctl("doctor").stdout)
    for text in clean:
        assert text.startswith("clean: ") and text.count("\n") == 1, text
    assert " over 6 resources, 3 workers" in clean[-1]
    assert findings(rescd, code=0) == {}


def arrange(rescd, victim):
    """A permit, the probe of a trial, a key in work and a place in the queue, all of one worker."""
    victim.fail("search", 4)
    rescd.advance("50ms")
    assert victim.enter("search")["probe"]
    victim.once_begin("payments", "order-1")
    victim.hold("payments", 6)
    victim.send_enter("payments")
    until(lambda: rescd.show("payments")["permits"]["waiting"] == 1, what="a call that waits")


def test_what_the_dead_hold_while_rescd_is_dead_is_found_and_repaired(host):
    rescd = host(CONFIG)
    watcher, victim = rescd.crew(2)
    arrange(rescd, victim)
    rescd.kill()
    victim.kill()
    document = findings(rescd)
    dead, slot = document[("daemon.absent", None, "rescd")], document[("workers.dead", None, "slot 1")]
    assert len(document) == 2 and dead["repair"] is None and "start it" in dead["advice"]
    assert re.fullmatch(r"worker \d+ \(pid %d, worker\) is dead and holds 7 permits and 1 probe" % victim.pid, slot["text"]), slot
    assert slot["repair"] and slot["advice"] is None and not slot["repaired"]
    assert watcher.state("payments")["in_flight"] == 6, "looking moves nothing"

    text = rescd.ctl("doctor", "--fix", code=1).stdout
    assert "the instance\n" in text and "is dead and holds 7 permits" in text and "; repaired\n" in text
    assert "1 finding, of which resctl doctor --fix can repair 0; 1 repaired: " in text
    state = watcher.state("payments")
    assert (state["in_flight"], state["waiting"]) == (0, 0) and watcher.enter("search")["probe"]
    assert watcher.once_begin("payments", "order-1")["answer"] == "once_unknown"
    rescd.start()
    assert rescd.ctl("doctor").stdout.startswith("clean: ")


def test_the_screen_says_what_is_wrong_and_what_would_be_done(host):
    """On eighty columns too; a name in the segment is other people's text."""
    rescd = host(CONFIG)
    rescd.kill()
    rescd.worker().hold("payments", 2)
    rescd.workers[0].kill()
    done = subprocess.run(["script", "-qec", "stty cols 80; %s -i %s doctor" % (RESCTL, rescd.instance), "/dev/null"], check=False,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60, encoding="utf-8",
                          env={**os.environ, "TERM": "dumb"})
    lines = done.stdout.replace("\r", "").split("\n")
    assert lines[0] == "the instance" and all(len(line) <= 80 for line in lines[:-2]), lines
    text = " ".join(done.stdout.split())
    assert "rescd is not running; its last heartbeat was" in text and "start it; workers go on without it" in text
    assert re.search(r"slot 0 worker \d+ \(pid", text) and "would take back what it holds: resctl doctor --fix" in text


def test_rescd_that_is_stopped_is_no_excuse(host):
    """It holds its lock, so it is waited for; then what it has not repaired is a finding."""
    rescd = host(CONFIG)
    victim = rescd.worker()
    victim.hold("payments", 2)
    rescd.process.send_signal(signal.SIGSTOP)
    victim.kill()
    rescd.advance("6s")
    assert set(findings(rescd)) == {("daemon.silent", None, "rescd"), ("workers.dead", None, "slot 0")}
    rescd.process.send_signal(signal.SIGCONT)
    until(lambda: rescd.ctl("doctor", code=None).returncode == 0, what="rescd has reaped it")


@pytest.mark.smoke
def test_exit_3_where_there_is_nothing_to_look_at(host):
    rescd = host(CONFIG, start=False)
    for args in (["doctor"], ["doctor", "--fix"], ["doctor", "--json"]):
        done = rescd.ctl(*args, code=3)
        assert "rescd has not been started" in done.stderr and done.stdout == ""
    rescd.start()
    with open(rescd.segment, "r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    assert "the header of %s is damaged" % rescd.segment in rescd.ctl("doctor", code=3).stderr
    assert rescd.ctl("doctor", "--no-such-option", code=2).stdout == ""


@needs_setpriv
def test_who_may_only_read_may_ask_and_not_repair(host):
    rescd = host({**CONFIG, "group": "nogroup"})
    reader = ["setpriv", "--reuid", "65533", "--regid", "65534", "--clear-groups", RESCTL, "--instance", rescd.instance, "doctor"]
    done = subprocess.run([*reader, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == 0 and json.loads(done.stdout)["findings"] == [], done
    done = subprocess.run([*reader, "--fix"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False, timeout=60, encoding="utf-8")
    assert done.returncode == 3 and "Permission denied" in done.stderr, done


@needs_points
@pytest.mark.parametrize("point", ["succession.linked", "succession.superseded"])
def test_a_replacement_that_was_cut_off_is_told_and_ended_by_the_next_rescd(host, point):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.hold("payments", 2)
    rescd.restart({"RESC_FAILPOINT": "%s=kill" % point})
    rescd.write_config(LARGER)
    rescd.ctl("reload", code=None)
    rescd.died()
    found = findings(rescd)
    ids = {f[0] for f in found}
    begun = {"segment.links", "segment.leftover"} if point == "succession.linked" else {"segment.name"}
    assert begun <= ids <= begun | {"daemon.absent"}, found
    rescd.start()
    assert until(lambda: rescd.ctl("doctor", code=None).returncode == 0, what="clean again")
