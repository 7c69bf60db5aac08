# SPDX-License-Identifier: MIT
"""Versions side by side: workers of three minors on one segment, a rescd that takes over from an older or a newer one, and resctl between.

The other versions are built by make versions: see tests/upgrade/derive. The older one is of minor 0; in the newer one every record is
longer than here, and there are more counters.
"""
import os
import re

import pytest
from harness import BUILD, TOP, until

OLDER = os.path.join(TOP, "build", "older", "build", "test")
NEWER = os.path.join(TOP, "build", "newer", "build", "test")
FORMATS = {OLDER: "1.0", BUILD: "1.2", NEWER: "1.3"}
NAMES = {OLDER: "older", BUILD: "ours", NEWER: "newer"}
UPGRADES = [(OLDER, BUILD), (BUILD, NEWER), (OLDER, NEWER)]
ROLLBACKS = [(NEWER, BUILD), (BUILD, OLDER), (NEWER, OLDER)]
POINTS = ["succession.old_linked", "succession.linked", "succession.superseded", "succession.moved_one", "succession.moved",
          "succession.renamed"]
CONFIG = {"resources": {
    "payments": {"breaker": {"consecutive": 2, "cooldown": "10s", "probe_timeout": "1h"}, "bulkhead": {"limit": 8},
                 "retry": {"budget": {"capacity": 20, "ratio": 0, "per_second": 0}}},
    "ledger": {"breaker": {"failure_rate": 0.9, "min_calls": 1000}, "bulkhead": {"limit": 32}},
    "mail": {"rate": {"per_second": 1, "burst": 10}, "once": {"ttl": "1h"}},
    "search": {"breaker": {"consecutive": 5}},
}}

pytestmark = pytest.mark.skipif(os.environ.get("RESC_VARIANT", "test") != "test", reason="the other versions are test builds")


@pytest.fixture(scope="session", autouse=True)
def versions():
    missing = [p for p in (OLDER, NEWER) if not os.access(os.path.join(p, "tests", "system", "worker"), os.X_OK)]
    assert not missing, "%s is not built: make versions" % missing[0]


def named(value):
    return "-to-".join(NAMES[v] for v in value) if isinstance(value, tuple) else NAMES.get(value, value)


def start(host, build, config=None):
    """rescd and resctl of that version."""
    rescd = host(config or CONFIG, start=False)
    rescd.build = build
    return rescd.start()


def take_over(rescd, build, env=None):
    """What an operator does: stop, install, start."""
    rescd.stop()
    rescd.build = build
    rescd.start(env)


def segment_format(rescd):
    return rescd.snapshot()["segment"]["format"]


class Scene:
    """All kinds of things on their way, held by workers of two versions."""

    def __init__(self, rescd, one, other):
        self.rescd, self.one, self.other = rescd, one, other
        self.kept = [(w, t) for w in (one, other) for t in w.hold("payments", 2)]
        assert one.granted("payments", 3) == 3
        one.fail("payments", 2)
        rescd.advance("10s")
        self.probe = other.enter("payments")
        assert self.probe["probe"]
        one.loop("ledger", 300, 0.25)
        other.loop("ledger", 200, 0.25)
        assert [one.call("mail")["r"] for _ in range(4)] == [0] * 4
        self.done = one.once_begin("mail", "done")
        assert one.once_done(self.done, b"stored")["r"] == 0
        self.working = other.once_begin("mail", "working")
        rescd.ctl("force", "search", "open", "--for", "1h", "--why", "tested")
        assert one.call("nobody")["r"] != 0
        self.before = {r["name"]: r for r in rescd.snapshot()["resources"]}

    def check(self):
        """All of it is there, works, and comes back, for both."""
        rescd, one, other = self.rescd, self.one, self.other
        seen = {r["name"]: r for r in rescd.snapshot()["resources"]}
        assert (seen["payments"]["state"], seen["payments"]["probes"]["out"], seen["payments"]["retry"]["tokens"]) == ("half_open", 1, 17)
        for name, before in self.before.items():
            for counter, value in before["counters"].items():
                assert seen[name]["counters"].get(counter, value) >= value, (name, counter)
            assert seen[name]["generation"] == before["generation"]
        assert seen["ledger"]["window"]["failures"] == self.before["ledger"]["window"]["failures"]
        assert seen["search"]["override"]["mode"] == "open"
        for worker in (one, other):
            assert worker.call("search")["answer"] == "forced_open"
            assert worker.enter("payments")["answer"] == "half_open"
            assert worker.once_begin("mail", "done")["stored"] == b"stored"
        assert one.once_begin("mail", "working")["answer"] == "once_busy"
        assert other.once_done(self.working, b"late")["r"] == 0
        until(lambda: one.once_begin("mail", "working")["stored"] == b"late", what="the answer to a key that was begun before")
        assert [other.call("mail")["r"] for _ in range(6)] == [0] * 6
        assert one.call("mail")["answer"] == "rate"
        assert other.leave(self.probe)["r"] == 0
        until(lambda: one.state("payments")["state"] == other.state("payments")["state"], what="one view")
        assert rescd.show("payments")["state"] == "closed"
        # Four permits are out in the former segment: never more than eight in all.
        fresh = one.hold("payments", 2) + other.hold("payments", 2)
        assert {w.enter("payments")["answer"] for w in (one, other)} == {"full"}
        for worker, ticket in self.kept:
            assert worker.leave(ticket)["r"] == 128  # stale, and given back
            fresh.append(one.until_admitted("payments", what="the permit that was given back")["ticket"])
            assert other.enter("payments")["answer"] == "full"
        assert len(fresh) == 8


