# SPDX-License-Identifier: MIT
"""Group F of the field cases: workers find the segment, or go on without it and say why; what is under its name is judged before it is used.

What is promised of the segment, and where it is tried (here, where nothing else is said):

    full /dev/shm is an error at the start, no SIGBUS   test_F1_*
    nobody sees half of a segment                       test_F2_*
    a removed, renamed, covered name is noticed         test_F3*, test_a_foreign_file_put_under_the_name_*
    mode and group whatever the umask                   test_F5_mode_and_group_*; who may what: test_security.py
    what is not ours is refused and left alone          test_F5_what_is_not_ours_*
    cut or overwritten: noticed                         test_F6_*; any bytes: test_corrupt.c, tests/fuzz
    boot, time namespace, clock                         test_cases_clocks.py (E2, E4); test_map.c
    coming and going changes nothing                    test_F8_*; nothing is left behind: test_F11_*, test_K2_*
    a full table                                        test_F10_*; test_worker.c; made resources: test_templates.py
    no segment: private, said once, joined              test_without_a_segment_*; once a second: test_private.c
    rescd dead or stopped: workers go on                test_daemon.py, test_death.py
    a new layout or a larger table                      test_succession.py; test_supersede.c
    reload keeps states (H6), any way to replace a file (H7)   test_reload.py
"""
import contextlib
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest
from harness import ENDING, HELPERS, NAMESPACE, RESCTL, SHM, Gone, Worker, agreed, is_stopped, may, rounds, steady, until
from test_daemon import BUSY, arrange

CONFIG = {"resources": {"payments": {"breaker": {"consecutive": 5, "cooldown": "5s"}, "bulkhead": {"limit": 8}}}}
NOBODY = 65534
root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


def small_shm(size):
    """Runs a command with a /dev/shm of its own."""
    return ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o size=%s tmpfs /dev/shm && exec "$@"' % size, "sh"]


own_shm = pytest.mark.skipif(not may(*small_shm("4k"), "true"), reason="mounting is not permitted here")


def converge(workers, generation):
    """Every worker is in that segment; they look at most once a second, during calls."""
    def there():
        for worker in workers:
            worker.call("payments")
        return all(worker.status()["generation"] == generation for worker in workers)

    until(there, patience=10, what="all workers in one segment")


# ---- nothing there ----

@pytest.mark.smoke
def test_without_a_segment_a_worker_is_private_says_so_and_joins_when_there_is_one(host):
    rescd = host(CONFIG, start=False)
    worker = rescd.worker()
    assert worker.hello["mode"] == "private" and worker.hello["generation"] == "0" * 16
    assert rescd.segment in worker.hello["reason"]
    assert worker.call("payments")["r"] == 0 and worker.call("anything")["r"] == 0
    inside = worker.enter("payments")
    rescd.start()
    converge([worker], rescd.snapshot()["segment"]["generation"])
    assert worker.status()["mode"] == "shared" and worker.status()["reason"] == ""
    assert worker.leave(inside)["r"] >= 0  # given back where it was taken
    assert worker.enter("anything")["r"] == -2  # the configuration does not have it
    assert worker.stderr().count("private mode") == 1
    assert worker.call("payments")["r"] == 0
    assert rescd.show("payments")["counters"]["admitted"] >= 1
    assert rescd.show("payments")["permits"]["in_use"] == 0


@pytest.mark.smoke
def test_a_private_view_guards_by_the_documented_defaults(host):
    rescd = host(CONFIG, start=False)
    worker = rescd.worker()
    for _ in range(100):
        worker.call("payments", "fail")
    assert worker.enter("payments")["answer"] == "open"
    assert worker.state("payments")["state"] == "open"


