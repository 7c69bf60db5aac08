# SPDX-License-Identifier: MIT
"""Group G of the field cases: processes fork, exec, come and go: each owns what it took, and only that; no call is counted twice or lost.

What is promised of workers, and where it is tried (here, where nothing else is said):

    a pid alone proves nothing                    test_G1_*, test_a_worker_with_a_name_*, the zombies
    no pid is judged from another namespace       test_G2_*
    the token is dropped by death, and by that    test_G4_a_child_does_not_keep_*, test_G4_a_worker_whose_descriptors_*,
                                                  test_G4_a_file_that_comes_*; test_worker.c
    a child owns nothing of its parent's          test_G4_*; test_threads.c
    exec leaks nothing and ends the life          test_G4_exec_and_spawn_*
    slots are bounded, counters exact             test_G5_*
    anybody may reap, with rescd dead             test_death.py; test_worker.c
"""
import json
import os
import random
import signal
import subprocess
import time

import pytest
from harness import HELPERS, NAMESPACE, OTHER_NAMESPACE, RESCD, Gone, agreed, best_of, may, metric, state_of, until, wait_for_end
from test_death import FOUR, take_a_probe_and_three_more, time_to_reclaim

CONFIG = {"resources": {"payments": {"breaker": {"consecutive": 1000000}, "bulkhead": {"limit": 9}}}}


def in_use(rescd):
    return rescd.show("payments")["permits"]["in_use"]


# ---- fork ----

@pytest.mark.smoke
def test_G4_a_forked_child_owns_nothing_and_is_a_worker_of_its_own(host):
    rescd = host(CONFIG)
    parent = rescd.worker()
    held = parent.hold("payments", 1)[0]
    children = [parent.fork() for _ in range(8)]
    tickets = [child.enter("payments") for child in children]  # (a) without attaching again
    assert [t["r"] for t in tickets] == [0] * 8
    assert parent.enter("payments")["answer"] == "full"
    snapshot = rescd.snapshot()
    assert {w["pid"] for w in snapshot["workers"]} == {parent.pid, *(c.pid for c in children)}
    assert {h["pid"]: h["permits"] for h in snapshot["resources"][0]["permits"]["by_worker"]} == \
        {parent.pid: 1, **{c.pid: 1 for c in children}}
    for child in children:  # (b) the parent's ticket is not theirs
        assert child.leave(held)["r"] == -116  # ESTALE
    assert in_use(rescd) == 9
    assert [child.leave(t)["r"] for child, t in zip(children, tickets)] == [0] * 8
    assert in_use(rescd) == 1
    assert parent.leave(held)["r"] == 0 and in_use(rescd) == 0
    assert parent.leave(held)["r"] < 0
    told = rescd.show("payments")["counters"]
    assert (told["admitted"], told["ended_ok"], told["permits_reclaimed"]) == (9, 9, 0)


def test_G4_the_parent_may_go_first(host):
    rescd = host(CONFIG)
    parent = rescd.worker()
    parent.hold("payments", 2)
    child = parent.fork()
    ticket = child.enter("payments")
    parent.kill()  # (c)
    until(lambda: in_use(rescd) == 1, what="the parent's permits are back, the child's stays")
    assert child.call("payments")["r"] == 0
    assert child.leave(ticket)["r"] == 0
    assert in_use(rescd) == 0


FORMS = [(), ("bare",), ("signal",)]  # fork(), clone() behind the C library's back, fork() in a signal handler


@pytest.mark.parametrize("how", FORMS, ids=lambda how: how[0] if how else "fork")
def test_G4_a_child_does_not_keep_its_dead_parent_alive_whatever_way_it_was_made(host, how):
    """By the tokens alone, before the child calls anything: nothing of the parent's token is in the child."""
    rescd = host(CONFIG)
    parent = rescd.worker()
    parent.hold("payments", 9)
    child = parent.fork(*how)
    child.ask("fds")
    rescd.kill()
    parent.kill()
    other = rescd.worker()
    other.until_admitted("payments", what="the dead parent's permits")
    assert child.call("payments")["r"] == 0


