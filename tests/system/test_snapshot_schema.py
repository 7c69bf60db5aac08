# SPDX-License-Identifier: MIT
"""resctl against a real rescd: the snapshot and its schema, the other JSON answers, exit codes, and what operators are told."""

import json
import os
import subprocess

import jsonschema
import pytest
from harness import RESCTL, TOP, until

CONFIG = {
    "resources": {
        "payments": {
            "breaker": {"failure_rate": 0.5, "window": "10s", "min_calls": 4, "cooldown": "5s", "probes": 2},
            "retry": {"attempts": 3, "budget": {"ratio": 0.1, "capacity": 20, "per_second": 1}},
            "bulkhead": {"limit": 8},
            "timeout": {"attempt": "800ms", "total": "1s"},
        },
        "ledger": {"breaker": {"consecutive": 5, "cooldown": "10s"}},
        "quiet": {"latency": False},
    }
}

with open(os.path.join(TOP, "docs", "snapshot.schema.json"), encoding="utf-8") as file:
    SCHEMA = json.load(file)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

def check(document):
    """By the schema, and what a schema cannot say."""
    errors = [f"{e.json_path}: {e.message}" for e in VALIDATOR.iter_errors(document)]
    assert not errors, errors
    held = {}
    once = document["once"]
    assert once["working"] + once["done"] + once["unknown"] <= once["size"] and once["expired"] <= once["done"] + once["unknown"]
    for r in document["resources"]:
        assert (r["opened_since_ms"] is not None) == (r["state"] == "open") == (r["due_ms"] is not None), r["name"]
        assert r["probes"]["out"] <= r["probes"]["limit"] and (r["state"] == "half_open" or r["probes"]["out"] == 0)
        assert r["window"]["failures"] <= r["window"]["calls"] and r["window"]["slow"] <= r["window"]["calls"]
        counters = r["counters"]
        assert counters["enters"] == counters["admitted"] + sum(n for name, n in counters.items() if name.startswith("refused_"))
        assert r["permits"]["in_use"] == sum(h["permits"] for h in r["permits"]["by_worker"]) >= r["retry"]["in_flight"]
        assert (r["mode"] == "off") == (r["policy"]["breaker"] is None) and r["mode"] == (r["policy"]["breaker"] or {"mode": "off"})["mode"]
        assert (r["window"]["length_ms"] is None) != (r["window"]["length_calls"] is None)
        assert (r["rate"]["tokens"] or 0) <= (r["rate"]["burst"] or 0) and (r["throttle"]["accepts"] or 0) <= (r["throttle"]["requests"] or 0)
        assert r["latency"]["count"] == sum(n for _, n in r["latency"]["buckets"])
        assert r["since_ms"] + r["since_age_ms"] >= r["since_ms"] >= 0
        for holder in r["permits"]["by_worker"]:
            held[holder["worker"]] = held.get(holder["worker"], 0) + holder["permits"]
    for worker in document["workers"]:
        assert worker["permits"] == held.get(worker["worker"], 0)


@pytest.fixture
def rescd(host):
    return host(CONFIG, metrics="")


def snapshot(rescd):
    document = rescd.snapshot()
    check(document)
    return document


