# SPDX-License-Identifier: MIT
"""Idempotency keys over the workers of a host: charged once, whoever asks again, dies, or gets a new segment in between."""
import os
import random
import subprocess
import time

import pytest
from harness import HELPERS, until

needs_points = pytest.mark.skipif(os.environ.get("RESC_VARIANT") == "release", reason="needs failpoints")


def config(extra=0, **once):
    return {"resources": {"payments": {"once": once}, **{"shard-%d" % i: {} for i in range(extra)}}}


class NoKey:
    """Every request charges."""

    def start(self, worker):
        return True

    def end(self, worker, ticket):
        pass


class KeyAfter:
    """The key is stored when the work is done."""

    def __init__(self):
        self.stored = False

    def start(self, worker):
        return None if self.stored else True

    def end(self, worker, ticket):
        self.stored = True


class KeyBefore:
    """resc_once_begin, the work, resc_once_done."""

    def start(self, worker):
        told = worker.once_begin("payments", "order-1")
        return told if told["answer"] == "ok" else None

    def end(self, worker, ticket):
        assert worker.once_done(ticket, b"receipt")["r"] == 0


@pytest.mark.smoke
@pytest.mark.parametrize("keys, charged", [(NoKey, 3), (KeyAfter, 2), (KeyBefore, 1)])
def test_E3_a_client_that_gives_up_too_early_is_charged(host, keys, charged):
    """Charging takes 150 ms, the client gives up after 100 and asks another worker, three times: 0, 100 and 200 ms."""
    rescd = host(config())
    crew = rescd.crew(3)
    way = keys()
    begun = {}
    for at, what, tries in sorted([(100 * i, "start", i) for i in range(3)] + [(100 * i + 150, "end", i) for i in range(3)]):
        if what == "start":
            begun[tries] = way.start(crew[tries])
        elif begun[tries] is not None:
            way.end(crew[tries], begun[tries])
    assert sum(ticket is not None for ticket in begun.values()) == charged
    if keys is KeyBefore:
        told = [w.once_begin("payments", "order-1") for w in crew]
        assert [(t["answer"], t["stored"]) for t in told] == [("once_done", b"receipt")] * 3
        counters = rescd.show("payments")["counters"]
        assert (counters["once_first"], counters["once_busy"], counters["once_replayed"]) == (1, 1, 4)


@pytest.mark.parametrize("on_death, told", [("unknown", "once_unknown"), ("free", "ok")])
def test_F_rescd_reaps_the_key_of_a_killed_worker(host, on_death, told):
    rescd = host(config(on_death=on_death))
    victim, other = rescd.crew(2)
    assert victim.once_begin("payments", "order-1")["answer"] == "ok"
    assert other.once_begin("payments", "order-1")["answer"] == "once_busy"
    victim.kill()
    until(lambda: other.once_begin("payments", "order-1")["answer"] == told, what="the key of the dead is " + told)


def test_keys_stay_when_rescd_is_killed_and_comes_back(host):
    rescd = host(config())
    one, other = rescd.crew(2)
    ticket = one.once_begin("payments", "order-1")
    rescd.kill()
    assert other.once_begin("payments", "order-1")["answer"] == "once_busy"
    assert one.once_done(ticket, b"a")["r"] == 0
    assert other.once_begin("payments", "order-2")["answer"] == "ok"
    rescd.start()
    assert [one.once_begin("payments", k)["answer"] for k in ("order-1", "order-2")] == ["once_done", "once_busy"]


def arrange(rescd):
    """A key in each phase: done, in work (two), unknown. (the worker that has those in work, their tickets)"""
    worker, victim = rescd.crew(2)
    assert worker.once_done(worker.once_begin("payments", "done"), b"receipt")["r"] == 0
    assert victim.once_begin("payments", "lost")["answer"] == "ok"
    victim.kill()
    until(lambda: worker.once_begin("payments", "lost")["answer"] == "once_unknown", what="unknown")
    return worker, [worker.once_begin("payments", key) for key in ("work", "undo")]


