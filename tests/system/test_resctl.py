# SPDX-License-Identifier: MIT
"""resctl as people and scripts use it: every command, its JSON, its exit code, and output that cannot be written."""
import errno
import json
import os
import pty
import signal
import subprocess

import pytest
from harness import RESCTL, is_stopped, metric, until

CONFIG = {"resources": {"payments": {"breaker": {"consecutive": 5}, "bulkhead": {"limit": 4}},
                        "paypal": {"breaker": {}}, "stock": {"breaker": {}}}}
COMMANDS = ["list", "show", "events", "workers", "snapshot", "force", "release", "reset", "reload", "check", "doctor", "suggest", "version"]


def resctl(*args, **kw):
    return subprocess.run([RESCTL, *args], stdin=subprocess.DEVNULL, stdout=kw.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE,
                          timeout=60, check=False, encoding="utf-8", **kw)


@pytest.mark.smoke
def test_help_lists_every_command_and_each_teaches(host):
    top = resctl("--help")
    assert top.returncode == 0 and "Exit codes" in top.stdout
    for command in COMMANDS:
        assert "\n  %s " % command in top.stdout
        told = resctl(command, "--help")
        assert told.returncode == 0 and "--instance" in told.stdout, command
        if command not in ("version", "workers", "list"):
            assert "Examples:" in told.stdout, command