def gather(rescd, workers):
    """So many workers that wait for a line to open their views, all at once."""
    return subprocess.Popen([os.path.join(HELPERS, "crowd"), "gather", rescd.instance, "payments", str(workers)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def gathered(crowd):
    told = json.loads(crowd.communicate(timeout=60)[0])
    assert crowd.returncode == 0 and told["errors"] == 0, told
    return told


MANY = {**CONFIG, "workers": 128}


def test_F2_64_workers_and_rescd_that_start_at_once_end_in_one_segment(host):
    rescd = host(MANY, start=False)
    for round_ in range(rounds(12, 500)):
        crowd = gather(rescd, 64)
        if round_ % 2:
            rescd.spawn()
        crowd.stdin.write(b"go\n")
        crowd.stdin.flush()
        if not round_ % 2:
            rescd.spawn()
        told = gathered(crowd)
        until(lambda: rescd.ctl("list", code=None).returncode == 0, what="rescd serves")
        snapshot = rescd.snapshot()
        assert told["generations"] == {snapshot["segment"]["generation"]: 64}
        assert rescd.files() == [os.path.basename(rescd.segment)]
        assert snapshot["resources"][0]["permits"]["in_use"] == 0
        rescd.kill()
        os.unlink(rescd.segment)


# Steps of rescd that makes a segment. Only behind the last one has it a name.
CREATION = ["create.opened", "create.sized", "create.locked", "create.header", "create.filled", "create.named"]


@pytest.mark.parametrize("point", CREATION)
def test_F2_a_creator_that_dies_at_any_step_leaves_nothing_half_done(host, point):
    rescd = host(MANY, start=False)
    crowd = gather(rescd, 16)
    rescd.spawn(env={"RESC_FAILPOINT": point + "=kill"})
    assert rescd.died() == -signal.SIGKILL
    named = [os.path.basename(rescd.segment)] if point == "create.named" else []
    assert rescd.files() == named
    worker = rescd.worker()
    assert worker.hello["mode"] == ("shared" if named else "private") and worker.call("payments")["r"] == 0
    crowd.stdin.write(b"go\n")
    crowd.stdin.flush()
    rescd.start()
    generation = rescd.snapshot()["segment"]["generation"]
    assert gathered(crowd)["generations"] == {generation: 16}
    converge([worker], generation)
    assert rescd.files() == [os.path.basename(rescd.segment)]


@pytest.mark.parametrize("point", CREATION)
def test_F2_a_creator_that_is_stopped_at_any_step_holds_nobody_up_and_makes_no_second_segment(host, point):
    rescd = host(MANY, start=False)
    rescd.spawn(env={"RESC_FAILPOINT": point + "=stop"})
    slow = rescd.process
    until(lambda: is_stopped(slow), what="the creator is stopped")
    worker = rescd.worker()
    assert worker.call("payments")["r"] == 0
    if point == "create.named":  # it is rescd already, by its lock
        assert "another rescd (pid %d)" % slow.pid in rescd.fails_to_start(args=["--control", rescd.control_path + "2"])
        slow.send_signal(signal.SIGCONT)
        rescd.process = slow
        until(lambda: rescd.drain(), what="it goes on, and is ready")
    else:
        rescd.start()
        slow.send_signal(signal.SIGCONT)
        assert slow.wait(ENDING) == 1  # it finds the name taken, and rescd served
    converge([worker], rescd.snapshot()["segment"]["generation"])
    assert rescd.files() == [os.path.basename(rescd.segment)]
    assert rescd.reload()["ok"]


# ---- taken away ----

def test_F3a_a_segment_removed_under_busy_workers_is_replaced_with_all_states(host):
    rescd = host(CONFIG)
    crew = rescd.crew(4)
    crew[0].fail("payments", 5)
    before = rescd.show("payments")
    os.unlink(rescd.segment)
    until(lambda: os.path.exists(rescd.segment), what="the name is back")
    snapshot = rescd.snapshot()
    after = snapshot["resources"][0]
    assert (after["state"], after["due_ms"], after["generation"]) == ("open", before["due_ms"], before["generation"])
    assert after["counters"] == before["counters"]
    assert all(worker.enter("payments")["answer"] == "open" for worker in crew)
    crew.append(rescd.worker())
    converge(crew, snapshot["segment"]["generation"])
    rescd.ctl("force", "payments", "closed", "--for", "1h", "--why", "F3")
    assert [worker.call("payments")["r"] for worker in crew] == [0] * 5
    until(lambda: "removed by somebody" in rescd.log(), what="a line in the log, after the name is back")


def test_F3a_while_calls_are_inside_it_is_replaced_all_the_same_and_again_when_they_have_ended(host):
    rescd = host(CONFIG)
    one, other = rescd.crew(2)
    kept = one.hold("payments", 5)
    os.unlink(rescd.segment)
    until(lambda: os.path.exists(rescd.segment), what="the name is back")
    assert len(other.hold("payments", 3)) == 3 and other.enter("payments")["answer"] == "full"
    assert [one.leave(t)["r"] for t in kept] == [0] * 5
    until(lambda: other.enter("payments")["r"] == 0, what="a permit that was given back")


def test_F3c_removed_and_the_daemon_killed_all_end_in_the_new_one(host):
    rescd = host(CONFIG)
    crew = rescd.crew(4)
    for i, worker in enumerate(crew):
        worker.busy("payments", 0.0, i + 1)
    rescd.kill()
    os.unlink(rescd.segment)
    assert rescd.instance in rescd.ctl("list", code=3).stderr  # no stale numbers
    rescd.start()
    time.sleep(1.1)
    told = [worker.idle() for worker in crew]
    assert [(t["errors"], t["leave_errors"]) for t in told] == [(0, 0)] * 4
    crew.append(rescd.worker())
    converge(crew, rescd.snapshot()["segment"]["generation"])
    rescd.ctl("force", "payments", "open", "--for", "1h", "--why", "F3")
    assert [worker.enter("payments")["answer"] for worker in crew] == ["forced_open"] * 5
    assert rescd.show("payments")["permits"]["in_use"] == 0


def renamed(rescd):
    os.rename(rescd.segment, rescd.segment + ".aside")
    return lambda: os.unlink(rescd.segment + ".aside")


def put_in_its_place(rescd, remove, put):
    """rescd brings the name back within milliseconds: so again, until ours is the one that is there."""
    while True:
        remove()
        with contextlib.suppress(FileExistsError):
            return put()


def replaced_by_a_directory(rescd):
    put_in_its_place(rescd, lambda: os.unlink(rescd.segment), lambda: os.mkdir(rescd.segment))
    return lambda: os.rmdir(rescd.segment)


def replaced_by_a_link_to_it(rescd):
    aside = rescd.segment + ".aside"
    put_in_its_place(rescd, lambda: os.rename(rescd.segment, aside), lambda: os.symlink(aside, rescd.segment))
    return lambda: (os.unlink(rescd.segment), os.unlink(rescd.segment + ".aside"))


def replaced_by_a_copy(rescd):
    """As a backup tool puts it back: the same bytes, another file."""
    with open(rescd.segment, "rb") as file:
        bytes_ = file.read()
    with open(rescd.segment + ".aside", "wb") as file:
        file.write(bytes_)
    os.chmod(rescd.segment + ".aside", 0o660)
    os.rename(rescd.segment + ".aside", rescd.segment)
    return lambda: os.unlink(rescd.segment)


def linked_elsewhere(rescd):
    os.link(rescd.segment, rescd.segment + ".aside")
    os.unlink(rescd.segment)
    return lambda: os.unlink(rescd.segment + ".aside")


@pytest.mark.parametrize("change", [renamed, replaced_by_a_directory, replaced_by_a_link_to_it, replaced_by_a_copy, linked_elsewhere],
                         ids=lambda f: f.__name__)
def test_F3_whatever_is_done_to_the_name_no_worker_notices_and_all_end_in_one_segment(host, change):
    rescd = host(CONFIG)
    crew = rescd.crew(2)
    for i, worker in enumerate(crew):
        worker.busy("payments", 0.0, i + 1)
    undo = change(rescd)
    time.sleep(0.3)
    undo()
    until(lambda: rescd.ctl("list", code=None).returncode == 0, what="the name leads to a segment of rescd again")
    crew.append(rescd.worker())
    time.sleep(1.1)
    told = [worker.idle() for worker in crew[:2]]
    assert [(t["errors"], t["leave_errors"]) for t in told] == [(0, 0)] * 2, told
    converge(crew, rescd.snapshot()["segment"]["generation"])
    rescd.ctl("force", "payments", "open", "--for", "1h", "--why", "F3")
    assert [worker.enter("payments")["answer"] for worker in crew] == ["forced_open"] * 3
    assert rescd.show("payments")["permits"]["in_use"] == 0


@own_shm
def test_F3_something_mounted_over_the_segment_is_no_removal(host):
    rescd = host(CONFIG, before=small_shm("64m"))
    inside = ["nsenter", "--mount", "--target", str(rescd.process.pid)]
    worker = rescd.worker(before=inside)
    worker.call("payments")
    subprocess.run([*inside, "mount", "--bind", rescd.config_path, rescd.segment], check=True)
    until(lambda: "is not ours any more" in rescd.log(), what="rescd says so")
    assert worker.call("payments")["r"] == 0 and worker.status()["mode"] == "shared"
    subprocess.run([*inside, "umount", rescd.segment], check=True)
    newcomer = rescd.worker(before=inside)
    assert newcomer.status()["generation"] == worker.status()["generation"] != "0" * 16


def test_F3c_until_they_have_joined_resctl_says_that_they_are_split_off(host):
    rescd = host(CONFIG)
    crew = rescd.crew(3)
    assert "split" not in rescd.ctl("list").stderr
    rescd.kill()
    os.unlink(rescd.segment)
    assert "split: 3 processes" in rescd.ctl("list", code=3).stderr
    rescd.start()
    crew.append(rescd.worker())
    said = rescd.ctl("list").stderr
    assert "split: 3 processes (pid " in said and "removed" in said, said
    until(lambda: [w.call("payments") for w in crew] and "split" not in rescd.ctl("list").stderr, what="all in one segment, and nobody says otherwise")
    # A replacement is none.
    assert rescd.load({"resources": {**CONFIG["resources"], **{"s%d" % i: {} for i in range(40)}}})["replaced"]
    assert "split" not in rescd.ctl("list").stderr


REMOVED_AND_MAPPED = """
import mmap, os, sys
with open(sys.argv[1], "w+b") as file:
    file.truncate(4096)
    kept = mmap.mmap(file.fileno(), 4096)
os.unlink(sys.argv[1])
print(flush=True)
sys.stdin.read()
"""


@own_shm
@pytest.mark.parametrize("elsewhere", [False, True], ids=["another_dev_shm", "another_directory"])
def test_F3_a_file_of_that_name_that_was_removed_from(host, elsewhere):
    """It is no segment of this host's: nobody is split off."""
    rescd = host(CONFIG)
    path = rescd.dir + rescd.segment if elsewhere else rescd.segment
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with subprocess.Popen([*([] if elsewhere else small_shm("64k")), sys.executable, "-c", REMOVED_AND_MAPPED, path],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        said = rescd.ctl("list").stderr
        other.stdin.close()
    assert other.returncode == 0 and "split" not in said


@root
def test_a_foreign_file_put_under_the_name_of_a_running_instance_is_left_alone(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    os.unlink(rescd.segment)
    # Another instance's segment would be found by its header; a file of others by its owner.
    until(lambda: os.path.exists(rescd.segment), what="the name is back")
    os.rename(rescd.segment, rescd.segment + ".aside")
    with open(rescd.segment, "wb") as file:
        file.write(b"not ours")
    until(lambda: "is not ours any more" in rescd.log(), what="rescd says so")
    assert open(rescd.segment, "rb").read() == b"not ours"
    assert worker.call("payments")["r"] == 0
    os.unlink(rescd.segment)
    until(lambda: os.path.exists(rescd.segment), what="ours comes back")
    assert rescd.worker().hello["mode"] == "shared"


def test_idle_workers_keep_their_part_of_a_share_when_the_segment_is_replaced(host):
    """They come to the successor with their next call, which may be hours away, and are workers all the same."""
    shared = {"resources": {"payments": {"bulkhead": {"limit": 0.5}}}}
    rescd = host(shared)
    busy, *idle = crew = rescd.crew(6)
    assert rescd.show("payments")["permits"]["limit"] == 3
    for _ in range(2):  # also along a chain of replacements
        os.unlink(rescd.segment)
        until(lambda: os.path.exists(rescd.segment), what="replaced")
        assert busy.call("payments")["r"] == 0

    def limit():
        return rescd.show("payments")["permits"]["limit"]

    rescd.until_turned()  # since then it is known who is still to come
    for _ in range(2):
        rescd.advance("50s")
        rescd.until_turned()
        assert limit() == 3  # for six workers, of whom one has called
    idle[0].kill()
    idle[1].kill()
    rescd.advance("50s")
    until(lambda: limit() == 2, what="a limit for four")
    for worker in idle[2:]:
        assert worker.call("payments")["r"] == 0
    rescd.advance("50s")
    rescd.until_turned()
    assert limit() == 2
    assert len(rescd.snapshot()["workers"]) == 4 and len(crew) == 6


# ---- something else there ----

def foreign_owner(path):
    with open(path, "wb") as file:
        file.truncate(1 << 20)
    os.chown(path, NOBODY, NOBODY)
    return "uid %d" % NOBODY


def symbolic_link(path):
    target = path + ".target"
    with open(target, "wb") as file:
        file.truncate(4096)
    os.symlink(target, path)
    return "symbolic link"


def for_everybody(path):
    with open(path, "wb") as file:
        file.truncate(1 << 20)
    os.chmod(path, 0o666)
    return "writable for everybody"


def pipe(path):
    os.mkfifo(path)
    return "not a regular file"


def a_directory(path):
    os.mkdir(path)
    return "not a regular file"


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
    return "not a regular file"


def a_device(path):
    os.mknod(path, 0o660 | stat.S_IFCHR, os.makedev(1, 3))
    return "not a regular file"


def dangling_link(path):
    os.symlink(path + ".nowhere", path)
    return "symbolic link"


def foreign_with_set_id_bits(path):
    foreign_owner(path)
    os.chmod(path, 0o6770)
    return "uid %d" % NOBODY


def linked_from_a_foreign_file(path):
    other = path + ".target"
    foreign_owner(other)
    os.link(other, path)
    return "uid %d" % NOBODY


@root
@pytest.mark.parametrize("place", [foreign_owner, foreign_with_set_id_bits, linked_from_a_foreign_file, symbolic_link, dangling_link,
                                   for_everybody, pipe, a_directory, a_socket, a_device], ids=lambda f: f.__name__)
def test_F5_what_is_not_ours_is_refused_and_left_alone(host, place):
    rescd = host(CONFIG, start=False)
    words = place(rescd.segment)
    before = os.lstat(rescd.segment)
    said = rescd.fails_to_start()
    assert words in said and rescd.segment in said and "remove it" in said, said
    after = os.lstat(rescd.segment)
    assert (after.st_ino, after.st_mode, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_mode, before.st_size, before.st_mtime_ns)
    worker = rescd.worker()
    assert worker.hello["mode"] == "private" and worker.hello["reason"]
    assert worker.call("payments")["r"] == 0
    assert rescd.ctl("list", code=3).stderr
    os.rmdir(rescd.segment) if stat.S_ISDIR(after.st_mode) else os.unlink(rescd.segment)
    rescd.start()
    converge([worker], rescd.snapshot()["segment"]["generation"])


@root
@pytest.mark.parametrize("umask", ["000", "077", "0777"])
def test_F5_mode_and_group_are_as_configured_whatever_the_umask(host, umask):
    strict = ["sh", "-c", 'umask %s; exec "$@"' % umask, "sh"]
    rescd = host({**CONFIG, "group": "nogroup"}, before=strict)
    st = os.stat(rescd.segment)
    assert stat.S_IMODE(st.st_mode) == 0o660 and st.st_gid == NOBODY
    assert stat.S_IMODE(os.stat(rescd.control_path).st_mode) & 0o007 == 0
    assert os.stat(rescd.control_path).st_gid == NOBODY
    member = rescd.worker(before=["setpriv", "--reuid", "65533", "--regid", str(NOBODY), "--clear-groups"])
    assert member.hello["mode"] == "shared" and member.call("payments")["r"] == 0
    stranger = rescd.worker(before=["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups"])
    assert stranger.hello["mode"] == "private" and "ermission denied" in stranger.hello["reason"]
    assert stranger.call("payments")["r"] == 0
    for mode in (0o600, 0o6777 & ~0o002, 0o1660):  # changed by somebody, set-id and sticky bits included
        os.chmod(rescd.segment, mode)
        rescd.restart()
        assert stat.S_IMODE(os.stat(rescd.segment).st_mode) == 0o660


@root
def test_F5_a_daemon_without_root_serves_its_own_user(host):
    rescd = host(CONFIG, start=False)
    somebody = ["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups"]
    os.chown(rescd.dir, 65533, 65533)
    os.chmod(rescd.notify_path, 0o777)
    rescd.before = somebody
    rescd.start()
    assert os.stat(rescd.segment).st_uid == 65533
    assert rescd.worker(before=somebody).hello["mode"] == "shared"


# ---- damage, other clocks, no room ----

def flip_magic(path):
    with open(path, "r+b") as file:
        file.write(b"\0" * 8)


def zero(path):
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        file.write(b"\0" * size)


def cut(path):
    os.truncate(path, 8192)


def nothing(path):
    os.truncate(path, 0)


@pytest.mark.parametrize("damage", [flip_magic, zero, cut, nothing], ids=lambda f: f.__name__)
def test_a_damaged_segment_is_refused_by_workers_and_made_anew_by_rescd(host, damage):
    rescd = host(CONFIG)
    rescd.kill()
    damage(rescd.segment)
    worker = rescd.worker()
    assert worker.hello["mode"] == "private" and worker.hello["reason"]
    assert rescd.ctl("list", code=3).stderr
    rescd.start()
    assert "cannot be used any more" in rescd.log()
    converge([worker], rescd.snapshot()["segment"]["generation"])


def mounted(command):
    """Runs a command with a /dev/shm (or none) that this shell command makes."""
    return ["unshare", "--mount", "sh", "-c", command + ' && exec "$@"', "sh"]


def other_shm(options, kind="tmpfs"):
    return mounted("mount -t %s -o %s %s /dev/shm" % (kind, options, kind))


NO_ROOM = {
    "4k": (other_shm("size=4k"), "No space left"),
    "64k": (other_shm("size=64k"), "No space left"),
    "a page too small": (None, "No space left"),  # measured in the test
    "no inodes": (other_shm("size=64m,nr_inodes=1"), "No space left"),
    "read-only": (other_shm("ro,size=64m"), "Read-only file system"),
    "missing": (mounted("mount -t tmpfs tmpfs /dev"), "No such file or directory"),
    "a file that may not grow": (["prlimit", "--fsize=65536"], "File too large"),
    "no descriptors": (["prlimit", "--nofile=4"], "Too many open files"),
}


@own_shm
@pytest.mark.parametrize("case", sorted(NO_ROOM))
def test_F1_no_room_is_an_error_at_the_start_that_names_what_and_where(host, case):
    before, words = NO_ROOM[case]
    rescd = host(CONFIG, start=False)
    if before is None:
        rescd.start()
        size = os.path.getsize(rescd.segment)
        rescd.kill()
        os.unlink(rescd.segment)
        before = other_shm("size=%d" % (size - 4096))
    rescd.before = before
    said = rescd.fails_to_start()
    assert words in said and rescd.files() == [], said
    if words in ("No space left", "File too large") and case != "no inodes":
        assert SHM in said and "bytes" in said, said
    # Workers go on without it; where there is a reason it is told.
    worker = rescd.worker(before=[] if before[0] == "prlimit" else before)
    assert worker.hello["mode"] == "private" and worker.hello["reason"] and worker.call("payments")["r"] == 0
    rescd.before = []
    rescd.start()
    assert rescd.worker().hello["mode"] == "shared"


@own_shm
def test_F1_a_file_system_that_is_no_tmpfs_serves_as_well(host):
    rescd = host(CONFIG, before=other_shm("mode=1777", "ramfs"))
    worker = rescd.worker(before=["nsenter", "--mount", "--target", str(rescd.process.pid)])
    assert worker.hello["mode"] == "shared" and worker.call("payments")["r"] == 0


def test_F1_a_worker_without_memory_or_descriptors_has_an_error_and_no_crash(host):
    rescd = host(CONFIG)
    parent = rescd.worker()
    child = parent.fork()
    with open("/proc/%d/statm" % child.pid, encoding="utf-8") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    assert child.ask("limit", int(resource.RLIMIT_AS), used + 65536)["r"] == 0
    # ENOMEM: not even a private view. It lets go of its parent's mappings then, and so there is room.
    assert [child.ask("enter", "payments").get("r") for _ in range(3)] == [-12, 0, 0]
    limited = rescd.worker(before=["prlimit", "--nofile=4"])
    assert limited.hello["mode"] == "private" and "Too many open files" in limited.hello["reason"]
    assert limited.call("payments")["r"] == 0 and parent.call("payments")["r"] == 0


@own_shm
def test_F1_filled_after_the_start_nobody_gets_a_SIGBUS(host):
    rescd = host(CONFIG, before=small_shm("4m"))
    inside = ["nsenter", "--mount", "--target", str(rescd.process.pid)]
    fill = subprocess.run([*inside, "sh", "-c", "dd if=/dev/zero of=/dev/shm/full bs=4k 2>&1; ls -l /dev/shm"], stdout=subprocess.PIPE, check=True)
    assert b"No space left" in fill.stdout
    crew = [rescd.worker(before=inside) for _ in range(3)]
    assert [w.hello["mode"] for w in crew] == ["shared"] * 3
    told = [w.loop("payments", 2000, 0.001, i + 1) for i, w in enumerate(crew)]
    assert sum(t["errors"] for t in told) == 0
    # A larger table does not fit: the reload is refused as a whole, and nothing is left of the try.
    rescd.write_config({"resources": {**CONFIG["resources"], **{"s%d" % i: {"bulkhead": {"limit": 9}} for i in range(300)}}})
    done = subprocess.run([*inside, RESCTL, "-i", rescd.instance, "reload"], stderr=subprocess.PIPE,
                          check=False)
    assert done.returncode == 1 and b"No space left" in done.stderr, done
    names = subprocess.run([*inside, "ls", "/dev/shm"], stdout=subprocess.PIPE, check=True).stdout.decode().split()
    assert sorted(names) == ["full", os.path.basename(rescd.segment)]
    assert [w.call("payments")["r"] >= 0 for w in crew] == [True] * 3


# ---- cut while it is in use ----

def cut_to_nothing(path, size):
    os.truncate(path, 0)


def cut_to_nothing_and_regrown(path, size):
    os.truncate(path, 0)
    os.truncate(path, size)


def cut_to_a_page(path, size):
    os.truncate(path, 4096)


def cut_in_the_middle(path, size):
    os.truncate(path, size // 2)


def header_overwritten(path, size):
    with open(path, "r+b") as file:
        file.write(b"\xff" * 4096)


def everything_zeroed(path, size):
    subprocess.run(["fallocate", "--punch-hole", "--offset", "0", "--length", str(size), path], check=True)


CUTS = [cut_to_nothing, cut_to_nothing_and_regrown, cut_to_a_page, cut_in_the_middle, header_overwritten, everything_zeroed]


def until_fresh(rescd, generation):
    """The snapshot of the segment that rescd has made in the place of that one."""
    def fresh():
        done = rescd.ctl("snapshot", "--json", code=None)
        seen = json.loads(done.stdout) if done.returncode == 0 else None
        return seen if seen and seen["segment"]["generation"] != generation else None

    return until(fresh, what="a fresh segment")


@pytest.mark.parametrize("cut_", CUTS, ids=lambda f: f.__name__)
def test_F6_rescd_starts_over_with_a_fresh_segment_and_the_workers_that_live_join_it(host, cut_):
    """Who touches what is gone gets a SIGBUS: that is the kernel's way. Who does not, never reads zeros as "closed, nothing in use"."""
    rescd = host(CONFIG)
    busy, idle = rescd.crew(2)
    busy.fail("payments", 5)
    kept = idle.hold("payments", 0)
    generation, pid = rescd.snapshot()["segment"]["generation"], rescd.process.pid
    cut_(rescd.segment, os.path.getsize(rescd.segment))

    fresh = until_fresh(rescd, generation)
    assert rescd.process.poll() is None and fresh["daemon"]["pid"] == pid
    assert "starting over" in rescd.log() and rescd.files() == [os.path.basename(rescd.segment)]
    generation = fresh["segment"]["generation"]
    newcomer = rescd.worker()
    assert newcomer.hello["generation"] == generation and kept == []
    for worker in (busy, idle):
        try:
            converge([worker], generation)
            assert worker.enter("payments")["r"] == 0
        except Gone:
            assert worker.died() == -signal.SIGBUS and cut_ in (cut_to_nothing, cut_to_a_page, cut_in_the_middle)
    until(lambda: rescd.ctl("reload", code=None).returncode == 0, what="it takes commands")
    assert agreed(rescd, newcomer, "payments")["state"] == "closed"


def test_F6_rescd_survives_a_former_segment_that_is_cut(host):
    rescd = host(CONFIG)
    worker, former = rescd.worker(), rescd.snapshot()["segment"]["generation"]
    worker.hold("payments", 2)
    assert rescd.load({"resources": {**CONFIG["resources"], **{"s%d" % i: {} for i in range(40)}}})["replaced"]
    newcomer, current, pid = rescd.worker(), rescd.snapshot()["segment"]["generation"], rescd.process.pid
    cut_to_nothing(rescd.segment + "." + former, 0)
    until(lambda: "starting over" in rescd.log() or rescd.process.poll() is not None, what="rescd has noticed")
    until(lambda: rescd.ctl("reload", code=None).returncode == 0, what="rescd serves again")
    seen = rescd.snapshot()
    assert seen["segment"]["generation"] == current != former and seen["daemon"]["pid"] == pid
    assert newcomer.call("payments")["r"] == 0


def test_F6_rescd_starts_over_where_its_log_cannot_be_written(host):
    rescd = host(CONFIG, before=["sh", "-c", 'exec "$0" "$@" 2>/dev/full'])
    before = rescd.snapshot()
    header_overwritten(rescd.segment, os.path.getsize(rescd.segment))
    assert until_fresh(rescd, before["segment"]["generation"])["daemon"]["pid"] == before["daemon"]["pid"]


@pytest.mark.parametrize("cut_", [cut_to_nothing_and_regrown, header_overwritten, everything_zeroed], ids=lambda f: f.__name__)
def test_F6_without_rescd_a_worker_goes_on_alone_and_says_why(host, cut_):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.hold("payments", 8)
    rescd.kill()
    cut_(rescd.segment, os.path.getsize(rescd.segment))

    def alone():
        assert worker.enter("payments")["r"] >= 0  # an answer, and not an error
        return worker.status()["mode"] == "private"

    until(alone, what="the worker has noticed")
    assert rescd.segment in worker.status()["reason"] and worker.stderr().count("private mode") == 1
    assert rescd.ctl("list", code=3).stderr
    rescd.start()
    converge([worker], rescd.snapshot()["segment"]["generation"])


def test_F6_what_is_added_behind_the_end_is_nobodys_business(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    worker.fail("payments", 5)
    os.truncate(rescd.segment, os.path.getsize(rescd.segment) + 123456)
    assert rescd.show("payments")["state"] == "open"
    rescd.restart()
    assert "re-attached" in rescd.log() and rescd.worker().enter("payments")["answer"] == "open"
    assert worker.enter("payments")["answer"] == "open"


# ---- workers and rescd come and go ----

def test_F8_workers_that_come_and_go_change_nothing(host):
    rescd = host(BUSY)
    worker = rescd.worker()
    kept = arrange(rescd, worker)
    before = [steady(r) for r in rescd.snapshot()["resources"]]
    for i in range(10):
        guest = rescd.worker()
        guest.ask("lookup", "ledger")
        guest.ask("lookup", "payments")
        guest.kill() if i % 2 else guest.end()
    until(lambda: len(rescd.snapshot()["workers"]) == 1, what="only the first worker")
    assert [steady(r) for r in rescd.snapshot()["resources"]] == before
    assert worker.leave(kept[2])["answer"] == "ok"


def test_F11_start_kill_start_stop_again_and_again_leaves_nothing_behind(host):
    rescd = host(BUSY, metrics="")
    names = set(os.listdir(rescd.dir))
    shm, sysv = rescd.files(), subprocess.run(["ipcs"], stdout=subprocess.PIPE, check=False).stdout
    rescd.reload()  # answered: the descriptor that READY=1 was sent by is closed
    descriptors = len(os.listdir("/proc/%d/fd" % rescd.process.pid))
    rescd.stop()
    for _ in range(rounds(100, 1000)):
        rescd.start()
        rescd.kill()
        rescd.start()
        rescd.stop()
    rescd.start()
    assert rescd.files() == shm == [os.path.basename(rescd.segment)]
    assert set(os.listdir(rescd.dir)) == names
    until(lambda: len(os.listdir("/proc/%d/fd" % rescd.process.pid)) == descriptors, what="as many descriptors as at first")
    assert subprocess.run(["ipcs"], stdout=subprocess.PIPE, check=False).stdout == sysv
    assert len([n for n in os.listdir(SHM) if rescd.instance in n]) == 1


@pytest.mark.skipif(not may(*NAMESPACE, "true"), reason="unshare is not permitted here")
def test_K2_a_crash_loop_as_pid_1_of_a_container_keeps_the_workers_state(host):
    rescd = host(BUSY, before=NAMESPACE)
    worker = rescd.worker()
    kept = arrange(rescd, worker)
    before = [steady(r) for r in rescd.snapshot()["resources"]]
    generation = rescd.snapshot()["segment"]["generation"]
    for _ in range(5):
        assert rescd.snapshot()["daemon"]["pid"] == 1
        rescd.kill()
        rescd.start()
        assert "re-attached" in rescd.log()
    assert rescd.snapshot()["segment"]["generation"] == generation
    assert [steady(r) for r in rescd.snapshot()["resources"]] == before
    # A pid that means nothing here, and a heartbeat that is fresh: it lives.
    assert rescd.snapshot()["daemon"]["status"] == "running"
    assert worker.leave(kept[2])["answer"] == "ok"


# ---- full tables ----

def test_F10_slots_of_the_dead_are_taken_back_before_anybody_is_refused(host):
    rescd = host({"workers": 16, "resources": {"payments": {}}})
    crew = rescd.crew(16)
    assert all(w.hello["mode"] == "shared" for w in crew)
    late = rescd.worker()
    assert late.hello["mode"] == "private" and "workers" in late.hello["reason"]
    late.end()
    rescd.kill()  # nobody but the next worker can notice
    for worker in crew[:8]:
        worker.kill()
    assert all(w.hello["mode"] == "shared" for w in rescd.crew(8))


def test_F10_a_policy_too_many_is_refused_told_and_counted_and_the_others_go_on(host):
    shards = {"made": 4, "resources": {**CONFIG["resources"], "shard-*": {"breaker": {"consecutive": 2, "cooldown": "1h"}}}}
    rescd = host(shards)
    worker = rescd.worker()
    room = 0
    while room < 1000 and worker.ask("lookup", "shard-%d" % room).get("r") == 0:
        worker.fail("shard-%d" % room, 2)  # open ones are never retired
        room += 1
    assert 4 <= room < 1000
    refused = worker.ask("lookup", "shard-%d" % room)
    assert refused["r"] == -28 and "made" in refused["error"]  # ENOSPC
    assert worker.call("payments")["r"] == 0
    assert [worker.enter("shard-%d" % i)["answer"] for i in range(room)] == ["open"] * room
    snapshot = rescd.snapshot()
    assert len(snapshot["resources"]) == room + 1 and all(r["state"] == "open" for r in snapshot["resources"] if r["name"] != "payments")
    agreed(rescd, worker, "payments")


def test_bad_instance_names_are_an_error_and_no_path(host):
    for name in ("../x", "a/b", ".hidden", "x" * 64, "a b"):
        worker = Worker(name)
        assert worker.hello["r"] == -22 and worker.hello["error"]
        worker.clean()
