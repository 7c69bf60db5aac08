# SPDX-License-Identifier: MIT
"""Resources made at run time from the patterns of the configuration: by whom, how many, for how long, and what a death or a reload does."""
import errno
import signal
import time

import pytest
from harness import may, metric, until

CONFIG = {"made": 64, "idle": "1h", "resources": {
    "payments": {"breaker": {"consecutive": 3, "cooldown": "10s"}},
    "shard-*": {"breaker": {"consecutive": 5, "cooldown": "10s"}, "bulkhead": {"limit": 10}},
    "shard-hot-*": {"breaker": {"consecutive": 2, "cooldown": "10s"}},
    "shard-hot-named": {"breaker": {"consecutive": 7, "cooldown": "10s"}},
}}
PATIENCE_MS = 1500  # of a lookup; see request.h
WITHOUT_INOTIFY = ["unshare", "--user", "--map-root-user", "sh", "-c",
                   'echo 0 >/proc/sys/user/max_inotify_instances && exec "$@"', "sh"]
STEPS = ["request.taken", "request.named", "request.asked", "request.answered"]


def config(resources=None, **keys):
    return {**CONFIG, **keys, "resources": {**CONFIG["resources"], **(resources or {})}}


def lookup(worker, *names):
    for name in names:
        answer = worker.ask("lookup", name)
        assert answer["r"] == 0, (name, answer)


def refused(worker, name):
    """The lookup's errno, and its words."""
    answer = worker.ask("lookup", name)
    return -answer["r"], answer.get("error", "")


def names(rescd):
    return {r["name"] for r in rescd.snapshot()["resources"]}


def consecutive(rescd, name):
    return rescd.show(name)["policy"]["breaker"]["consecutive"]


def looked_up_again(worker, name):
    """A lookup that succeeds now: what was refused is refused for a second without a question."""
    until(lambda: worker.ask("lookup", name)["r"] == 0, what="%s can be looked up" % name)


# ---- making ----