@pytest.mark.smoke
def test_every_command_answers_in_words_and_in_JSON(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.hold("payments", 2)
    assert "payments" in rescd.ctl("list").stdout and "2/4" in rescd.ctl("list").stdout
    assert rescd.ask("list")["instance"] == rescd.instance
    assert "consecutive 5" in rescd.ctl("show", "payments").stdout
    assert [r["name"] for r in rescd.ask("show", "payments", "stock")] == ["payments", "stock"]
    assert str(worker.pid) in rescd.ctl("workers").stdout
    roster = rescd.ask("workers")
    assert [(w["pid"], w["permits"], w["alive"], w["name"]) for w in roster] == [(worker.pid, 2, True, "worker")]
    assert rescd.snapshot()["resources"][0]["permits"]["by_worker"][0]["pid"] == worker.pid
    assert "rescd started" in rescd.ctl("events").stdout
    assert rescd.events()[-1]["kind"] == "daemon_start"
    assert rescd.ask("force", "payments", "open", "--for", "1m", "--why", "x")[0]["override"]["mode"] == "open"
    assert "forced open" in rescd.ctl("list").stdout
    assert rescd.ask("release", "payments")[0]["override"] is None
    assert rescd.ask("reset", "payments")[0]["state"] == "closed"
    assert rescd.ask("reload") == {"ok": True, "changed": [], "added": [], "removed": [], "replaced": False, "warnings": []}
    assert rescd.ask("check", rescd.config_path)["ok"]
    assert rescd.ask("version")["version"] in rescd.ctl("version").stdout


@pytest.mark.smoke
@pytest.mark.parametrize("args", [
    ["no-such-command"], [], ["list", "extra"], ["list", "--no-such-option"], ["show"], ["force", "payments"], ["force", "payments", "ajar"],
    ["force", "payments", "open"], ["force", "payments", "open", "--for", "2s"], ["force", "payments", "open", "--for", "2", "--why", "x"],
    ["force", "payments", "open", "--for", "0s", "--why", "x"], ["force", "payments", "open", "--for", "-1s", "--why", "x"],
    ["force", "payments", "open", "--for", "2s", "--until-released", "--why", "x"], ["force", "payments", "open", "--for", "2s", "--why", " "],
    ["events", "--last", "x"], ["check"], ["--instance", "no/good", "list"], ["--instance", "", "list"]], ids=" ".join)
def test_exit_2_for_a_mistake_in_the_command_line(host, args):
    done = resctl(*args)
    assert done.returncode == 2 and done.stdout == "" and "resctl" in done.stderr, done


@pytest.mark.smoke
def test_exit_3_where_there_is_no_segment_or_for_reload_no_daemon(host):
    rescd = host(CONFIG, start=False)
    for command in (["list"], ["show", "payments"], ["events"], ["workers"], ["snapshot"], ["reload"], ["reset", "payments"],
                    ["force", "payments", "open", "--for", "1s", "--why", "x"], ["release", "payments"]):
        done = rescd.ctl(*command, code=3)
        assert rescd.instance in done.stderr and done.stdout == "", command
        rescd.ctl(*command, "--json", code=3)
    rescd.ctl("check", rescd.config_path)  # needs neither
    rescd.ctl("version")
    rescd.start()
    rescd.kill()
    done = rescd.ctl("reload", code=3)
    assert "not running" in done.stderr and "start it" in done.stderr
    rescd.ctl("list")


@pytest.mark.smoke
def test_exit_1_and_near_names_for_a_resource_that_is_not_there(host):
    rescd = host(CONFIG)
    for command in (["show", "paymnets"], ["reset", "paymnets"], ["release", "paymnets"],
                    ["force", "paymnets", "open", "--for", "1s", "--why", "x"]):
        done = rescd.ctl(*command, code=1)
        assert "did you mean: payments?" in done.stderr, done
    assert "resctl list shows the 3" in rescd.ctl("show", "zebra", code=1).stderr
    assert "paypal" in rescd.ctl("show", "pay", code=1).stderr and "payments" in rescd.ctl("show", "pay", code=1).stderr
    assert "did you mean 'list'" in rescd.ctl("lits", code=2).stderr


def shown(rescd, name):
    """resctl show as one line: where it breaks depends on the width."""
    return " ".join(rescd.ctl("show", name).stdout.split())


def test_show_says_when_a_breaker_opens(host):
    """The arithmetic of min_calls and rates, in words, for each kind of breaker."""
    rescd = host({"resources": {
        "both": {"breaker": {"consecutive": 1, "failure_rate": 0.5, "min_calls": 21, "window": "10s"}},
        "slow": {"breaker": {"failure_rate": 1, "slow_rate": 0.8, "slow_call": "800ms", "window": "2m", "min_calls": 1000}},
        "tiny": {"breaker": {"failure_rate": "0.01%", "min_calls": 3, "cooldown_factor": 2, "cooldown_max": "60s", "jitter": 0.1}},
        "row": {"breaker": {"consecutive": 5, "probes": 3}}, "open": {"bulkhead": {"limit": 1}}}})
    both = shown(rescd, "both")
    assert "opens after 1 failure in a row or when at least 21 calls in 10s were counted and 50% of them failed: the 11th failure of 21" in both
    slow = shown(rescd, "slow")
    assert "opens when at least 1,000 calls in 2m were counted and 100% of them failed: the 1,000th failure of 1,000 calls" in slow
    assert "or when at least 1,000 calls in 2m were counted and 80% of them took longer than 800ms: the 800th slow call of 1,000" in slow
    tiny = shown(rescd, "tiny")
    assert "0.01% of them failed: the 1st failure of 3 calls at the earliest" in tiny
    assert "stays open for 5s plus up to 10%, each time in a row 2 times longer, up to 1m; then 1 probe at a time" in tiny
    row = shown(rescd, "row")
    assert "opens after 5 failures in a row stays open" in row and "min_calls" not in row, "a row looks at no window"
    assert "3 probes at a time: 3 ok close it, one failed opens it again" in row
    for name in ("both", "slow", "tiny", "row"):
        assert "warning" not in shown(rescd, name), name
    assert "opens" not in shown(rescd, "open") and "state no breaker" in shown(rescd, "open")


def test_show_warns_of_a_breaker_that_no_rate_can_open(host):
    rescd = host({"resources": {
        "mail": {"breaker": {"failure_rate": 0.5, "min_calls": 121, "window": "10s"}, "rate": {"per_second": 10, "burst": 20}},
        "just": {"breaker": {"failure_rate": 0.5, "min_calls": 120, "window": "10s"}, "rate": {"per_second": 10, "burst": 20}},
        "seen": {"breaker": {"failure_rate": 0.5, "min_calls": 500, "window": "10s"},
                 "rate": {"per_second": 10, "burst": 20, "mode": "shadow"}},
        "row": {"breaker": {"consecutive": 500}, "rate": {"per_second": 1}}}})
    assert "warning: no rate can open it: min_calls is 121, and the rate limit lets at most 120 calls into 10s" in shown(rescd, "mail")
    for name in ("just", "seen", "row"):
        assert "warning" not in shown(rescd, name), name


def test_windows_by_number_of_calls_and_trials_by_rate_in_words(host):
    rescd = host({"resources": {
        "ledger": {"breaker": {"failure_rate": 0.3, "window": 100, "min_calls": 20, "probes": 10, "trial_failure_rate": 0.2}},
        "stock": {"breaker": {"failure_rate": 0.5, "window": 50, "min_calls": 50}}}})
    assert "opens when 30% of the last 100 calls failed, once at least 20 were counted: the 6th failure of 20 calls" in shown(rescd, "ledger")
    assert "then 10 probes decide: it opens again when 20% of them failed, else it closes" in shown(rescd, "ledger")
    assert "opens when 50% of the last 50 calls failed: the 25th failure of 50 calls" in shown(rescd, "stock")
    worker = rescd.worker()
    worker.fail("ledger", 20)
    rescd.advance("6s")
    trial = worker.hold("ledger", 10)
    for i, ticket in enumerate(trial[:9]):
        worker.leave(ticket, "fail" if i < 2 else "ok")
    assert "7 ok and 2 failed of 10" in rescd.ctl("list").stdout
    assert "1 of 10 probes out; 7 ok, 2 failed; the verdict falls with 10 results" in shown(rescd, "ledger")
    worker.leave(trial[9])
    assert "open for 0ms, because 2 of 10 probes failed" in shown(rescd, "ledger")
    worker.call("stock")
    assert "0 of 1 calls failed (0%), 0 slow, of the last 50 calls" in shown(rescd, "stock")
    assert rescd.show("stock")["window"]["length_calls"] == 50


def test_a_breaker_in_shadow_mode_reads_as_one(host):
    rescd = host({"resources": {"payments": {"breaker": {"consecutive": 2, "cooldown": "5s", "mode": "shadow"},
                                             "bulkhead": {"limit": 4, "mode": "shadow"}},
                                "stock": {"breaker": {"mode": "shadow"}}}})
    worker = rescd.worker()
    assert "closed (shadow)" in rescd.ctl("list").stdout
    worker.fail("payments", 2)
    assert worker.call("payments")["r"] == 0, "nothing is refused"
    row = next(line for line in rescd.ctl("list").stdout.splitlines() if line.startswith("payments"))
    assert "open (shadow)" in row and "probe in 5" in row and "2 consecutive failures (limit 2)" in row
    assert "in shadow mode: bulkhead" in row and "1 would be open (shadow)" in rescd.ctl("list").stdout
    told = shown(rescd, "payments")
    assert "open (shadow) for" in told and "guards in shadow mode would have refused: open 1" in told
    assert "breaker in shadow mode, refuses nothing: consecutive 2" in told
    seen = rescd.show("payments")
    assert (seen["state"], seen["mode"], seen["policy"]["breaker"]["mode"]) == ("open", "shadow", "shadow")
    rescd.advance("6s")
    assert "open (shadow)" in rescd.ctl("list").stdout and "probe due" in rescd.ctl("list").stdout
    rescd.ctl("force", "payments", "open", "--for", "1m", "--why", "x")
    assert "forced open" in rescd.ctl("list").stdout, "an operator's word is no shadow"


def test_what_is_said_is_so(host):
    config = {"made": 3, "resources": {"payments": {"mode": "shadow", "breaker": {}, "bulkhead": {"limit": 2, "low": 0.5}}, "shard-*": {"breaker": {}}}}
    rescd = host(config)
    assert "low priority is refused when 1 of the 2 is in use" in shown(rescd, "payments")
    rescd.write_config({**config, "made": 4})
    assert rescd.ctl("reload").stdout == "reloaded: no resource has changed\n"  # but something has
    rescd.ctl("force", "payments", "open", "--for", "1m", "--why", "x")
    assert rescd.worker().enter("payments")["answer"] == "forced_open"
    told = shown(rescd, "payments")
    assert "every call is refused" in told and "closed (shadow)" in told and "it refuses nothing" not in told


def test_every_guard_says_in_words_what_it_does(host):
    rescd = host({"resources": {
        "files": {"bulkhead": {"limit": 8, "max_wait": "5ms", "normal": 0.75, "low": 0.1}, "rate": {"per_second": 2, "burst": 3},
                  "throttle": {"k": 1, "window": "10s", "mode": "shadow"}, "once": {"ttl": "1h", "on_death": "free"}},
        "share": {"bulkhead": {"limit": "150%"}, "retry": {"budget": {"in_flight_floor": 2, "in_flight_share": 0.2}}}}})
    worker = rescd.worker()
    told = shown(rescd, "files")
    assert "limit 8, max_wait 5ms, max_waiting 8, normal 75%, low 10%" in told
    assert "normal priority is refused when 6 of the 8 are in use" in told and "low priority is refused when 1 of the 8" in told
    assert "3 of 3 calls could go at once; 2 a second come back" in told and "no requests in the last 10s" in told
    assert "ttl 1h, max_wait 0ms, on_death free" in told and "off breaker, retry, budget, timeout" in told
    worker.fail("files", 3)
    assert "0 of 3 calls could go at once" in shown(rescd, "files") and "would refuse 75% of the calls: 0 of 3 requests were" in shown(rescd, "files")
    row = next(line for line in rescd.ctl("list").stdout.splitlines() if line.startswith("files"))
    assert "the throttle would refuse 75% of the calls" in row and "the rate limit is reached" in row
    assert worker.enter("files")["r"] == 8
    assert "that is 2 with 1 live worker" in shown(rescd, "share")
    assert "retries among them: 0; at most 2, or 20% of the calls if that is more" in shown(rescd, "share")
    rescd.ctl("reset", "files")
    assert "3 of 3 calls could go at once" in shown(rescd, "files")


def on_terminal(rescd, *args, columns=80):
    """What resctl prints on a terminal of that width, without colour."""
    master, slave = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "xterm"}
    with subprocess.Popen([RESCTL, "-i", rescd.instance, *args], stdin=subprocess.DEVNULL, stdout=slave, env=env) as process:
        os.close(slave)
        text = b""
        try:
            while piece := os.read(master, 65536):
                text += piece
        except OSError:  # EIO: nobody has the other side any more
            pass
    os.close(master)
    assert process.returncode == 0
    return text.decode().replace("\r", "").splitlines()