# ---- side by side ----


@pytest.mark.parametrize("build", FORMATS, ids=named)
def test_workers_of_three_versions_share_breaker_permits_tokens_and_counters(host, build):
    rescd = start(host, build)
    assert segment_format(rescd) == FORMATS[build]
    crew = [rescd.worker(build=b) for b in FORMATS]
    told = [w.loop("ledger", 200, 0.25, seed=i + 1) for i, w in enumerate(crew)]
    assert [(t["errors"], t["leave_errors"]) for t in told] == [(0, 0)] * 3
    counters = [w.counters("ledger") for w in crew]
    for key, said in (("enters", "enters"), ("admitted", "admitted"), ("ended_ok", "ok"), ("ended_fail", "fail")):
        assert {c[key] for c in counters} == {sum(t[said] for t in told)}, key
    held = [w.hold("payments", 2) for w in crew]
    held[0] += crew[0].hold("payments", 2)
    assert [w.enter("payments")["answer"] for w in crew] == ["full"] * 3
    for worker, tickets in zip(crew, held):
        assert [worker.leave(t)["r"] for t in tickets] == [0] * len(tickets)
    assert [w.granted("payments", 1) for w in crew] == [1] * 3
    assert [w.state("payments")["tokens"] for w in crew] == [17] * 3
    # Failures of two open it for the third, whose probe closes it for all.
    crew[0].fail("payments", 1)
    crew[2].fail("payments", 1)
    assert [w.enter("payments")["answer"] for w in crew] == ["open"] * 3
    rescd.advance("10s")
    assert crew[1].call("payments")["r"] == 0
    assert [w.call("payments")["r"] for w in crew] == [0] * 3
    # A reason to count that only the newer one knows does not land in anybody else's counter.
    assert [w.ask("fallback", "ledger", "newer")["r"] for w in crew] == [0] * 3
    assert [w.counters("ledger")["fallback_other"] for w in crew] == [2] * 3
    assert crew[2].counters("ledger")["fallback_newer"] == 1
    # The life of each ends the same for all.
    crew[2].hold("ledger", 5)
    crew[2].kill()
    until(lambda: crew[0].state("ledger")["in_flight"] == 0, what="the permits of the dead one")


def test_who_is_older_is_said(host):
    rescd = start(host, BUILD)
    old, ours, new = (rescd.worker(build=b) for b in FORMATS)
    seen = {w["pid"]: (w["version"], w["format"]) for w in rescd.snapshot()["workers"]}
    assert seen == {old.pid: (None, None), ours.pid: ("0.1.0", "1.2"), new.pid: ("0.9.0", "1.3")}
    daemon = rescd.snapshot()["daemon"]
    assert (daemon["version"], daemon["format"], daemon["workers_older"]) == ("0.1.0", "1.2", 1)
    assert re.search(r"older +here", rescd.ctl("workers").stdout) and "0.9.0 (1.3)" in rescd.ctl("workers").stdout
    assert "3 workers attached, 1 with an older library than rescd" in rescd.ctl("list").stdout
    until(lambda: "1 of 3 workers have an older library" in rescd.log(), what="a line in the log")
    old.end()
    until(lambda: "no worker has an older library" in rescd.log(), what="and that it is over")
    # A slot that a newer one had does not make an older one newer.
    new.end()
    ours.end()
    again = [rescd.worker(build=OLDER) for _ in range(3)]
    assert [w["version"] for w in rescd.snapshot()["workers"]] == [None] * len(again)


# ---- rescd takes over ----