@pytest.mark.parametrize("how", FORMS, ids=lambda how: how[0] if how else "fork")
def test_G4_a_child_is_a_worker_of_its_own_whatever_way_it_was_made(host, how):
    rescd = host(CONFIG)
    parent = rescd.worker()
    held = parent.hold("payments", 2)
    child = parent.fork(*how)
    grandchild = child.fork(*how)
    tickets = [p.enter("payments") for p in (child, grandchild)]
    assert [t["r"] for t in tickets] == [0, 0]
    assert [p.leave(held[0])["r"] for p in (child, grandchild)] == [-116, -116]  # ESTALE
    assert {w["pid"] for w in rescd.snapshot()["workers"]} == {parent.pid, child.pid, grandchild.pid}
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: in_use(rescd) == 3, what="the child's permit is back, the others stay")
    assert grandchild.leave(tickets[1])["r"] == 0 and [parent.leave(t)["r"] for t in held] == [0, 0]
    assert in_use(rescd) == 0


def test_G4_a_request_that_forks_in_its_attempt_ends_once(host):
    rescd = host(CONFIG)
    parent = rescd.worker()
    child = parent.fork(run="payments")
    assert child.receive() == {"r": 0, "child": 0}  # what its attempt said; it was the parent's request, and is counted there
    assert child.call("payments")["r"] == 0
    seen = rescd.show("payments")
    assert (seen["permits"]["in_use"], seen["counters"]["ended_ok"], seen["counters"]["admitted"]) == (0, 2, 2)


def test_G4_children_of_a_process_whose_threads_are_inside_calls(host):
    rescd = host(CONFIG)
    parent = rescd.worker()
    parent.busy("payments", 0.1)
    children = []
    for i in range(30):
        child = parent.fork(*(() if i % 2 else ("signal",)))
        assert child.call("payments")["r"] == 0
        if i % 3:
            os.kill(child.pid, signal.SIGKILL)
        else:
            children.append(child)
    told = parent.idle()
    assert (told["errors"], told["leave_errors"]) == (0, 0)
    until(lambda: len(rescd.snapshot()["workers"]) == 1 + len(children), what="the parent and the children that live")
    assert [c.call("payments")["r"] for c in children] == [0] * 10 and in_use(rescd) == 0
    counters = rescd.show("payments")["counters"]
    assert counters["admitted"] == told["admitted"] + 40


def test_G4_a_program_that_becomes_a_daemon_after_it_has_opened_its_view(host):
    """The opener exits, all descriptors are closed, and the grandchild serves."""
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.hold("payments", 1)
    first = worker.pid
    pid = worker.ask("daemonize")["pid"]
    worker.process.wait()
    assert worker.ask("close_descriptors")["r"] == 0
    kept = worker.hold("payments", 2)
    assert pid != first
    until(lambda: [w["pid"] for w in rescd.snapshot()["workers"]] == [pid], what="the slot of the one that is gone is free")
    assert in_use(rescd) == 2 and [worker.leave(t)["r"] for t in kept] == [0, 0]


# ---- descriptors that a program closes, or opens anew, behind the library's back ----

def look_around(rescd, worker):
    """Everybody looks for the dead, rescd and a worker that meets a full bulkhead."""
    other = rescd.worker()
    rest = other.hold("payments", 9 - in_use(rescd))
    time.sleep(0.06)
    assert other.enter("payments")["answer"] == "full"
    for _ in range(3):
        time.sleep(0.06)
        assert worker.enter("payments")["answer"] == "full"
    for ticket in rest:
        other.leave(ticket)
    other.end()


