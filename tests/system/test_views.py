# SPDX-License-Identifier: MIT
"""What the library says, what resctl says and what the metrics page says are the same numbers; and the README's program runs."""
import json
import os
import random
import re
import subprocess
import urllib.request

import jsonschema
import pytest
from harness import BUILD, TOP, agreed, metric, until
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

CONFIG = {"resources": {
    "payments": {"breaker": {"consecutive": 6, "cooldown": "2s", "probes": 2, "slow_rate": 0.99, "slow_call": "1s"},
                 "retry": {"attempts": 3, "budget": {"capacity": 50, "ratio": 0.1}}, "bulkhead": {"limit": 3}},
    "ledger": {"breaker": {"failure_rate": 0.5, "min_calls": 20, "cooldown": "1s"}},
    "shard:eu-1.a_b": {"latency": False, "breaker": {}},
    "mail": {"breaker": {"consecutive": 3, "cooldown": "1s", "mode": "shadow"}, "bulkhead": {"limit": 2, "mode": "shadow"},
             "retry": {"attempts": 3, "budget": {"in_flight_floor": 1}}, "rate": {"per_second": 5, "burst": 20},
             "throttle": {"k": 1.5, "window": "10s"}},
}}


def mixed_run(rescd, steps, seed):
    """Everything that can happen to a call, in an order that is the same each time; some calls stay inside."""
    dice = random.Random(seed)
    crew = rescd.crew(3)
    inside = []
    outcomes = ["ok"] * 8 + ["fail"] * 4 + ["timeout", "ignored", "cancelled"]
    for _ in range(steps):
        worker = dice.choice(crew)
        name = dice.choice(list(CONFIG["resources"]))
        what = dice.random()
        if what < 0.55:
            ticket = worker.enter(name, *([dice.choice([0, 1000])] if dice.random() < 0.1 else []), retry=dice.random() < 0.2)
            if ticket["r"] == 0:
                inside.append((worker, ticket))
            else:
                worker.ask("fallback", name, dice.choice(["stale", "cache", "default", "empty", "alternative", "what else"]))
        elif what < 0.9 and inside:
            worker, ticket = inside.pop(dice.randrange(len(inside)))
            assert worker.leave(ticket, dice.choice(outcomes))["r"] in (0, 128)
        elif what < 0.97:
            worker.ask("retry", name, dice.choice(outcomes), dice.randint(0, 3))
        elif what < 0.99:
            rescd.advance("%dms" % dice.choice([10, 700, 1500]))
        else:
            rescd.ctl(*dice.choice([["force", name, "open", "--for", "500ms", "--why", "dice"], ["reset", name]]))
    return crew, inside


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_library_snapshot_and_metrics_agree_on_every_number(host, seed):
    rescd = host(CONFIG)
    crew, inside = mixed_run(rescd, 600, seed)
    rescd.restart()
    snapshot = {r["name"]: r for r in rescd.snapshot()["resources"]}
    page = rescd.scrape()
    assert set(snapshot) == set(CONFIG["resources"])
    for name in snapshot:
        agreed(rescd, crew[0], name, page)
        assert crew[0].counters(name) == crew[1].counters(name) == crew[2].counters(name)
    held = {}
    for worker, _ in inside:
        held[worker.pid] = held.get(worker.pid, 0) + 1
    assert {w["pid"]: w["permits"] for w in rescd.snapshot()["workers"]} == {w.pid: held.get(w.pid, 0) for w in crew}


def test_snapshot_and_metrics_agree_on_idempotency_keys(host):
    rescd = host({"once_keys": 32, "resources": {"orders": {"once": {"ttl": "10s"}}}})
    worker, dying = rescd.worker(), rescd.worker()
    for key in ("a", "b", "c"):
        worker.once_done(worker.once_begin("orders", key), b"answer")
    worker.once_begin("orders", "d")
    dying.once_begin("orders", "e")

    def keys():
        """The table as the snapshot has it, after the metrics page has said the same."""
        page, seen = rescd.scrape(), rescd.snapshot()["once"]
        for state in ("working", "done", "unknown"):
            assert metric(page, "resc_once_keys", state=state) == seen[state], state
        assert metric(page, "resc_once_keys_expired") == seen["expired"] and metric(page, "resc_once_keys_limit") == seen["size"]
        return seen["working"], seen["done"], seen["unknown"], seen["expired"]

    assert keys() == (2, 3, 0, 0)
    dying.kill()
    until(lambda: rescd.snapshot()["once"]["unknown"] == 1, what="the key of the dead is unknown")
    assert keys() == (1, 3, 1, 0)
    assert worker.once_begin("orders", "a")["r"] == 161 and worker.once_begin("orders", "e")["r"] == 162
    counters = rescd.snapshot()["resources"][0]["counters"]
    assert counters == worker.counters("orders")
    assert {k: v for k, v in counters.items() if k.startswith("once_")} == {
        "once_first": 5, "once_done": 3, "once_replayed": 1, "once_busy": 0, "once_unknown": 1, "once_full": 0}
    assert "first 5, done 3, replayed 1, unknown 1" in rescd.ctl("show", "orders").stdout
    rescd.advance("11s")
    assert keys() == (1, 3, 1, 4)