def test_list_keeps_its_reasons_in_80_columns(host):
    """Where there is no room for all, states and reasons stay, and what is left out is named."""
    names = ["payments", "a-name-that-is-as-long-as-some-are"]
    rescd = host({"resources": {name: {"breaker": {"consecutive": 3}, "bulkhead": {"limit": 4}} for name in names}})
    worker = rescd.worker()
    for name in names:
        worker.fail(name, 3)
    lines = on_terminal(rescd, "list")
    table = lines[:lines.index("")]
    assert len(table) == 3 and all(len(line) <= 80 for line in table)
    assert table[0].split()[:2] == ["NAME", "STATE"] and table[0].endswith("WHY")
    for name, line in zip(names, table[1:], strict=True):
        assert line.split()[:2] == [name, "open"] and "probe in" in line and "3 consecutive fail" in line
    assert any(line.startswith("not shown in 80 columns: ") and "P99" in line for line in lines)
    assert "IN FLIGHT" in on_terminal(rescd, "list", columns=160)[0]


def test_list_says_what_has_no_room_left(host):
    rescd = host({"once_keys": 16, "made": 1, "idle": "1h", "resources": {"orders": {"once": {}}, "shard-*": {"breaker": {"consecutive": 5}}}})
    worker = rescd.worker()
    begun = [worker.once_begin("orders", str(i))["r"] for i in range(8)]
    text = rescd.ctl("list").stdout
    assert begun == [0] * 8 and "idempotency keys" not in text and "no room" not in text
    worker.once_begin("orders", "one more")
    assert "idempotency keys: 9 of 16 places are taken; raise once_keys, or lower ttl" in rescd.ctl("list").stdout
    assert "made from a pattern" not in text
    lookups = [worker.ask("lookup", "shard-%d" % i)["r"] for i in range(40)]
    assert lookups[0] == 0 and lookups[-1] == -errno.ENOSPC
    text, refused = rescd.ctl("list").stdout, rescd.snapshot()["daemon"]["lookups_refused"]
    assert refused >= 1 and "no room for new names of a pattern: %d lookup" % refused in text
    made = [r["name"] for r in rescd.snapshot()["resources"] if r["made"]]
    assert "shard-0" in made and "%d made from patterns" % len(made) in text
    assert "made from a pattern; retired when it is idle" in shown(rescd, "shard-0")
    assert metric(rescd.scrape(), "resc_lookups_refused_total") == refused


