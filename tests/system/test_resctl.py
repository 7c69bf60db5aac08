# SPDX-License-Identifier: MIT
"""resctl as people and scripts use it: every command, its JSON, its exit code, and output that cannot be written."""
import json
import os
import signal
import subprocess

import pytest
from harness import RESCTL, until

CONFIG = {"resources": {"payments": {"breaker": {"consecutive": 5}, "bulkhead": {"limit": 4}},
                        "paypal": {"breaker": {}}, "stock": {"breaker": {}}}}
COMMANDS = ["list", "show", "events", "workers", "snapshot", "force", "release", "reset", "reload", "check", "version"]


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


def test_a_stale_heartbeat_and_a_dead_daemon_are_shown(host):
    rescd = host(CONFIG)
    assert rescd.snapshot()["daemon"]["status"] == "running"
    rescd.process.send_signal(signal.SIGSTOP)
    until(lambda: open("/proc/%d/stat" % rescd.process.pid, encoding="utf-8").read().rsplit(")", 1)[1].split()[0] == "T")
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