def resource(rescd, name):
    return next(r for r in snapshot(rescd)["resources"] if r["name"] == name)


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.smoke
def test_snapshot_of_a_fresh_instance(rescd):
    document = snapshot(rescd)
    assert document["version"] == 1 and document["instance"] == rescd.instance
    assert document["daemon"]["status"] == "running" and document["daemon"]["pid"] == rescd.process.pid
    assert document["daemon"]["control"] == rescd.control_path
    assert [r["name"] for r in document["resources"]] == list(CONFIG["resources"])
    payments, ledger, quiet = document["resources"]
    assert payments["policy"]["breaker"]["failure_rate"] == 0.5 and payments["policy"]["breaker"]["window_ms"] == 10000
    assert payments["policy"]["retry"]["budget"] == {
        "mode": "enforce", "ratio": 0.1, "capacity": 20, "per_second": 1, "deposit": "success", "cost": 1, "timeout_cost": 1, "ttl_ms": None,
        "threshold": None, "in_flight_floor": None, "in_flight_share": None}
    assert payments["policy"]["retry"]["retry_on"] == ["fail", "timeout"]
    assert payments["policy"]["timeout"] == {"mode": "enforce", "attempt_ms": 800, "connect_ms": None, "total_ms": 1000, "probe_ms": None}
    assert payments["permits"] == {"in_use": 0, "limit": 8, "effective": 8, "debt": 0, "waiting": 0, "by_worker": []}
    assert payments["retry"] == {"tokens": 20, "capacity": 20, "in_flight": 0}
    assert payments["rate"] == {"tokens": None, "burst": None, "per_second": None} and payments["policy"]["rate"] is None
    assert payments["throttle"] == {"share": None, "requests": None, "accepts": None} and payments["policy"]["throttle"] is None
    assert payments["mode"] == "enforce" and payments["made"] is False and payments["policy"]["once"] is None
    assert ledger["policy"]["bulkhead"] is None and ledger["permits"]["limit"] is None
    assert quiet["mode"] == "off" and quiet["policy"]["breaker"] is None and quiet["policy"]["latency"] is False


EVERY_KEY = {
    "breaker": {"consecutive": 7, "failure_rate": 0.25, "slow_rate": 0.75, "slow_call": "1500us", "window": 300, "min_calls": 30,
                "cooldown": "3s", "cooldown_factor": 1.5, "cooldown_max": "40s", "jitter": 0.05, "probes": 4, "successes": 3,
                "probe_timeout": "9s", "retry_after_max": "0s"},
    "retry": {"attempts": 4, "backoff": "fixed", "base": "20ms", "cap": "2500ms", "jitter": "equal", "retry_on": ["timeout"],
              "budget": {"mode": "shadow", "ratio": 0.2, "capacity": 50, "per_second": 2.5, "deposit": "request", "cost": 2,
                         "timeout_cost": 5, "ttl": "10s", "threshold": 0.5, "in_flight_floor": 3, "in_flight_share": 0.1}},
    "bulkhead": {"limit": "50%", "max_wait": "15ms", "max_waiting": 9, "critical": 1, "normal": 0.75, "low": 0.5, "retry_after": "2s",
                 "mode": "shadow"},
    "rate": {"per_second": 7.5, "burst": 12, "max_wait": "40ms", "mode": "shadow"},
    "throttle": {"k": 1.25, "window": "30s", "mode": "shadow"},
    "timeout": {"attempt": "800ms", "connect": "200ms", "total": "1s", "probe": "300ms", "mode": "shadow"},
    "once": {"ttl": "1h", "max_wait": "20ms", "on_death": "free", "mode": "shadow"},
    "injection": True,
}
SHOWN = {
    "breaker": {"mode": "enforce", "consecutive": 7, "failure_rate": 0.25, "slow_rate": 0.75, "slow_call_ms": 1.5, "window_ms": None,
                "window_calls": 300, "min_calls": 30, "cooldown_ms": 3000, "cooldown_factor": 1.5, "cooldown_max_ms": 40000, "jitter": 0.05,
                "probes": 4, "successes": 3, "probe_timeout_ms": 9000, "trial_failure_rate": None, "retry_after_max_ms": 0},
    "retry": {"mode": "enforce", "attempts": 4, "backoff": "fixed", "jitter": "equal", "base_ms": 20, "cap_ms": 2500, "retry_on": ["timeout"],
              "budget": {"mode": "shadow", "ratio": 0.2, "capacity": 50, "per_second": 2.5, "deposit": "request", "cost": 2,
                         "timeout_cost": 5, "ttl_ms": 10000, "threshold": 0.5, "in_flight_floor": 3, "in_flight_share": 0.1}},
    "bulkhead": {"mode": "shadow", "limit": None, "limit_share": 0.5, "max_wait_ms": 15, "max_waiting": 9, "critical": 1, "normal": 0.75,
                 "low": 0.5, "retry_after_ms": 2000},
    "rate": {"mode": "shadow", "per_second": 7.5, "burst": 12, "max_wait_ms": 40},
    "throttle": {"mode": "shadow", "k": 1.25, "window_ms": 30000},
    "timeout": {"mode": "shadow", "attempt_ms": 800, "connect_ms": 200, "total_ms": 1000, "probe_ms": 300},
    "once": {"mode": "shadow", "ttl_ms": 3600000, "max_wait_ms": 20, "on_death": "free"},
    "latency": True,
    "injection": True,
}