def test_the_failure_that_show_names_is_the_one_that_opens(host):
    rescd = host({"resources": {"payments": {"breaker": {"failure_rate": 0.5, "min_calls": 21, "window": "10s"}}}})
    assert "the 11th failure of 21 calls at the earliest" in shown(rescd, "payments")
    worker = rescd.worker()
    for outcome in ["ok"] * 10 + ["fail"] * 10:
        worker.leave(worker.enter("payments"), outcome)
    assert worker.state("payments")["state"] == "closed"
    worker.leave(worker.enter("payments"), "fail")
    assert worker.state("payments")["state"] == "open"


def test_list_says_what_is_full_and_what_has_no_breaker(host):
    rescd = host(CONFIG | {"resources": CONFIG["resources"] | {"files": {"bulkhead": {"limit": 9}}}})
    worker = rescd.worker()
    worker.hold("payments", 4)
    rows = {line.split()[0]: line for line in rescd.ctl("list").stdout.splitlines() if line}
    assert "the bulkhead is full" in rows["payments"] and "4/4" in rows["payments"]
    assert "no breaker" in rows["files"] and "closed" in rows["stock"]


def test_a_stale_heartbeat_and_a_dead_daemon_are_shown(host):
    rescd = host(CONFIG)
    assert rescd.snapshot()["daemon"]["status"] == "running"
    rescd.process.send_signal(signal.SIGSTOP)
    until(lambda: is_stopped(rescd.process))
    rescd.advance("1m")
    assert rescd.snapshot()["daemon"]["status"] == "silent"
    assert "silent" in rescd.ctl("list").stdout and "heartbeat 1m" in rescd.ctl("list").stdout
    done = rescd.ctl("reload", code=3)
    assert "silent" in done.stderr or "no answer" in done.stderr, done.stderr
    rescd.process.send_signal(signal.SIGCONT)
    until(lambda: rescd.snapshot()["daemon"]["status"] == "running", what="the heartbeat goes on")
    rescd.kill()
    assert (rescd.snapshot()["daemon"]["status"], rescd.snapshot()["daemon"]["alive"]) == ("stopped", False)
    assert "rescd is not running" in rescd.ctl("list").stdout