def test_G4_a_worker_whose_descriptors_are_all_closed_lives_on(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    kept = worker.hold("payments", 3)
    worker.ask("close_descriptors")
    rescd.restart()  # who asks for the tokens of all
    look_around(rescd, worker)
    assert in_use(rescd) == 3
    assert [worker.leave(t)["r"] for t in kept] == [0] * 3
    worker.hold("payments", 2)
    worker.kill()
    until(lambda: in_use(rescd) == 0, what="its death is noticed all the same")


@pytest.mark.parametrize("daemon", ["with rescd", "without"])
def test_G4_a_file_that_comes_under_the_number_of_a_descriptor_is_left_alone(host, daemon):
    """Locks are not asked of it, nor taken on it, and it is not closed: by calls, a look for the dead, a child, or the end of the view."""
    rescd = host(CONFIG)
    worker, other = rescd.crew(2)
    other.hold("payments", 1)
    kept = worker.hold("payments", 3)
    path = os.path.join(rescd.dir, "other")
    covered = worker.ask("cover_descriptors", path)["covered"]
    assert covered == 1
    if daemon == "without":
        rescd.kill()
    look_around(rescd, worker)
    assert in_use(rescd) == 4  # nobody was declared dead
    child = worker.fork()
    assert child.call("payments")["r"] == 0
    assert path in child.ask("fds")["fds"]
    assert [worker.leave(t)["r"] for t in kept] == [0] * 3
    with open("/proc/locks", encoding="utf-8") as locks:
        assert not any(line.split()[5].endswith(":%d" % os.stat(path).st_ino) for line in locks)
    worker.ask("close")
    assert worker.ask("fds")["fds"].count(path) == covered + 1
    assert {w["pid"] for w in rescd.snapshot()["workers"]} == {other.pid, child.pid}


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_G4_a_worker_that_goes_into_another_root_as_another_user_goes_on(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    kept = worker.hold("payments", 2)
    child = worker.fork()
    empty = os.path.join(rescd.dir, "empty")
    os.mkdir(empty)
    assert [p.ask("drop", 65534, empty)["r"] for p in (worker, child)] == [0, 0]
    assert [worker.leave(t)["r"] for t in kept] == [0, 0] and worker.call("payments")["r"] == 0
    time.sleep(1.1)  # the look of once a second finds no name here: the view stays
    assert worker.call("payments")["r"] == 0 and worker.status()["mode"] == "shared"
    worker.hold("payments", 2)
    told = child.status()  # nobody can attach from here
    assert told["mode"] == "private" and told["reason"] and child.call("payments")["r"] == 0
    worker.kill()
    until(lambda: in_use(rescd) == 0, what="two permits back")


def test_G4_a_worker_without_descriptors_left_goes_on_and_its_children_say_why(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    kept = worker.hold("payments", 2)
    child = worker.fork()
    for process in (worker, child):
        assert process.ask("limit", 7, 3)["r"] == 0  # RLIMIT_NOFILE
    assert [worker.leave(t)["r"] for t in kept] == [0, 0] and worker.call("payments")["r"] == 0
    told = child.status()
    assert told["mode"] == "private" and "Too many open files" in told["reason"]
    assert child.call("payments")["r"] == 0


@pytest.mark.parametrize("end", [("quit", "0"), ("exit", "0"), ("exec",), ("abort",)], ids=" ".join)
def test_G4_whatever_way_a_child_ends_the_parent_keeps_its_permit(host, end):
    rescd = host(CONFIG)
    parent = rescd.worker()
    held = parent.hold("payments", 1)[0]
    for calls in (False, True):  # (d) with and without a life of its own
        child = parent.fork()
        if calls:
            child.enter("payments")
        else:
            child.ask("fds")
        child.send(*end)
        until(lambda: in_use(rescd) == 1, what="only the parent's permit")
        until(lambda: [w["pid"] for w in rescd.snapshot()["workers"]] == [parent.pid], what="only the parent is a worker")
    assert parent.leave(held)["r"] == 0


def test_G4_exec_and_spawn_leak_no_descriptor_and_no_mapping(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    held = worker.hold("payments", 1)[0]
    assert any(rescd.segment in name for name in worker.ask("fds")["fds"])
    for how in ((), ("vfork",)):  # (e)
        assert not any("resc" in name for name in worker.ask("spawn", *how)["fds"])
    assert worker.leave(held)["r"] == 0
    worker.hold("payments", 3)
    assert not any("resc." in name for name in worker.ask("exec")["fds"])
    until(lambda: in_use(rescd) == 0 and rescd.snapshot()["workers"] == [], what="exec ends the worker's life")


def test_a_worker_that_exits_properly_leaves_its_slot_and_permits(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.hold("payments", 4)
    rescd.kill()
    assert worker.end() == 0
    assert rescd.snapshot()["workers"] == [] and in_use(rescd) == 0


# ---- churn ----

GENERATIONS = 5000


def test_G5_5000_generations_half_killed_every_counter_is_monotonic_and_no_call_is_lost(host):
    """Half of them killed: by themselves before, inside or after a call, or from outside at any moment."""
    rescd = host({**CONFIG, "workers": 64})
    size = os.path.getsize(rescd.segment)
    crowd = subprocess.Popen([os.path.join(HELPERS, "crowd"), "generations", rescd.instance, "payments", str(GENERATIONS), "100", "8", "7"],
                             stdout=subprocess.PIPE)
    last, scrapes = {}, 0
    while crowd.poll() is None:
        page = rescd.scrape()
        totals = {key: value for key, value in page.items() if key[0].endswith(("_total", "_count", "_bucket"))}
        assert all(value >= last.get(key, 0) for key, value in totals.items())
        assert metric(page, "resc_permits_in_use", resource="payments") <= 9
        last, scrapes = totals, scrapes + 1
        time.sleep(0.05)
    told = json.loads(crowd.stdout.read())
    crowd.stdout.close()
    assert crowd.returncode == 0 and told["errors"] == 0 and scrapes > 10
    assert GENERATIONS * 0.4 < told["killed"] < GENERATIONS * 0.6
    until(lambda: in_use(rescd) == 0 and rescd.snapshot()["workers"] == [], what="nobody is left")
    witness = rescd.worker()
    counters = agreed(rescd, witness, "payments")["counters"]
    # What a worker knew when it died is less than what it did by the call that it was in.
    assert told["admitted"] <= counters["admitted"] <= told["begun"]
    assert told["admitted"] + counters["refused_full"] <= counters["enters"] <= told["begun"]
    assert told["ended"] <= counters["ended_ok"] <= told["ended"] + told["killed"]
    assert counters["admitted"] - counters["ended_ok"] <= told["killed"] and 0 < counters["permits_reclaimed"] <= told["killed"]
    assert os.path.getsize(rescd.segment) == size and rescd.files() == [os.path.basename(rescd.segment)]


def test_G5_workers_that_live_at_once_and_die_at_random_moments_lose_at_most_the_calls_inside(host):
    rescd = host(CONFIG)
    dice = random.Random(11)
    begun = done_at_least = 0
    for _ in range(5):
        crew = rescd.crew(4)
        before = rescd.show("payments")["counters"]["enters"]
        for i, worker in enumerate(crew):
            worker.busy("payments", 0.1, i + 1)
        until(lambda: rescd.show("payments")["counters"]["enters"] > before + dice.randint(100, 5000))
        for worker in crew[:2]:
            worker.process.kill()
        told = [worker.idle() for worker in crew[2:]]
        begun += sum(t["enters"] for t in told)
        done_at_least += sum(t["admitted"] for t in told)
        for worker in crew:
            worker.kill()
    until(lambda: in_use(rescd) == 0, what="nothing in use")
    counters = rescd.show("payments")["counters"]
    ended = counters["ended_ok"] + counters["ended_fail"]
    assert counters["enters"] == counters["admitted"] + counters["refused_full"]
    assert done_at_least <= ended <= counters["admitted"] <= ended + 10  # ten were killed
    assert counters["enters"] >= begun


# ---- pids ----

needs_namespaces = pytest.mark.skipif(not may(*OTHER_NAMESPACE, "true"), reason="unshare is not permitted here")


@pytest.mark.skipif(not may(*NAMESPACE, "sh", "-c", "echo 500 > /proc/sys/kernel/ns_last_pid"), reason="pids cannot be chosen here")
@pytest.mark.parametrize("heir", ["stranger", "worker"])
def test_G1_who_gets_the_pid_of_a_dead_worker_inherits_nothing(host, heir):
    """rescd and two workers in one pid namespace; the second process gets the pid of the first, which had two permits and a probe."""
    rescd = host(FOUR, start=False)
    script = os.path.join(rescd.dir, "script")
    worker = os.path.join(HELPERS, "worker")
    second = '"$W" "$I"' if heir == "worker" else 'sh -c \'read x\''
    with open(script, "w", encoding="utf-8") as file:
        file.write('''
mkfifo "$D/a.in" "$D/b.in"
echo 500 > /proc/sys/kernel/ns_last_pid
"$W" "$I" < "$D/a.in" > "$D/a.out" &
A=$!
exec 3> "$D/a.in"
echo "hold payments 2
calls payments fail
advance 1000000000
enter payments" >&3
while ! grep -q '"probe":true' "$D/a.out"; do sleep 0.01; done
kill -STOP $R
kill -9 $A
wait $A
echo $((A - 1)) > /proc/sys/kernel/ns_last_pid
%s < "$D/b.in" > "$D/b.out" &
B=$!
exec 4> "$D/b.in"
%s
echo "$A $B"
kill -CONT $R
read end
''' % (second, 'while ! [ -s "$D/b.out" ]; do sleep 0.01; done' if heir == "worker" else ""))
    # Another rescd serves the instance, from inside.
    process = subprocess.Popen([*NAMESPACE, "sh", "-c", '"$P" --config "$C" --instance "$I" --control "$D/c2" --metrics "" & R=$!; export R; '
                                'while ! [ -S "$D/c2" ]; do sleep 0.01; done; . "$D/script"'],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env={**os.environ, "W": worker, "I": rescd.instance, "D": rescd.dir, "C": rescd.config_path,
                                    "P": RESCD})
    try:
        first, other = process.stdout.readline().split()
        assert first == other == b"501"
        lives = 1 if heir == "worker" else 0  # the heir's, who was there before rescd could look
        until(lambda: len(rescd.snapshot()["workers"]) == lives, what="the slot of the dead is free, which is the last thing")
        assert in_use(rescd) == 0
        seen = rescd.show("payments")
        assert (seen["state"], seen["probes"]["out"]) == ("half_open", 0)
        assert (seen["counters"]["permits_reclaimed"], seen["counters"]["probes_reclaimed"]) == (3, 1)
    finally:
        process.kill()
        process.wait()
        wait_for_end(process.stdout)  # that rescd too: it would put a removed segment back
        process.stdin.close()
        process.stdout.close()


@needs_namespaces
def test_G2_in_another_pid_namespace_the_tokens_alone_tell_it_within_a_second(host):
    rescd = host(FOUR)
    watcher = rescd.worker()

    def death():
        victim = rescd.worker(before=OTHER_NAMESPACE)
        assert victim.pid == 1
        took = time_to_reclaim(rescd, watcher, victim, lambda v: take_a_probe_and_three_more(rescd, v))
        watcher.call("payments")
        return took

    deaths = best_of(death, 1.0)
    assert [e["text"].split()[-1] for e in rescd.until_reaped(deaths)] == ["token"] * deaths


@needs_namespaces
def test_G2_living_workers_of_other_namespaces_with_the_same_pid_keep_theirs(host):
    rescd = host({"resources": {"payments": {"bulkhead": {"limit": 4}}}})
    crew = [rescd.worker(before=OTHER_NAMESPACE) for _ in range(3)]
    assert [w.pid for w in crew] == [1, 1, 1]
    for worker in crew:
        worker.hold("payments", 1)
    crew[0].process.kill()
    until(lambda: rescd.show("payments")["permits"]["in_use"] == 2, what="one permit back")
    # A full sweep by a worker, which sees none of those processes.
    asker = rescd.worker()
    asker.hold("payments", 2)
    time.sleep(0.06)
    assert asker.enter("payments")["answer"] == "full"
    assert rescd.show("payments")["permits"]["in_use"] == 4
    assert all(worker.call("payments")["answer"] == "full" for worker in crew[1:])


@needs_namespaces
def test_G2_rescd_in_a_namespace_of_its_own_judges_no_pid_that_it_cannot_see(host):
    """Workers of the host, and of a third namespace, all with pids that mean somebody else, or nobody, where rescd is."""
    rescd = host(FOUR, before=NAMESPACE)
    assert rescd.snapshot()["daemon"]["pid"] == 1
    outside, other = rescd.worker(), rescd.worker(before=OTHER_NAMESPACE)
    outside.hold("payments", 2)
    other.hold("payments", 2)
    rescd.restart()
    time.sleep(0.1)  # its first looks at all slots
    witness = rescd.worker()
    assert witness.enter("payments")["answer"] == "full"
    assert {w["pid"] for w in rescd.snapshot()["workers"]} == {1, outside.pid, witness.pid}
    outside.process.kill()
    until(lambda: rescd.show("payments")["permits"]["in_use"] == 2, what="two permits back")
    other.process.kill()
    until(lambda: rescd.show("payments")["permits"]["in_use"] == 0, what="all permits back")
    rescd.until_counted("payments", permits_reclaimed=4)


# ---- zombies ----

@pytest.mark.parametrize("daemon", ["with rescd", "without"])
def test_a_dead_worker_that_nobody_waits_for_is_dead(host, daemon):
    rescd = host(CONFIG)
    parent, other = rescd.crew(2)
    child = parent.fork()
    child.hold("payments", 9)
    if daemon == "without":
        rescd.kill()
    os.kill(child.pid, signal.SIGKILL)
    other.until_admitted("payments", what="the permits of a zombie")
    assert state_of(child.pid) == "Z"
    rescd.until_counted("payments", permits_reclaimed=9)


def test_a_worker_whose_first_thread_is_gone_looks_like_a_zombie_and_lives(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    kept = worker.hold("payments", 3)
    worker.ask("leave_main")
    until(lambda: state_of(worker.pid) == "Z", what="a zombie's looks")
    rescd.restart()
    look_around(rescd, worker)
    assert in_use(rescd) == 3 and [worker.leave(t)["r"] for t in kept] == [0] * 3
    worker.hold("payments", 2)
    worker.kill()
    until(lambda: in_use(rescd) == 0, what="two permits back")


def test_a_worker_with_a_name_that_breaks_naive_parsers(host):
    """Field 22 of /proc/PID/stat is after the last bracket."""
    rescd = host(CONFIG)
    link = os.path.join(rescd.dir, "a) b (c")
    os.symlink(os.path.join(HELPERS, "worker"), link)
    process = subprocess.Popen([link, rescd.instance], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout.readline()
    process.stdin.write(b"hold payments 2\n")
    process.stdin.flush()
    assert b'"held":2' in process.stdout.readline()
    seen = rescd.snapshot()["workers"]
    assert [w["name"] for w in seen] == ["a) b (c"] and seen[0]["alive"] and seen[0]["start_ticks"] > 1000
    process.kill()
    process.wait()
    until(lambda: in_use(rescd) == 0, what="two permits back")
    process.stdin.close()
    process.stdout.close()


def test_a_gone_worker_is_told_apart_from_a_silent_one(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.kill()
    with pytest.raises(Gone):
        worker.ask("status")