def check_carried(worker, tickets, other):
    keys = ("done", "work", "undo", "lost")
    assert [other.once_begin("payments", k)["answer"] for k in keys] == ["once_done", "once_busy", "once_busy", "once_unknown"]
    assert worker.once_done(tickets[0], b"late")["r"] == 0
    assert worker.once_abandon(tickets[1])["r"] == 0
    until(lambda: other.once_begin("payments", "work")["answer"] == "once_done", what="settled")
    assert other.once_begin("payments", "work")["stored"] == b"late"
    until(lambda: other.once_begin("payments", "undo")["answer"] == "ok", what="free again")


def test_keys_in_each_phase_come_into_a_larger_segment(host):
    rescd = host(config())
    worker, tickets = arrange(rescd)
    assert rescd.load(config(extra=40))["replaced"]
    check_carried(worker, tickets, rescd.worker())

    def alone():
        worker.once_begin("payments", "done")
        return rescd.files() == [os.path.basename(rescd.segment)]

    until(alone, patience=20, what="the former segment is gone")


@needs_points
@pytest.mark.parametrize("point", ["succession.linked", "succession.superseded", "once.closed", "once.written", "once.recorded",
                                   "once.moved", "succession.moved", "succession.renamed"])
def test_rescd_killed_while_keys_move_loses_none(host, point):
    rescd = host(config())
    worker, tickets = arrange(rescd)
    rescd.restart(env={"RESC_FAILPOINT": point + "=kill"})
    rescd.write_config(config(extra=40))
    rescd.ctl("reload", code=3)
    assert rescd.died() == -9
    # Before anybody repairs anything, workers go on.
    assert worker.once_begin("payments", "done")["stored"] == b"receipt"
    assert worker.once_begin("payments", "new")["answer"] == "ok"
    assert worker.once_begin("payments", "work")["answer"] == "once_busy"
    rescd.start()
    other = rescd.worker()
    assert other.once_begin("payments", "new")["answer"] == "once_busy"
    check_carried(worker, tickets, other)


def test_32_processes_on_1000_keys_with_random_kills_and_a_growing_segment(host, tmp_path):
    """A key is first again only when its owner was killed before it was done, and unknown only when one was killed while it stored the answer."""
    rescd = host(config(on_death="free"))
    log = str(tmp_path / "log")
    dice = random.Random(7)
    killed = set()

    def start(seed):
        return subprocess.Popen([os.path.join(HELPERS, "key_hammer"), rescd.instance, "payments", "1000", str(seed), log],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    crew = [start(seed) for seed in range(1, 33)]
    for round_number in range(60):
        time.sleep(dice.uniform(0, 0.02))  # deaths at random moments are the point
        victim = crew.pop(dice.randrange(len(crew)))
        victim.kill()
        victim.wait()
        killed.add(victim.pid)
        crew.append(start(100 + round_number))
        if round_number in (20, 40):
            rescd.write_config(config(extra=round_number, on_death="free"))
            until(lambda: rescd.reload()["ok"], what="a larger segment")

    def begun():
        with open(log, encoding="ascii") as file:
            return {line.split()[1] for line in file}

    until(lambda: len(begun()) > 900, patience=60, what="most of the keys were begun")
    ended = [p.communicate(timeout=60)[0] for p in crew]
    assert all(p.returncode == 0 for p in crew) and all(ended)
    firsts, done, unknown = told = {}, {}, {}
    for line in open(log, encoding="ascii"):
        what, key, number = line.split()
        assert what in "FDU", line
        told["FDU".index(what)].setdefault(key, []).append(int(number))
    assert all(len(pids) == 1 for pids in done.values())
    for key, pids in firsts.items():
        assert all(pid in killed and pid not in done.get(key, []) for pid in pids[:-1]), (key, pids, done.get(key))
    assert all(firsts[key][-1] in killed and key not in done for key in unknown), unknown
    assert any(len(pids) > 1 for pids in firsts.values())
