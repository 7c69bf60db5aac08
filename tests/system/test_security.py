# SPDX-License-Identifier: MIT
"""Who may do what, and what somebody hostile can not do. Each "cannot" of docs/security.md is here, in tests/install or in a unit test."""
import contextlib
import ctypes
import json
import mmap
import os
import re
import shutil
import socket
import stat
import struct
import subprocess
import time
import urllib.request

import pytest
from harness import HELPERS, RESCTL, TOP, may, metric, until

CONFIG = {"group": "nogroup", "resources": {"payments": {"breaker": {"consecutive": 4243, "cooldown": "5s"}, "bulkhead": {"limit": 8}},
                                            "stock": {"breaker": {}}}}
NOGROUP, MEMBER_UID, NOBODY = 65534, 65533, 65532
MEMBER = ["setpriv", "--reuid", str(MEMBER_UID), "--regid", str(NOGROUP), "--clear-groups"]
BY_SUPPLEMENT = ["setpriv", "--reuid", str(MEMBER_UID), "--regid", "65531", "--groups", str(NOGROUP)]
OUTSIDER = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
READS = (["list"], ["show", "payments"], ["events"], ["workers"], ["snapshot"])
WRITES = (["force", "payments", "open", "--for", "1m", "--why", "x"], ["release", "payments"], ["reset", "payments", "--why", "x"])
SERVICE = os.path.join(TOP, "daemon", "rescd.service")

pytestmark = pytest.mark.skipif(os.getuid() != 0 or not may(*MEMBER, "true"), reason="needs root")