def test_every_key_of_the_configuration_is_in_the_snapshot(host):
    rescd = host({"resources": {"all": EVERY_KEY, "trial": {"breaker": {"probes": 5, "trial_failure_rate": 0.4}},
                                "cap": {"retry": {"budget": {"in_flight_share": 2}}}}})
    assert resource(rescd, "all")["policy"] == SHOWN
    assert resource(rescd, "trial")["policy"]["breaker"]["trial_failure_rate"] == 0.4
    budget = resource(rescd, "cap")["policy"]["retry"]["budget"]
    assert budget["in_flight_share"] == 2 and budget["ratio"] is None and budget["capacity"] is None and budget["cost"] is None


def test_what_waits_and_what_is_left_is_in_the_snapshot(host):
    rescd = host({"once_keys": 16, "resources": {"payments": {
        "bulkhead": {"limit": 2, "max_wait": "1h"}, "rate": {"per_second": 1, "burst": 10}, "throttle": {"k": 2}, "once": {}}}})
    worker, patient = rescd.worker(), rescd.worker()
    worker.hold("payments", 1)
    held = worker.enter("payments", retry=True)
    patient.send_enter("payments")
    until(lambda: resource(rescd, "payments")["permits"]["waiting"] == 1, what="the third call waits")
    seen = resource(rescd, "payments")
    assert seen["retry"]["in_flight"] == 1 and seen["permits"]["in_use"] == 2
    assert (seen["rate"]["burst"], seen["rate"]["per_second"]) == (10, 1) and seen["rate"]["tokens"] <= 8
    assert "the bulkhead is full; 1 waits for a permit" in rescd.ctl("list").stdout
    text = rescd.ctl("show", "payments").stdout
    assert "1 call waits for a permit" in text and "retries among them: 1" in text
    worker.leave(held)
    assert patient.receive()["r"] == 0
    seen = resource(rescd, "payments")
    assert seen["permits"]["waiting"] == 0 and seen["counters"]["waited"] == 1 and seen["retry"]["in_flight"] == 0
    assert seen["throttle"]["requests"] == seen["throttle"]["accepts"] == 1 and seen["throttle"]["share"] == 0


def test_snapshot_in_every_state(rescd):
    worker = rescd.worker()
    held = worker.hold("payments", 3)
    payments = resource(rescd, "payments")
    assert payments["permits"]["in_use"] == 3 and payments["permits"]["by_worker"][0]["pid"] == worker.pid
    assert snapshot(rescd)["workers"][0]["permits"] == 3

    worker.fail("payments", 10)
    payments = resource(rescd, "payments")
    assert payments["state"] == "open" and payments["why"] == "failure_rate"
    assert payments["counters"]["refused_open"] > 0 and payments["due_left_ms"] <= 5500
    for ticket in held:
        worker.leave(ticket)

    rescd.ctl("force", "payments", "open", "--until-released", "--why", "vendor \u2014 maintenance")
    override = resource(rescd, "payments")["override"]
    assert override["mode"] == "open" and override["until_ms"] is None and override["uid"] == os.getuid()
    assert override["why"] == "vendor \u2014 maintenance"
    rescd.kill()
    document = snapshot(rescd)
    assert document["daemon"]["status"] == "stopped" and not document["daemon"]["alive"]
    rescd.ctl("release", "payments")
    payments = resource(rescd, "payments")
    assert payments["state"] == "closed" and payments["override"] is None and payments["why"] == "override_over"