@pytest.mark.parametrize("versions", UPGRADES + ROLLBACKS, ids=named)
def test_rescd_takes_over_with_everything_on_its_way(host, versions):
    before, after = versions
    rescd = start(host, before)
    scene = Scene(rescd, rescd.worker(build=before), rescd.worker(build=after))
    generation = rescd.snapshot()["segment"]["generation"]
    take_over(rescd, after)
    segment = rescd.snapshot()["segment"]
    assert (segment["format"], segment["predecessor"]) == (FORMATS[after], generation)
    scene.check()
    assert {w.status()["generation"] for w in (scene.one, scene.other)} == {segment["generation"]}
    assert len(rescd.events("superseded")) == 1


@pytest.mark.parametrize("versions", [(BUILD, NEWER, BUILD, OLDER, NEWER)], ids=["there and back"])
def test_under_load_no_worker_sees_an_error_and_no_call_is_lost(host, versions):
    rescd = start(host, versions[0])
    crew = [rescd.worker(build=b) for b in FORMATS]
    for i, worker in enumerate(crew):
        worker.busy("ledger", 0.2, i + 1)
    highest = 0
    for build in versions[1:]:
        take_over(rescd, build)
        until(lambda: segment_format(rescd) == FORMATS[build], patience=20, what="the segment is of the version of rescd")
        enters = rescd.show("ledger")["counters"]["enters"]
        assert enters > highest
        highest = enters
    told = [worker.idle() for worker in crew]
    assert [(t["errors"], t["leave_errors"], t["refused"]) for t in told] == [(0, 0, 0)] * 3, told

    def counted():
        return [rescd.show("ledger")["counters"][key] for key in ("enters", "admitted", "ended_ok", "ended_fail")]

    wanted = [sum(t[key] for t in told) for key in ("enters", "admitted", "ok", "fail")]
    until(lambda: counted() == wanted, patience=30, what="every call is counted, once")
    assert rescd.show("ledger")["permits"]["in_use"] == 0


def test_what_a_newer_version_counted_survives_a_rollback(host):
    rescd = start(host, NEWER)
    worker = rescd.worker(build=NEWER)
    assert worker.ask("fallback", "ledger", "newer")["r"] == 0
    worker.end()  # a newer one that followed would carry it along by itself
    for build in (OLDER, NEWER):
        take_over(rescd, build)
        # The former segment is gone before the next takeover: whoever comes then has only what was carried.
        until(lambda: segment_format(rescd) == FORMATS[build] and rescd.files() == [os.path.basename(rescd.segment)], what="only one file")
    assert rescd.show("ledger")["counters"]["fallback_newer"] == 1


def test_an_injection_goes_on_in_a_newer_segment_and_is_not_there_in_an_older_one(host):
    rescd = start(host, BUILD, {"resources": {"payments": {"injection": True}, "ledger": {}}})
    ours, older = rescd.worker(build=BUILD), rescd.worker(build=OLDER)
    rescd.ctl("inject", "payments", "--fail", "50%", "--for", "60s", "--why", "game day")
    assert older.loop("payments", 20)["errors"] == 0 and rescd.show("payments")["counters"]["injected_failures"] == 0
    ours.loop("payments", 20)
    older.end()
    take_over(rescd, NEWER)
    ours.loop("payments", 20)
    seen = rescd.show("payments")
    assert (seen["counters"]["injected_failures"], seen["injection"]["why"]) == (20, "game day")
    take_over(rescd, OLDER)
    until(lambda: ours.call("ledger")["r"] == 0 and segment_format(rescd) == "1.0", what="the older format")
    assert ours.loop("payments", 20)["errors"] == 0
    rescd.build = BUILD  # its resctl
    assert rescd.show("payments")["injection"] is None and rescd.show("payments")["counters"]["injected_failures"] == 20
    done = rescd.ctl("inject", "payments", "--fail", "50%", "--for", "60s", "--why", "game day", code=1)
    assert "older format" in done.stderr


# The upgrade goes on after each step; it is taken back, or a rollback is, after those from which there is only forward.
CUT_OFF = ([(BUILD, NEWER, NEWER, point) for point in POINTS] + [(BUILD, NEWER, BUILD, point) for point in POINTS[2:5]] +
           [(NEWER, OLDER, NEWER, point) for point in POINTS[4:]])


@pytest.mark.parametrize("before, after, last, point", CUT_OFF, ids=named)
def test_killed_at_each_step_of_taking_over_either_version_goes_on(host, before, after, last, point):
    rescd = start(host, before)
    scene = Scene(rescd, rescd.worker(build=before), rescd.worker(build=after))
    rescd.stop()
    rescd.build = after
    rescd.spawn({"RESC_FAILPOINT": point + "=kill"})
    assert rescd.died() == -9
    # Before anybody repairs anything, workers go on.
    told = [w.loop("ledger", 100) for w in (scene.one, scene.other)]
    assert [(t["errors"], t["leave_errors"]) for t in told] == [(0, 0)] * 2
    rescd.build = last
    rescd.start()
    assert rescd.show("ledger")["counters"]["enters"] == 700
    scene.check()
    worker = rescd.worker(build=last)
    until(lambda: worker.call("ledger")["r"] == 0 and segment_format(rescd) == FORMATS[last], what="the version of who runs")