def ctl(rescd, who, *args, code=None):
    done = subprocess.run([*who, RESCTL, "--instance", rescd.instance, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60, check=False)
    assert code is None or done.returncode == code, done
    return done


def said(done):
    return done.stderr.decode()


def as_member(code, *args):
    """Runs Python as a member of the group: a hostile worker."""
    return subprocess.run([*MEMBER, "/usr/bin/python3", "-c", code, *map(str, args)], stdin=subprocess.DEVNULL, timeout=60, check=True)


POKE = """
import mmap, sys
path, at, data = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
with open(path, "r+b") as file:
    mmap.mmap(file.fileno(), 0)[at:at + len(data)] = data
"""


def find(rescd, data):
    """Every place of these bytes in the segment."""
    with open(rescd.segment, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as seen:
        return [m.start() for m in re.finditer(re.escape(data), seen)]


def poke(rescd, at, data):
    as_member(POKE, rescd.segment, at, data.hex())


# ---- who may ----

def test_F5_outsiders_get_a_clear_no_that_names_the_group_and_change_nothing(host):
    rescd = host(CONFIG)
    before = rescd.snapshot()["resources"]
    for command in READS + WRITES:
        done = ctl(rescd, OUTSIDER, *command, code=3)
        assert done.stdout == b"" and "uid %d" % NOBODY in said(done) and "mode 0660" in said(done), done
        assert 'members of group "nogroup" may' in said(done) and "join the group" in said(done), done
        assert ('"mode": "0664"' in said(done)) == (command in READS), done
    assert rescd.snapshot()["resources"] == before
    stranger = rescd.worker(before=OUTSIDER)
    assert stranger.hello["mode"] == "private" and "group %d, mode 0660" % NOGROUP in stranger.hello["reason"]
    assert stranger.call("payments")["r"] == 0


def test_F5_where_the_mode_lets_them_outsiders_look_and_no_more(host):
    rescd = host({**CONFIG, "mode": "0664"})
    rescd.worker().call("payments")
    for command in READS:
        assert ctl(rescd, OUTSIDER, *command, code=0).stdout, command
        ctl(rescd, OUTSIDER, *command, "--json", code=0)
    seen = json.loads(ctl(rescd, OUTSIDER, "show", "payments", "--json", code=0).stdout)
    assert seen == rescd.ask("show", "payments")
    for command in WRITES:
        done = ctl(rescd, OUTSIDER, *command, code=3)
        assert "may not be written by uid %d" % NOBODY in said(done) and "join the group" in said(done), done
    assert json.loads(ctl(rescd, OUTSIDER, "show", "payments", "--json", code=0).stdout) == seen
    done = ctl(rescd, OUTSIDER, "reload", code=3)
    assert "members of the configured group may reload" in said(done)
    stranger = rescd.worker(before=OUTSIDER)
    assert stranger.hello["mode"] == "private" and "may not be written" in stranger.hello["reason"]
    assert stranger.call("payments")["r"] == 0
    assert rescd.show("payments")["counters"]["enters"] == 1


def test_F5_with_0640_the_group_looks_and_works_by_itself(host):
    rescd = host({**CONFIG, "mode": "0640"})
    for command in READS:
        ctl(rescd, MEMBER, *command, code=0)
        ctl(rescd, OUTSIDER, *command, code=3)
    done = ctl(rescd, MEMBER, *WRITES[0], code=3)
    assert "root and its owner, uid 0, may" in said(done)
    worker = rescd.worker(before=MEMBER)
    assert worker.hello["mode"] == "private" and worker.call("payments")["r"] == 0


@pytest.mark.parametrize("who", [MEMBER, BY_SUPPLEMENT], ids=["group", "supplementary"])
def test_members_work_force_and_reload_and_their_uid_is_kept(host, who):
    rescd = host(CONFIG)
    worker = rescd.worker(before=who)
    assert worker.hello["mode"] == "shared" and worker.call("payments")["r"] == 0
    ctl(rescd, who, *WRITES[0], code=0)
    assert rescd.show("payments")["override"]["uid"] == MEMBER_UID
    assert worker.call("payments")["answer"] == "forced_open"
    ctl(rescd, who, *WRITES[1], code=0)
    assert [e["uid"] for e in rescd.events("forced")] == [MEMBER_UID]
    assert json.loads(ctl(rescd, who, "reload", "--json", code=0).stdout)["ok"]


def test_the_kernel_says_who_reloads_also_where_the_socket_is_open_for_all_and_in_a_user_namespace(host):
    rescd = host({**CONFIG, "mode": "0664"})
    os.chmod(rescd.control_path, 0o666)
    refused = [OUTSIDER]
    if may(*OUTSIDER, "unshare", "--user", "--map-root-user", "true"):
        refused.append([*OUTSIDER, "unshare", "--user", "--map-root-user"])  # root, but only there
    for who in refused:
        done = ctl(rescd, who, "reload", code=1)
        assert "not allowed: uid %d is not root" % NOBODY in said(done) and "group %d" % NOGROUP in said(done), done
    until(lambda: re.search(r"control: refused uid %d, pid \d+" % NOBODY, rescd.log()), what="a line in the log, after the answer")
    assert metric(rescd.scrape(), "resc_control_refused_total") == len(refused)
    assert rescd.reload()["ok"]


def test_a_directory_where_others_could_replace_the_socket_is_warned_about(host, tmp_path):
    rescd = host(CONFIG, start=False)
    os.chmod(tmp_path, 0o777)
    rescd.control_path = os.path.join(tmp_path, "control.sock")
    rescd.start()
    assert "others than we may put another control socket" in rescd.log()
    assert rescd.reload()["ok"]


# ---- a hostile worker ----

def test_a_pid_that_stands_in_a_slot_is_never_signalled(host):
    rescd = host(CONFIG)
    innocent = subprocess.Popen(["sleep", "1000"])
    try:
        for pid in (innocent.pid, 1, rescd.process.pid, 0, 2**32 - 1, 2**63 + innocent.pid):
            worker = rescd.worker(before=MEMBER)
            worker.hold("payments", 1)
            slot = find(rescd, struct.pack("<QQQ", int(worker.hello["worker"]), int(worker.hello["worker"]), worker.pid))
            assert len(slot) == 1
            with open("/proc/%d/stat" % innocent.pid, encoding="utf-8") as file:
                ticks = int(file.read().rsplit(")", 1)[1].split()[19])
            poke(rescd, slot[0] + 16, struct.pack("<QQ", pid, ticks))
            worker.kill()
            until(lambda: rescd.show("payments")["permits"]["in_use"] == 0, what="the permit of the dead")
        assert innocent.poll() is None and rescd.process.poll() is None
        assert rescd.reload()["ok"]
    finally:
        innocent.kill()
        innocent.wait()


SCRIBBLE = """
import mmap, os, random, sys, time
path, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
rng = random.Random(seed)
with open(path, "r+b") as file:
    whole = mmap.mmap(file.fileno(), 0)
values = [0, 1, 2**64 - 1, 2**63, 0x0101010101010101]
end = time.monotonic() + seconds
while time.monotonic() < end:
    for _ in range(200):
        at = rng.choice((rng.randrange(0, 16384), rng.randrange(0, len(whole)))) // 8 * 8
        value = rng.choice((rng.choice(values), rng.getrandbits(64), 1 << rng.randrange(64)))
        whole[at:at + 8] = value.to_bytes(8, "little")
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_worker_that_scribbles_over_everything_crashes_and_hangs_nobody(host, seed):
    rescd = host(CONFIG)
    crew = rescd.crew(3)
    for i, worker in enumerate(crew):
        worker.busy("payments", 0.2, i + 1)
    as_member(SCRIBBLE, rescd.segment, seed, 1.0)
    told = [worker.idle() for worker in crew]  # an answer is what is promised; what the numbers are is the scribbler's
    assert all(t["enters"] > 0 for t in told)
    for command in READS:
        assert ctl(rescd, [], *command).returncode in (0, 1, 3), command
    assert rescd.process.poll() is None

    def page_is_there():
        """Where the header was hit rescd starts over, with another socket."""
        with contextlib.suppress(OSError), urllib.request.urlopen(rescd.metrics_url, timeout=10) as page:
            return page.status == 200

    until(page_is_there, what="the metrics page")
    rescd.restart()
    fresh = rescd.worker()
    assert fresh.hello["mode"] == "shared" and fresh.call("stock")["r"] >= 0


def test_a_policy_that_a_worker_has_changed_is_put_back_by_a_reload(host):
    """The policies are mapped read-only, but the file is the group's: this is what is promised, and no more."""
    rescd = host(CONFIG)
    worker = rescd.worker(before=MEMBER)
    places = find(rescd, struct.pack("<Q", 4243))
    for at in places:
        poke(rescd, at, struct.pack("<Q", 2))
    worker.fail("payments", 3)
    assert rescd.show("payments")["state"] == "open"
    answer = rescd.reload()
    assert answer["ok"] and answer["changed"] == ["payments"]
    rescd.ctl("reset", "payments", "--why", "x")
    worker.fail("payments", 3)
    assert rescd.show("payments")["state"] == "closed"


LISTEN = """
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(4)
print("there", flush=True)
peer, _ = s.accept()
heard = peer.recv(100)
print(heard, flush=True)
"""


def test_an_operator_is_not_told_ok_by_a_socket_that_a_worker_wrote_into_the_segment(host):
    rescd = host(CONFIG)
    place = os.path.join(rescd.dir, "f")
    os.mkdir(place)
    os.chown(place, MEMBER_UID, NOGROUP)
    false = os.path.join(place, "s")
    assert len(false) < len(rescd.control_path)
    with subprocess.Popen([*MEMBER, "/usr/bin/python3", "-c", LISTEN, false], stdout=subprocess.PIPE) as listener:
        assert listener.stdout.readline() == b"there\n"
        (at, *others) = find(rescd, rescd.control_path.encode() + b"\0")
        assert not others
        poke(rescd, at, false.encode() + b"\0")
        done = rescd.ctl("reload", code=3)
        assert "served by uid %d" % MEMBER_UID in done.stderr and done.stdout == ""
        assert listener.stdout.readline() == b"b''\n"


def test_locks_of_readers_keep_no_dead_worker_alive_and_are_named_when_rescd_starts(host):
    rescd = host({**CONFIG, "mode": "0664"})
    worker = rescd.worker()
    worker.hold("payments", 2)
    hold = "import fcntl, struct, sys\nf = open(sys.argv[1], 'rb')\n" \
           "fcntl.fcntl(f, 37, struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, int(sys.argv[2]), 0, 0))\nprint('held', flush=True)\nsys.stdin.read()"

    def locker(start):
        process = subprocess.Popen([*OUTSIDER, "/usr/bin/python3", "-c", hold, rescd.segment, str(start)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"held\n"
        return process

    other = locker((1 << 41) + int(worker.hello["worker"]) + 1)
    late = rescd.worker()
    assert late.hello["mode"] == "private" and "locks that are not its own" in late.hello["reason"]
    other.communicate()
    rescd.kill()
    worker.kill()
    with locker(1 << 40) as daemon:
        assert "keeps a lock on it" in rescd.fails_to_start()
        daemon.communicate()
    rescd.start()
    until(lambda: rescd.show("payments")["permits"]["in_use"] == 0, what="the permits of the dead")


# ---- what people see ----

def harmless(text):
    """Nothing in it that a terminal or a log reader obeys: no control characters but the end of a line, C1 included; good UTF-8."""
    return all(c == "\n" or (c.isprintable() or ord(c) > 0xa0) for c in text.decode())


def test_nothing_that_a_terminal_obeys_comes_out_of_names_reasons_or_logs(host):
    rescd = host(CONFIG)
    evil = b"\x1b[2J\xc2\x9b31m\x9bx"
    link = os.path.join(rescd.dir.encode(), evil)
    os.symlink(os.path.join(HELPERS, "worker").encode(), link)
    worker = rescd.worker(before=["bash", "-c", 'exec "$1" "$3"', "bash", link])
    assert worker.hello["mode"] == "shared"
    worker.hold("payments", 1)
    why = "x\x1b]0;owned\x07\r\n\x7f\u009b2J end"
    rescd.ctl("force", "payments", "open", "--for", "1m", "--why", why)
    with open(rescd.segment, "r+b") as file, mmap.mmap(file.fileno(), 0) as segment:
        for m in list(re.finditer(b"stock", segment)):
            segment[m.start():m.start() + 5] = b"\x1b[2J\x9b"
    for command in READS + (["show"],):
        for args in (command, [*command, "--json"]):
            done = ctl(rescd, [], *args)
            assert harmless(done.stdout) and harmless(done.stderr), (args, done)
    worker.kill()
    until(lambda: "worker died" in rescd.log(), what="the log of the death")
    with open(rescd.log_path, "rb") as file:
        assert harmless(file.read())
    with urllib.request.urlopen(rescd.metrics_url, timeout=10) as page:
        assert harmless(page.read())
    done = ctl(rescd, [], "show", "no\x1b[2Jsuch", code=1)
    assert harmless(done.stderr)


def drip(address, count):
    """Connections that say one byte now and then, for ever: of many slow readers."""
    crew = []
    for _ in range(count):
        s = socket.create_connection(address, timeout=5)
        s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")
        crew.append(s)
    return crew


def test_slow_clients_that_take_every_connection_to_the_metrics_page_do_not_keep_it(host):
    rescd = host(CONFIG)
    worker = rescd.worker()
    port = int(re.search(r":(\d+)/", rescd.metrics_url).group(1))
    crew = drip(("127.0.0.1", port), 32)

    def scraped():
        for s in crew:
            try:
                s.sendall(b"x")
            except OSError:
                pass
        try:
            with urllib.request.urlopen(rescd.metrics_url, timeout=0.3) as page:
                return page.status == 200
        except OSError:
            return False

    start = time.monotonic()
    assert rescd.reload()["ok"] and worker.call("payments")["r"] == 0  # nobody else waits meanwhile
    assert time.monotonic() - start < 5
    until(scraped, patience=20, what="a scrape beside those")
    for s in crew:
        s.close()
    with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
        s.sendall(b"GET /" + b"a" * 100000)
        try:
            answer = s.recv(100)
        except ConnectionError:
            answer = b""
        assert answer == b"" or answer.startswith(b"HTTP/1.1 4"), answer
    assert metric(rescd.scrape(), "resc_workers") == 1


# ---- containers ----

own_mounts = pytest.mark.skipif(not may("unshare", "--mount", "true"), reason="mounting is not permitted here")


def mounted(script):
    """Runs a command where the mounts were changed by that script."""
    return ["unshare", "--mount", "sh", "-c", script + ' && exec "$@"', "sh"]


@own_mounts
def test_a_worker_with_a_read_only_dev_shm_is_private_and_says_so_and_resctl_looks(host):
    rescd = host(CONFIG)
    inside = mounted("mount -o bind,ro /dev/shm /dev/shm 2>/dev/null || mount -o bind /dev/shm /dev/shm; mount -o remount,bind,ro /dev/shm")
    worker = rescd.worker(before=inside)
    assert worker.hello["mode"] == "private" and "Read-only file system" in worker.hello["reason"]
    assert worker.call("payments")["r"] == 0
    for command in READS:
        ctl(rescd, inside, *command, code=0)
    assert "Read-only file system" in said(ctl(rescd, inside, *WRITES[0], code=3))


@own_mounts
def test_a_single_file_that_is_mounted_does_not_follow_a_replaced_segment(host):
    """With the file alone a worker shares until the segment is replaced, and is private then: mount the directory."""
    rescd = host(CONFIG)
    held = os.path.join(rescd.dir, "held")
    inside = mounted("touch {1} && mount --bind {0} {1} && mount -t tmpfs tmpfs /dev/shm && touch {0} && mount --bind {1} {0}".format(
        rescd.segment, held))
    worker = rescd.worker(before=inside)
    assert worker.hello["mode"] == "shared"
    ticket = worker.enter("payments")
    assert rescd.load({**CONFIG, "workers": 4096})["replaced"]
    for _ in range(3):
        assert worker.call("payments")["r"] == 0
    assert worker.status()["mode"] == "private" and "cannot be reached from here" in worker.status()["reason"]
    assert worker.leave(ticket)["r"] >= 0
    until(lambda: rescd.show("payments")["permits"]["in_use"] == 0, what="the permit in the old segment")
    other = rescd.worker()
    assert other.status()["generation"] == rescd.snapshot()["segment"]["generation"]
    late = rescd.worker(before=mounted("true"))
    assert late.hello["mode"] == "shared"


@own_mounts
def test_with_a_hidden_proc_deaths_are_learnt_by_token(host):
    # Of hidepid the group of gid= is exempt: without it that is root's.
    hidden = mounted("mount -t proc -o hidepid=invisible,gid=1 proc /proc")
    rescd = host(CONFIG, before=[*hidden, "setpriv", "--bounding-set", "-all,+chown"])
    worker = rescd.worker(before=MEMBER)
    worker.hold("payments", 2)
    worker.process.kill()  # and nobody waits for it yet: a pid that is gone altogether would say as much without /proc
    until(lambda: rescd.show("payments")["permits"]["in_use"] == 0, what="the permits of the dead")
    until(lambda: "worker died" in rescd.log(), what="the log of the death, after all that it held")
    assert "learnt by token" in rescd.log()
    worker.kill()


# ---- the unit ----

def service_lines(key):
    with open(SERVICE, encoding="utf-8") as file:
        return [line.split("=", 1)[1].strip() for line in file if line.startswith(key + "=")]


def tool(name):
    return pytest.mark.skipif(shutil.which(name) is None, reason="no " + name)


def drop_in():
    """The lines that security.md has for a user of its own."""
    with open(os.path.join(TOP, "docs", "security.md"), encoding="utf-8") as file:
        return re.search(r"```ini\n\[Service\]\n(.*?)```", file.read(), re.S).group(1).replace("www-data", "nogroup").replace("=resc", "=daemon")


@tool("systemd-analyze")
@pytest.mark.parametrize("own_user", [False, True], ids=["root", "own_user"])
def test_the_unit_is_understood_and_hardened(tmp_path, own_user):
    with open(SERVICE, encoding="utf-8") as file:
        text = file.read()
    if own_user:
        text = text.replace("[Install]", drop_in() + "[Install]")
    unit = tmp_path / "rescd.service"
    unit.write_text(re.sub(r"^(ExecStart|ExecReload)=.*", r"\1=/bin/true", text, flags=re.M))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)
    about_it = [line for line in done.stdout.decode().splitlines() if "rescd" in line]
    assert done.returncode == 0 and not about_it, about_it
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=%d" % (16 if own_user else 22), "--no-pager", unit], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, check=False)
    assert done.returncode == 0, done.stdout.decode()


# Loads the filter and becomes the program.
SECCOMP = """
import ctypes, os, sys
lib = ctypes.CDLL("libseccomp.so.2", use_errno=True)
lib.seccomp_init.restype = ctypes.c_void_p
lib.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p]
lib.seccomp_load.argtypes = [ctypes.c_void_p]
allowed = sys.argv[1].split(",")
context = lib.seccomp_init(0x00050001)  # everything else is EPERM
for name in allowed:
    number = lib.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        assert lib.seccomp_rule_add_array(context, 0x7fff0000, number, 0, None) == 0, name
assert lib.seccomp_load(context) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""


def allowed_calls():
    """The system calls that the unit allows, as systemd reads SystemCallFilter=."""
    told = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True)
    sets, current = {}, None
    for line in told.stdout.decode().splitlines():
        word = line.strip()
        if line.startswith("@"):
            current = sets.setdefault(word, [])
        elif word and not word.startswith("#") and current is not None:
            current.append(word)

    def members(word):
        return {call for inner in sets[word] for call in members(inner)} if word.startswith("@") else {word}

    calls = set(members("@default"))
    for line in service_lines("SystemCallFilter"):
        words = {call for word in line.lstrip("~").split() for call in members(word)}
        calls = calls - words if line.startswith("~") else calls | words
    return calls


def has_libseccomp():
    try:
        return bool(ctypes.CDLL("libseccomp.so.2"))
    except OSError:
        return False


@tool("systemd-analyze")
@pytest.mark.skipif(not has_libseccomp(), reason="no libseccomp")
def test_rescd_does_all_its_work_with_the_capabilities_and_system_calls_of_its_unit(host):
    calls = allowed_calls()
    assert "openat" in calls and "fchown" in calls and not calls & {"kill", "tgkill", "ptrace", "setuid", "mount", "pidfd_send_signal"}
    capabilities = ",".join("+" + c.lower().replace("cap_", "") for line in service_lines("CapabilityBoundingSet") for c in line.split())
    caged = ["setpriv", "--no-new-privs", "--inh-caps", "-all", "--bounding-set", "-all," + capabilities,
             "/usr/bin/python3", "-c", SECCOMP, ",".join(sorted(calls))]
    rescd = host({**CONFIG, "resources": {**CONFIG["resources"], "shard-*": {"bulkhead": {"limit": 4}}}}, before=caged)
    st = os.stat(rescd.segment)
    assert (stat.S_IMODE(st.st_mode), st.st_gid) == (0o660, NOGROUP)
    assert os.stat(rescd.control_path).st_gid == NOGROUP
    worker, victim = rescd.worker(before=MEMBER), rescd.worker(before=MEMBER)
    assert worker.call("shard-1")["r"] == 0  # made by rescd meanwhile
    victim.hold("payments", 2)
    victim.kill()
    until(lambda: rescd.show("payments")["permits"]["in_use"] == 0, what="the permits of the dead")
    assert rescd.load({**CONFIG, "workers": 4096, "mode": "0640"})["replaced"]
    assert stat.S_IMODE(os.stat(rescd.segment).st_mode) == 0o640
    os.unlink(rescd.segment)
    until(lambda: os.path.exists(rescd.segment), what="the name comes back")
    assert rescd.load(CONFIG)["ok"]
    assert worker.call("payments")["r"] == 0
    assert metric(rescd.scrape(), "resc_workers") == 1
    rescd.restart()
    assert worker.call("payments")["r"] == 0
    rescd.stop()


def test_rescd_works_as_a_user_of_its_own_that_is_in_the_group_of_the_workers(host):
    own = ["setpriv", "--reuid", "65530", "--regid", "65530", "--groups", str(NOGROUP), "--bounding-set", "-all", "--no-new-privs"]
    rescd = host(CONFIG, start=False, before=own)
    os.chown(rescd.dir, 65530, 65530)
    os.chmod(rescd.notify_path, 0o777)
    rescd.start()
    st = os.stat(rescd.segment)
    assert (st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)) == (65530, NOGROUP, 0o660)
    worker = rescd.worker(before=MEMBER)
    assert worker.hello["mode"] == "shared"
    worker.hold("payments", 2)
    worker.kill()
    until(lambda: rescd.show("payments")["permits"]["in_use"] == 0, what="the permits of the dead")
    for who in ([], MEMBER, own):
        ctl(rescd, who, "reload", code=0)
        ctl(rescd, who, "reset", "payments", "--why", "x", code=0)
    stranger = rescd.worker(before=OUTSIDER)
    assert stranger.hello["mode"] == "private"