@pytest.mark.parametrize("seed", [4, 5])
def test_counters_add_up_whatever_happens(host, seed):
    rescd = host(CONFIG)
    crew, inside = mixed_run(rescd, 500, seed)
    for name, seen in ((r["name"], r) for r in rescd.snapshot()["resources"]):
        c = seen["counters"]
        assert c["enters"] == c["admitted"] + sum(v for k, v in c.items() if k.startswith("refused_")), name
        assert c["admitted"] == sum(v for k, v in c.items() if k.startswith("ended_")) + seen["permits"]["in_use"] + c["untracked"], name
        assert c["opened"] + c["half_opened"] + c["closed"] <= seen["generation"]
        assert seen["window"]["failures"] <= seen["window"]["calls"]
    for worker, ticket in inside:
        worker.leave(ticket)
    assert [r["permits"]["in_use"] for r in rescd.snapshot()["resources"]] == [0] * len(CONFIG["resources"])


def test_no_snapshot_under_load_shows_an_impossible_combination(host):
    """A10: state, times, probes and permits of one document belong together, while workers are killed."""
    rescd = host({"resources": {"payments": {"breaker": {"failure_rate": 0.5, "min_calls": 20, "window": "1s", "cooldown": "9ms", "probes": 2},
                                             "bulkhead": {"limit": 6}}}})
    with open(os.path.join(TOP, "docs", "snapshot.schema.json"), encoding="utf-8") as file:
        schema = jsonschema.Draft202012Validator(json.load(file))
    crew = rescd.crew(4)
    for i, worker in enumerate(crew):
        worker.busy("payments", 0.6, i + 1)
    last = {}
    for turn in range(60):
        rescd.advance("5ms")
        snapshot = rescd.snapshot()
        if turn % 10 == 0:
            schema.validate(snapshot)
            crew[turn // 10 % 4].kill()
            crew[turn // 10 % 4] = rescd.worker()
            crew[turn // 10 % 4].busy("payments", 0.6, turn + 9)
        seen = snapshot["resources"][0]
        assert (seen["opened_since_ms"] is not None) == (seen["state"] == "open") == (seen["due_ms"] is not None)
        assert seen["since_ms"] <= snapshot["now_ms"] and (seen["due_ms"] or 0) <= snapshot["now_ms"] + 9
        assert seen["probes"]["out"] <= 2 and (seen["probes"]["out"] == 0 or seen["state"] == "half_open")
        assert seen["permits"]["in_use"] <= 6
        c = seen["counters"]
        assert c["enters"] == c["admitted"] + sum(v for k, v in c.items() if k.startswith("refused_"))
        assert all(value >= last.get(key, 0) for key, value in c.items())
        last = c
    told = [worker.idle() for worker in crew]
    assert sum(t["errors"] + t["leave_errors"] for t in told) == 0
    worker = rescd.worker()

    def closed():
        rescd.advance("10ms")
        worker.call("payments")
        return rescd.show("payments")["state"] == "closed"

    until(closed, what="closed, once the failures have stopped")
    until(lambda: rescd.show("payments")["permits"]["in_use"] == 0, what="nothing in use")


@pytest.mark.smoke
def test_openmetrics_and_the_snapshot_of_the_release(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.loop("payments", 1000, 0.01)
    request = urllib.request.Request(rescd.metrics_url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    with urllib.request.urlopen(request, timeout=10) as page:
        families = list(parse_openmetrics(page.read().decode()))
    page = {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}
    seen = rescd.show("payments")
    assert worker.counters("payments") == seen["counters"]
    assert metric(page, "resc_admitted_total", resource="payments") == seen["counters"]["admitted"]
    assert metric(page, "resc_latency_seconds_count", resource="payments") == seen["latency"]["count"] == seen["counters"]["admitted"]
    with open(os.path.join(TOP, "docs", "snapshot.schema.json"), encoding="utf-8") as file:
        jsonschema.Draft202012Validator(json.load(file)).validate(rescd.snapshot())


@pytest.mark.smoke
def test_the_programs_in_the_README_compile_and_run(host, tmp_path):
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as file:
        programs = [text for text in re.findall(r"^```c\n(.*?)^```", file.read(), re.M | re.S) if "main(" in text]
    assert programs, "the README has a C program"
    rescd = host(CONFIG)
    for i, text in enumerate(programs):
        source, program = str(tmp_path / ("p%d.c" % i)), str(tmp_path / ("p%d" % i))
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        subprocess.run(["gcc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-I", os.path.join(TOP, "lib"), "-o", program,
                        source, "-L", BUILD, "-lresc", "-Wl,-rpath," + BUILD], check=True)
        before = rescd.show("payments")["counters"]["enters"]
        done = subprocess.run([program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False,
                              env={**os.environ, "RESC_INSTANCE": rescd.instance})
        assert done.returncode == 0, done
        assert rescd.show("payments")["counters"]["enters"] > before
        assert rescd.snapshot()["workers"] == []