def test_a_takeover_waits_for_the_calls_that_the_last_one_left(host):
    """A segment that owes permits to its predecessor is not superseded: rescd serves it as it is, and says why."""
    rescd = start(host, BUILD)
    worker = rescd.worker()
    kept = worker.hold("payments", 2)
    assert rescd.load({"resources": {**CONFIG["resources"], **{"s%d" % i: {} for i in range(30)}}})["replaced"]
    take_over(rescd, NEWER)
    until(lambda: "keeps format 1.2 for now" in rescd.log() or segment_format(rescd) == "1.3", what="a word")
    assert segment_format(rescd) == "1.2" and "2 calls" in rescd.log()
    changed = {"resources": {**CONFIG["resources"], "payments": {"bulkhead": {"limit": 3}}, **{"s%d" % i: {} for i in range(30)}}}
    assert "payments" in rescd.load(changed)["changed"]
    assert [worker.leave(t)["r"] for t in kept] == [0, 0]
    until(lambda: segment_format(rescd) == "1.3", patience=20, what="its own format, as soon as that can be")
    assert rescd.show("payments")["permits"]["limit"] == 3


# ---- resctl ----


@pytest.mark.parametrize("build, tool", [(NEWER, OLDER), (NEWER, BUILD), (OLDER, BUILD), (OLDER, NEWER), (BUILD, OLDER)], ids=named)
def test_resctl_of_another_version_works(host, build, tool):
    rescd = start(host, build)
    worker = rescd.worker(build=build)
    worker.loop("ledger", 50)
    worker.hold("payments", 2)
    rescd.build = tool
    assert rescd.show("ledger")["counters"]["enters"] == 50
    assert rescd.show("payments")["permits"]["in_use"] == 2
    assert [w["permits"] for w in rescd.ask("workers")] == [2]
    assert "payments" in rescd.ctl("list").stdout
    rescd.ctl("force", "ledger", "open", "--for", "1m", "--why", "tested")
    assert worker.enter("ledger")["answer"] == "forced_open"
    rescd.ctl("release", "ledger")
    assert worker.call("ledger")["r"] == 0
    assert [e["kind"] for e in rescd.events("forced")] == ["forced"]
    assert rescd.reload()["ok"]


# ---- another major ----


def set_major(path, major):
    """magic, then major. Nothing else is believed of a header of another major."""
    with open(path, "r+b") as file:
        file.seek(8)
        file.write(major.to_bytes(2, "little"))


@pytest.mark.parametrize("major, advice", [(2, "upgrade this program"), (0, "upgrade rescd")])
def test_another_major_is_left_alone_while_workers_live_in_it(host, major, advice):
    rescd = start(host, BUILD)
    worker = rescd.worker()
    rescd.stop()
    set_major(rescd.segment, major)
    said = rescd.fails_to_start()
    assert advice in said and "Workers live in it" in said, said
    assert worker.call("ledger")["r"] == 0
    # Who comes now is on its own, and says why.
    late = rescd.worker()
    assert late.status()["mode"] == "private" and advice in late.status()["reason"]
    assert late.call("ledger")["r"] == 0
    failed = rescd.ctl("list", code=None)
    assert failed.returncode != 0 and advice in failed.stderr
    worker.end()
    rescd.start()
    assert "removed a segment that cannot be used any more" in rescd.log()
    until(lambda: late.call("ledger")["r"] == 0 and late.status()["mode"] == "shared", what="the late one joins")


# ---- the table ----


def test_every_field_of_the_segment_is_in_the_layout_table():
    with open(os.path.join(TOP, "lib", "segment.h"), encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    with open(os.path.join(TOP, "lib", "layout.h"), encoding="utf-8") as file:
        table = set(re.findall(r"X\(\d+, (\w+), (\w+)\)", file.read()))
    fields = {(record, re.search(r"(\w+)(\[.*\])*$", line.strip(), re.S)[1])
              for record, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, flags=re.S | re.M)
              for line in body.split(";") if line.strip()}
    assert len(fields) > 150
    unlisted = {(r, f) for r, f in fields - table if f not in ("reserved", "copies")}
    assert not unlisted, "in segment.h, and not in the table of layout.h: %s" % sorted(unlisted)
    assert not table - fields
