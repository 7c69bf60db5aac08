# SPDX-License-Identifier: MIT
"""Workers find the segment, or go on without it and say why; what is under its name is judged before it is used."""
import os
import stat
import subprocess
import time

import pytest
from harness import RESCTL, SHM, Worker, may, until

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


def test_F2_workers_and_daemon_that_start_at_once_end_in_one_segment(host):
    rescd = host(CONFIG, start=False)
    for _ in range(5):
        rescd.spawn()
        crew = rescd.crew(8)
        until(lambda: rescd.drain(), what="ready")
        converge(crew, rescd.snapshot()["segment"]["generation"])
        assert len(rescd.snapshot()["workers"]) == 8
        rescd.kill()
        for worker in crew:
            worker.kill()
        os.unlink(rescd.segment)


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
    assert "removed by somebody" in rescd.log()


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


@root
@pytest.mark.parametrize("place", [foreign_owner, symbolic_link, for_everybody, pipe, a_directory], ids=lambda f: f.__name__)
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
def test_F5_mode_and_group_are_as_configured_whatever_the_umask(host):
    strict = ["sh", "-c", 'umask 077; exec "$@"', "sh"]
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
    os.chmod(rescd.segment, 0o600)
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


@own_shm
def test_F1_no_room_is_an_error_at_the_start_that_names_size_and_path(host):
    rescd = host(CONFIG, start=False, before=small_shm("4k"))
    said = rescd.fails_to_start()
    assert SHM in said and "bytes" in said and "No space left" in said, said
    worker = rescd.worker(before=small_shm("4k"))
    assert worker.hello["mode"] == "private" and worker.call("payments")["r"] == 0


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


def test_bad_instance_names_are_an_error_and_no_path(host):
    for name in ("../x", "a/b", ".hidden", "x" * 64, "a b"):
        worker = Worker(name)
        assert worker.hello["r"] == -22 and worker.hello["error"]
        worker.clean()