def test_a_name_gets_the_policy_of_the_longest_pattern_that_matches_it(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    lookup(worker, "shard-7", "shard-", "shard-hot-7", "shard-hot-named")
    assert [consecutive(rescd, n) for n in ("shard-7", "shard-", "shard-hot-7", "shard-hot-named")] == [5, 5, 2, 7]
    worker.fail("shard-hot-7", 2)
    worker.fail("shard-7", 4)
    assert (worker.state("shard-hot-7")["state"], worker.state("shard-7")["state"]) == ("open", "closed")


def test_what_one_worker_makes_all_workers_share(host):
    rescd = host(CONFIG)
    one, two = rescd.crew(2)
    one.fail("shard-7", 5)
    assert two.enter("shard-7")["answer"] == "open"


def test_H4_a_misspelt_name_is_an_error_with_words_and_never_unguarded(host):
    rescd = host(CONFIG)
    code, text = refused(rescd.worker(), "paymenst")
    assert code == errno.ENOENT and "paymenst" in text and "pattern" in text
    assert names(rescd) == {"payments", "shard-hot-named"}


def test_a_pattern_of_a_star_alone_takes_any_name(host):
    rescd = host(config({"*": {"breaker": {"consecutive": 9, "cooldown": "1s"}}}))
    worker = rescd.worker()
    lookup(worker, "whatever", "shard-1")
    assert (consecutive(rescd, "whatever"), consecutive(rescd, "shard-1")) == (9, 5)


def test_a_storm_of_workers_that_ask_for_the_same_names_makes_each_once(host):
    rescd = host(config(made=256))
    crew = rescd.crew(64)
    wanted = ["shard-%d" % i for i in range(200)]
    for n, worker in enumerate(crew):
        order = wanted[n * 3:] + wanted[:n * 3]  # each begins elsewhere
        worker.send("\n".join("lookup " + name for name in order))
    answers = [worker.receive() for worker in crew for _ in wanted]
    assert {a["r"] for a in answers} == {0}
    listed = sorted(r["name"] for r in rescd.snapshot()["resources"])
    assert listed == sorted(wanted + ["payments", "shard-hot-named"])
    assert rescd.log().count("made 'shard-") == 200


# ---- rescd is not there ----

def test_a_dead_rescd_is_an_error_within_a_bounded_time_and_all_is_well_when_it_is_back(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    lookup(worker, "shard-1")
    rescd.kill()
    began = time.monotonic()
    code, text = refused(worker, "shard-2")
    assert code == errno.EAGAIN and "rescd" in text and "shard-2" in text
    assert time.monotonic() - began < PATIENCE_MS / 1000 + 5  # a loaded machine may be late
    assert worker.call("shard-1")["r"] == 0 and worker.call("payments")["r"] == 0
    rescd.start()
    looked_up_again(worker, "shard-2")
    assert {"shard-1", "shard-2"} <= names(rescd)


def test_a_question_of_a_restart_is_answered_by_the_next_rescd(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    rescd.kill()
    worker.send("lookup", "shard-2")
    rescd.start()
    assert worker.receive()["r"] == 0


def test_a_stopped_rescd_is_an_error_within_a_bounded_time_and_all_is_well_when_it_goes_on(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    rescd.process.send_signal(signal.SIGSTOP)
    assert refused(worker, "shard-2")[0] == errno.EAGAIN
    rescd.process.send_signal(signal.SIGCONT)
    looked_up_again(worker, "shard-2")


def test_a_rescd_that_was_killed_keeps_what_was_made(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.fail("shard-7", 5)
    rescd.restart()
    assert worker.state("shard-7")["state"] == "open" and consecutive(rescd, "shard-7") == 5


@pytest.mark.skipif(not may(*WITHOUT_INOTIFY, "true"), reason="needs a user namespace with a limit of its own")
def test_a_rescd_without_inotify_answers_calls_too(host):
    rescd = host(config(idle="2s"), before=WITHOUT_INOTIFY)
    assert "no inotify" in rescd.log()
    worker = rescd.worker()
    worker.call("shard-7")

    def retired():
        worker.advance(ms=500)
        return "shard-7" not in names(rescd)

    until(retired, patience=30)
    assert worker.call("shard-7")["r"] == 0


# ---- deaths ----

@pytest.mark.parametrize("step", STEPS)
def test_F7_a_worker_that_dies_in_the_middle_of_a_question_leaves_nothing(host, step):
    rescd = host(CONFIG)
    dying = rescd.worker(env={"RESC_FAILPOINT": step + "=kill"})
    dying.send("lookup", "shard-1")
    assert dying.died() == -signal.SIGKILL
    for n in range(40):  # more than there are places
        if n % 20 == 0:  # and not more at once
            until(lambda: rescd.snapshot()["workers"] == [], what="the dead are reaped")
        dying = rescd.worker(env={"RESC_FAILPOINT": step + "=kill"})
        dying.send("lookup", "shard-1%d" % n)
        assert dying.died() == -signal.SIGKILL
    until(lambda: rescd.snapshot()["workers"] == [], what="the dead are reaped")
    lookup(rescd.worker(), "shard-1", "shard-2")


@pytest.mark.parametrize("step", STEPS)
def test_F7_a_worker_that_stops_in_the_middle_of_a_question_is_in_nobodys_way(host, step):
    rescd = host(CONFIG)
    stopping = rescd.worker(env={"RESC_FAILPOINT": step + "=stop"})
    stopping.send("lookup", "shard-1")
    stopping.until_stopped()
    worker = rescd.worker()
    lookup(worker, "shard-1", "shard-2")
    assert worker.call("shard-1")["r"] == 0
    stopping.signal(signal.SIGCONT)
    assert stopping.receive()["r"] == 0


@pytest.mark.parametrize("step", ["request.answering", "publish.state"])
def test_F7_a_rescd_that_dies_in_the_middle_of_making_leaves_it_to_the_next(host, step):
    rescd = host({**CONFIG, "resources": {n: p for n, p in CONFIG["resources"].items() if n.endswith("*")}},
                 env={"RESC_FAILPOINT": step + "=kill"})
    worker = rescd.worker()
    worker.send("lookup", "shard-1")
    assert rescd.died() == -signal.SIGKILL
    rescd.env = {}
    rescd.start()
    answer = worker.receive()
    assert answer["r"] in (0, -errno.EAGAIN), answer
    looked_up_again(worker, "shard-1")
    assert names(rescd) == {"shard-1"} and worker.call("shard-1")["r"] == 0


# ---- room ----

def test_F10_one_more_than_there_is_room_for_is_refused_with_words_and_disturbs_nobody(host):
    rescd = host(config(made=4))
    worker = rescd.worker()
    four = ["shard-%d" % i for i in range(4)]
    for name in four:
        worker.call(name)
    code, text = refused(worker, "shard-4")
    assert code == errno.ENOSPC and "shard-4" in text and '"made"' in text
    assert "no room for 'shard-4'" in rescd.log()
    assert metric(rescd.scrape(), "resc_lookups_refused_total") == 1
    assert names(rescd) == {*four, "payments", "shard-hot-named"}
    assert [worker.call(name)["r"] for name in [*four, "payments"]] == [0] * 5


def test_F10_the_longest_idle_makes_room_and_the_open_the_busy_and_the_forced_stay(host):
    rescd = host(config(made=5, idle="0s"))
    worker = rescd.worker()
    worker.fail("shard-open", 5)
    kept = worker.hold("shard-busy", 1)
    worker.call("shard-forced")
    rescd.ctl("force", "shard-forced", "open", "--for", "1h", "--why", "F10")
    worker.call("shard-old")

    def room():
        assert worker.call("shard-young")["r"] == 0
        worker.advance(ms=200)
        return worker.ask("lookup", "shard-new")["r"] == 0

    until(room)
    assert names(rescd) == {"shard-open", "shard-busy", "shard-forced", "shard-young", "shard-new", "payments", "shard-hot-named"}
    assert rescd.show("shard-open")["state"] == "open"
    assert worker.leave(kept[0])["r"] == 0
    # Its handle is good for ever: it is made again when there is room for it.
    until(lambda: worker.advance(ms=200) and worker.call("shard-old")["r"] == 0)


def test_F10_an_open_breaker_that_nobody_has_asked_for_an_hour_goes_like_the_closed(host):
    rescd = host(config(made=1, idle="0s"))
    worker = rescd.worker()
    worker.fail("shard-dead", 5)
    worker.advance(ms=3000 * 1000)
    assert refused(worker, "shard-1")[0] == errno.ENOSPC
    worker.advance(ms=1000 * 1000)
    looked_up_again(worker, "shard-1")
    assert names(rescd) == {"shard-1", "payments", "shard-hot-named"}


def test_names_that_come_and_go_use_up_the_table_which_is_replaced_and_nobody_notices(host):
    rescd = host(config(made=12))
    worker, other = rescd.crew(2)
    worker.fail("shard-open", 5)
    kept = worker.hold("shard-busy", 1)
    before = worker.status()["generation"]
    other.busy("payments")
    for generation in range(6):
        fresh = ["shard-%d-%d" % (generation, i) for i in range(10)]

        def room():
            worker.advance(ms=100)
            return all(worker.ask("lookup", name)["r"] == 0 for name in fresh)

        until(room, patience=30)
        assert [worker.call(name)["r"] for name in fresh] == [0] * 10
        if worker.status()["generation"] != before and kept:
            # A segment is not replaced again while a call of before the last time is inside.
            assert worker.leave(kept.pop())["r"] == 0
    load_seen = other.idle()
    assert load_seen["errors"] == 0 and load_seen["refused"] == 0, load_seen
    assert kept == [] and len(names(rescd)) <= 12 + 2
    seen = rescd.show("shard-open")
    assert seen["state"] == "open" and seen["counters"]["opened"] == 1
    # Not one a name: it grows.
    assert 1 <= rescd.log().count("is superseded by") <= 4


# ---- idle ----

def test_who_is_not_called_is_retired_and_the_next_call_makes_it_again(host):
    rescd = host(config(idle="16s"))
    worker = rescd.worker()
    worker.call("shard-idle")
    worker.fail("shard-open", 5)
    worker.call("shard-used")

    def gone():
        worker.call("shard-used")
        worker.call("shard-open")
        worker.advance(ms=100)
        return "shard-idle" not in names(rescd)

    until(gone, patience=30)
    assert names(rescd) == {"shard-open", "shard-used", "payments", "shard-hot-named"}
    until(lambda: "retired 'shard-idle'" in rescd.log(), what="a line in the log, after it is gone")
    assert worker.call("shard-idle")["r"] == 0
    seen = rescd.show("shard-idle")
    assert seen["state"] == "closed" and seen["counters"]["admitted"] == 2
    assert worker.counters("payments")["admitted"] == 0  # nobody calls it, and it stays


def test_J3_the_series_of_the_retired_disappear_and_come_back(host):
    rescd = host(config(idle="2s"))
    worker = rescd.worker()

    def series():
        return {dict(labels).get("resource") for _, labels in rescd.scrape()} - {None}

    assert "shard-7" not in series()
    worker.call("shard-7")
    assert "shard-7" in series()

    def retired():
        worker.advance(ms=500)
        return "shard-7" not in series()

    until(retired, patience=30)
    assert "payments" in series()
    worker.call("shard-7")
    page = rescd.scrape()
    assert {v for (name, labels), v in page.items() if name == "resc_admitted_total" and dict(labels).get("resource") == "shard-7"} == {2}
    assert "shard-7" in series()


# ---- reload ----

def test_H6_a_made_resource_follows_its_pattern_and_keeps_its_state(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.fail("shard-7", 5)
    lookup(worker, "shard-hot-1")
    answer = rescd.load(config({"shard-*": {"breaker": {"consecutive": 8, "cooldown": "10s"}, "bulkhead": {"limit": 10}}}))
    assert answer["changed"] == ["shard-7"] and answer["removed"] == []
    assert consecutive(rescd, "shard-7") == 8 and worker.state("shard-7")["state"] == "open"
    assert rescd.load(config({"shard-*": {"breaker": {"consecutive": 8, "cooldown": "10s"}, "bulkhead": {"limit": 10}}}))["changed"] == []


def test_H6_a_made_resource_moves_to_a_longer_pattern(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.fail("shard-7", 5)
    rescd.load(config({"shard-7*": {"breaker": {"consecutive": 3, "cooldown": "10s"}}}))
    assert consecutive(rescd, "shard-7") == 3 and worker.state("shard-7")["state"] == "open"


def test_H6_a_made_resource_that_no_pattern_matches_any_more_is_retired(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    kept = worker.hold("shard-7", 1)
    answer = rescd.load({"resources": {"payments": {"breaker": {"consecutive": 3}}}})
    assert sorted(answer["removed"]) == ["shard-7", "shard-hot-named"]
    assert worker.leave(kept[0])["r"] == 0
    assert worker.enter("shard-7")["r"] == -errno.ENOENT
    rescd.load(CONFIG)
    assert worker.enter("shard-7")["r"] == 0


def test_H6_a_made_resource_that_is_named_becomes_the_configurations_and_back(host):
    rescd = host(config(idle="2s"))
    worker = rescd.worker()
    worker.fail("shard-7", 4)
    named = {"shard-7": {"breaker": {"consecutive": 5, "cooldown": "10s"}, "bulkhead": {"limit": 10}}}
    assert rescd.load(config(named, idle="2s"))["changed"] == ["shard-7"]
    lookup(worker, "shard-8")

    def retired(name):
        worker.advance(ms=500)
        return name not in names(rescd)

    until(lambda: retired("shard-8"), patience=30)
    assert "shard-7" in names(rescd)
    assert rescd.load(config(idle="2s"))["removed"] == []
    worker.fail("shard-7", 1)
    assert worker.state("shard-7")["state"] == "open"  # its fifth in a row: nothing was lost on the way
    assert consecutive(rescd, "shard-7") == 5


def test_a_pattern_that_comes_with_a_reload_is_known_at_once(host):
    rescd = host({"resources": {"payments": {"breaker": {"consecutive": 3}}}})
    worker = rescd.worker()
    assert refused(worker, "shard-7")[0] == errno.ENOENT
    rescd.load(config(made=100))
    lookup(worker, *("shard-%d" % i for i in range(100)))
    assert refused(worker, "paymenst")[0] == errno.ENOENT
    rescd.load(config({"paym*": {"breaker": {"consecutive": 3}}}, made=200))
    lookup(worker, "paymenst")