def test_snapshot_of_a_trial_and_of_an_ended_override(rescd):
    worker = rescd.worker()
    worker.fail("payments", 10)
    rescd.advance("4s")
    assert not resource(rescd, "payments")["probe_due"]
    rescd.advance("2s")
    generation = resource(rescd, "payments")["generation"]
    payments = resource(rescd, "payments")
    assert payments["state"] == "open" and payments["probe_due"] and payments["due_left_ms"] == 0
    assert payments["generation"] == generation, "reading moves nothing"
    assert "open, probe due" in rescd.ctl("list").stdout

    probe = worker.enter("payments")
    payments = resource(rescd, "payments")
    assert payments["state"] == "half_open" and payments["probes"]["out"] == 1
    assert snapshot(rescd)["workers"][0]["probes"] == 1
    worker.leave(probe, "fail")
    payments = resource(rescd, "payments")
    assert payments["state"] == "open" and payments["why"] == "probe_failed" and payments["reopened"] == 1

    rescd.ctl("force", "payments", "closed", "--for", "2s", "--why", "a while")
    assert resource(rescd, "payments")["override"]["left_ms"] == 2000
    rescd.advance("3s")
    assert resource(rescd, "payments")["override"] is None
    worker.call("payments")
    kinds = [(e["kind"], e["mode"], e["text"]) for e in events(rescd, "--resource", "payments")]
    assert ("forced", "closed", "a while") in kinds and ("expired", None, "a while") in kinds


def events(rescd, *options):
    return [json.loads(line) for line in rescd.ctl("events", "--json", "--last", "1000", *options).stdout.splitlines()]


def test_events_say_what_from_where_and_why(rescd):
    worker = rescd.worker()
    worker.fail("ledger", 6)
    (event,) = [e for e in events(rescd, "--resource", "ledger") if e["kind"] == "breaker"]
    assert (event["from"], event["to"], event["why"], event["values"]) == ("closed", "open", "consecutive", {"failures": 5, "limit": 5})
    assert event["pid"] == worker.pid and event["uid"] == os.getuid()
    text = rescd.ctl("events").stdout
    assert "closed -> open" in text and "5 consecutive failures (limit 5)" in text
    assert "5 consecutive failures (limit 5)" in rescd.ctl("list").stdout
    assert len(events(rescd, "--last", "1")) == 1