def test_check_says_file_line_and_column_for_all_that_is_wrong(host):
    rescd = host(CONFIG, start=False)
    assert "ok: 3 resources" in rescd.ctl("check", rescd.config_path).stdout
    rescd.write_config('{\n  "resources": {\n    "payments": {\n      "breaker": { "consecutiv": 5, "cooldown": 10 },\n'
                       '      "bulkhead": { "limit": -1 }\n    }\n  }\n}\n')
    done = rescd.ctl("check", rescd.config_path, code=1)
    lines = done.stdout.splitlines()
    assert all(line.startswith(rescd.config_path + ":4:") for line in lines[:2]) and lines[2].startswith(rescd.config_path + ":5:")
    assert "consecutive" in done.stdout  # what was meant
    told = rescd.ask("check", rescd.config_path, code=1)
    assert (told["ok"], told["errors"], told["resources"]) == (False, 3, 0)
    assert [p["path"] for p in told["problems"]] == ["resources.payments.breaker.consecutiv", "resources.payments.breaker.cooldown",
                                                     "resources.payments.bulkhead.limit"]
    assert all(p["line"] > 0 and p["column"] > 0 for p in told["problems"])
    rescd.ctl("check", "/no/such/file", code=1)
    rescd.ctl("check", rescd.dir, code=1)


@pytest.mark.smoke
@pytest.mark.parametrize("command", ["list", "snapshot", "show payments", "events", "workers", "version", "--help", "list --json",
                                     "force payments open --for 1m --why x"])
def test_an_answer_that_cannot_be_written_is_no_success(host, command):
    rescd = host(CONFIG)
    before = open(rescd.segment, "rb").read(4096)
    with open("/dev/full", "wb") as full:
        done = resctl("--instance", rescd.instance, *command.split(), stdout=full)
    assert done.returncode == 1 and "No space left" in done.stderr, done
    closed = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", RESCTL, "--instance", rescd.instance, *command.split()],
                            stderr=subprocess.PIPE, timeout=60, check=False)
    assert closed.returncode == 1, closed
    reader, writer = os.pipe()
    os.close(reader)
    done = resctl("--instance", rescd.instance, *command.split(), stdout=writer, restore_signals=False)
    os.close(writer)
    assert done.returncode in (1, -signal.SIGPIPE), done
    assert open(rescd.segment, "rb").read(4096) == before  # the segment was nobody's standard output


def test_follow_ends_when_nobody_reads(host):
    rescd = host(CONFIG)
    process = subprocess.Popen([RESCTL, "-i", rescd.instance, "events", "--follow", "--json"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
    assert json.loads(process.stdout.readline())["kind"] == "reload"
    process.stdout.close()
    for i in range(100):
        if process.poll() is not None:
            break
        rescd.ctl("reset", "payments", "--why", "line %d" % i)
    assert process.wait(10) != 0


def test_the_instance_comes_from_the_environment_too(host):
    rescd = host(CONFIG)
    assert resctl("list", env={**os.environ, "RESC_INSTANCE": rescd.instance}).returncode == 0
    missing = resctl("list", env={**os.environ, "RESC_INSTANCE": "resc-test-none"})
    assert missing.returncode == 3 and rescd.instance in missing.stderr  # the instances that there are