def test_follow_prints_what_happens_from_now_on(rescd):
    command = [RESCTL, "-i", rescd.instance, "events", "--json", "--last", "1", "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        try:
            follower.stdout.readline()  # the last one so far: now it follows
            rescd.ctl("reset", "ledger", "--why", "seen")
            lines = [json.loads(follower.stdout.readline()) for _ in range(2)]
            assert [(e["kind"], e["resource"]) for e in lines] == [("breaker", "ledger"), ("reset", "ledger")]
            assert lines[1]["text"] == "seen"
        finally:
            follower.kill()


def test_every_table_has_its_json(rescd):
    worker = rescd.worker()
    worker.call("payments")
    check(rescd.ask("list"))
    document = snapshot(rescd)
    (payments,) = rescd.ask("show", "payments")
    assert payments.keys() == document["resources"][0].keys()
    (seen,) = rescd.ask("workers")
    assert seen.keys() == document["workers"][0].keys() and seen["pid"] == worker.pid
    assert rescd.ask("reload")["ok"] is True
    assert rescd.ask("check", rescd.config_path)["resources"] == 3
    assert rescd.ask("version")["layout"] == document["segment"]["layout"]
    (forced,) = rescd.ask("force", "payments", "disabled", "--for", "1h", "--why", "x")
    assert forced["override"]["mode"] == "disabled"
    assert set(json.loads(rescd.ctl("snapshot", "--pretty").stdout)) == set(document)


@pytest.mark.smoke
def test_exit_codes(rescd):
    def code(*args):
        return rescd.ctl(*args, code=None).returncode

    assert code("list") == 0
    assert code("show", "paymnts") == 1 and "payments" in rescd.ctl("show", "paymnts", code=1).stderr
    assert code("release", "payments") == 1
    assert code("force", "payments", "open", "--for", "1s") == 2, "no reason"
    assert code("force", "payments", "open", "--for", "1s", "--why", "  ") == 2, "an empty reason"
    assert code("force", "payments", "open", "--why", "x") == 2, "no end"
    assert code("force", "payments", "open", "--why", "x", "--for", "1s", "--until-released") == 2
    for duration in ("0s", "1", "s", "-1s", "1y", "inf", "0x1s", "1e3s", "400d", "nan"):
        assert code("force", "payments", "open", "--why", "x", "--for=" + duration) == 2, duration
    assert code("force", "payments", "ajar", "--why", "x", "--for", "1s") == 2
    assert code() == 2 and code("lisst") == 2 and code("list", "payments") == 2 and code("show") == 2
    assert code("--instance", "no/name", "list") == 2
    assert code("--instance", "absent-" + rescd.instance, "list") == 3
    assert code("--help") == 0 and code("force", "--help") == 0
    rescd.stop()
    assert code("list") == 0 and code("reload") == 3
    assert "rescd is not running" in rescd.ctl("list").stdout


def run(rescd, *args, **more):
    return subprocess.run([RESCTL, "-i", rescd.instance, *args], stderr=subprocess.DEVNULL, timeout=20, check=False, **more).returncode


def test_an_answer_that_cannot_be_written_is_a_failure(rescd):
    with open("/dev/full", "w", encoding="utf-8") as full:
        for command in (["list"], ["snapshot"], ["show", "payments"], ["events"], ["--help"], ["version"]):
            assert run(rescd, *command, stdout=full) == 1, command
    before = snapshot(rescd)["segment"]
    assert run(rescd, "reset", "payments", preexec_fn=lambda: os.close(1)) == 1
    assert snapshot(rescd)["segment"] == before, "nothing was printed into the segment"


def test_reload_tells_what_changed_or_all_that_is_wrong(rescd):
    config = json.loads(json.dumps(CONFIG))
    config["resources"]["payments"]["bulkhead"]["limit"] = 9
    del config["resources"]["quiet"]
    config["resources"]["search"] = {}
    rescd.write_config(config)
    answer = rescd.reload(code=0)
    assert (answer["changed"], answer["added"], answer["removed"]) == (["payments"], ["search"], ["quiet"])
    assert resource(rescd, "payments")["permits"]["limit"] == 9
    assert [r["name"] for r in snapshot(rescd)["resources"]].count("quiet") == 0

    config["resources"]["payments"]["breaker"]["cooldown"] = 5
    config["resources"]["payments"]["bulkhaed"] = {}
    rescd.write_config(config)
    answer = rescd.ctl("reload", code=1)
    assert "cooldown" in answer.stderr and "bulkhaed" in answer.stderr
    rescd.ctl("check", rescd.config_path, code=1)
    reload = snapshot(rescd)["daemon"]["reload"]
    assert reload["last_failed"] and "cooldown" in reload["problems"]
    assert "the last reload failed" in rescd.ctl("list").stdout


def test_text_of_others_reaches_no_terminal_as_control(rescd):
    rescd.ctl("force", "ledger", "open", "--for", "1h", "--why", "red \033[31m\u009b31m\n\u202ebell\007")
    for command in (["list"], ["show", "ledger"], ["events"]):
        output = rescd.ctl(*command).stdout
        assert not any(c in output for c in "\033\u009b\u202e\007"), command
        assert "red ?[31m" in output
