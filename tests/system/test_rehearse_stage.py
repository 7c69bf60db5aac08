# SPDX-License-Identifier: MIT
"""resctl rehearse: however a rehearsal ends, nothing of it is left: no process, no segment, no socket. And what is not whole is no result."""
import contextlib
import glob
import itertools
import json
import os
import shutil
import signal
import subprocess
import time

import keeper
import pytest
from harness import BUILD, RESCTL, SHM, state_of, until

pytestmark = [pytest.mark.smoke, pytest.mark.plays]

PROGRAM = os.path.join(BUILD, "resctl-rehearse")
numbers = itertools.count(1)

# Long enough to be killed in the middle; whoever plays it to its end makes it shorter.
SCENARIO = {
    "title": "To be killed", "duration": "60s", "workers": 4, "views": ["shared"],
    "configuration": {"resources": {"prices": {"timeout": {"attempt": "50ms"}, "breaker": {"consecutive": 3, "cooldown": "200ms"}}}},
    "dependencies": {"prices": {"latency": "1ms", "faults": [{"kind": "hang", "from": "100ms", "to": "300ms"}]}},
    "load": {"users": {"resource": "prices", "rate": 200, "fallback": "stale"}},
}


class Rehearsal:
    """One that runs, and whatever it starts; all of that has a mark of its own in its environment."""

    def __init__(self, directory, scenario, *args, program=PROGRAM, **environment):
        path = os.path.join(directory, "scenario.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(scenario, file)
        self.mark = "%s.rehearsal-%d" % (os.environ[keeper.WORD], next(numbers))
        self.out = open(os.path.join(directory, "out"), "w+b")
        self.err = open(os.path.join(directory, "err"), "w+b")
        self.process = subprocess.Popen([program, path, *args], stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
                                        start_new_session=True, env={**os.environ, **environment, keeper.WORD: self.mark})

    @property
    def instance(self):
        return "rehearse-%d-1" % self.process.pid

    def pids(self):
        return {pid for pid, _ in keeper.marked(self.mark)}

    def named(self, name):
        """The processes of that name: "rescd", "worker 2"; a forked one that has not named itself has that of its parent."""
        found = []
        for pid in self.pids():
            with contextlib.suppress(OSError), open("/proc/%d/comm" % pid, encoding="utf-8") as file:
                if file.read().strip() == name:
                    found.append(pid)
        return found

    def snapshot(self):
        done = subprocess.run([RESCTL, "--instance", self.instance, "snapshot"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def until_it_plays(self):
        def plays():
            assert self.process.poll() is None, self.said()
            seen = self.snapshot()
            return seen and any(r["counters"]["admitted"] > 0 for r in seen["resources"])

        until(plays, what="calls are made")
        return self

    def end(self, patience=30):
        return self.process.wait(patience)

    def said(self):
        self.err.seek(0)
        return self.err.read().decode()

    def printed(self):
        self.out.seek(0)
        return self.out.read().decode()

    def files(self):
        """The segments and sockets of its instances."""
        pattern = "rehearse-%d-*" % self.process.pid
        places = [os.path.join(SHM, "resc." + pattern), "/run/resc/" + pattern, "/tmp/resc-%d/%s" % (os.geteuid(), pattern),
                  os.path.join(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"), "resc", pattern)]
        return [path for place in places for path in glob.glob(place)]

    def nothing_is_left(self):
        until(lambda: not self.pids(), what="its processes are gone")
        assert self.files() == []


@pytest.fixture
def rehearse(tmp_path):
    """rehearse(scenario, *args): a Rehearsal; killed after the test, with all that it has started."""
    started = []

    def start(scenario=SCENARIO, *args, **kw):
        directory = tmp_path / str(len(started))
        directory.mkdir()
        started.append(Rehearsal(str(directory), scenario, *args, **kw))
        return started[-1]

    yield start
    for rehearsal in started:
        keeper.end(rehearsal.mark)
        rehearsal.process.wait()
        rehearsal.out.close()
        rehearsal.err.close()
        for path in rehearsal.files():
            os.unlink(path)


# ---- to its end ----


def test_played_to_its_end_it_leaves_nothing(rehearse):
    rehearsal = rehearse({**SCENARIO, "duration": "500ms", "views": ["own", "shared"]}, "--json")
    assert rehearsal.end() == 0, rehearsal.said()
    assert len(json.loads(rehearsal.printed())["takes"]) == 2
    assert rehearsal.said() == ""
    rehearsal.nothing_is_left()


def test_as_many_workers_as_there_may_be(rehearse):
    rehearsal = rehearse({**SCENARIO, "duration": "300ms", "workers": 256, "threads": 2, "views": ["own", "shared"]}, "--json")
    assert rehearsal.end(60) == 0, rehearsal.said()
    assert len(json.loads(rehearsal.printed())["takes"]) == 2
    rehearsal.nothing_is_left()


# ---- killed ----


def ended(rehearsal, code):
    """With that exit code, and with nothing on the screen that looks like a result."""
    assert rehearsal.end() == code
    assert "expectation" not in rehearsal.printed()
    rehearsal.nothing_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_it_takes_everything_away(rehearse, number):
    rehearsal = rehearse().until_it_plays()
    rehearsal.process.send_signal(number)
    ended(rehearsal, 128 + number)
    assert "ended by a signal" in rehearsal.said()


def test_killed_it_leaves_nothing(rehearse):
    rehearsal = rehearse().until_it_plays()
    rehearsal.process.kill()
    ended(rehearsal, -signal.SIGKILL)


SERVER = "import socket,sys\ns=socket.create_server(('127.0.0.1',int(sys.argv[1])))\nwhile True:\n c=s.accept()[0]\n while c.recv(99): c.sendall(b'+PONG\\n')"
PONG = {"program": ["/usr/bin/python3", "-S", "-c", SERVER, "{port}"], "send": "PING\n", "expect": "+PONG"}


def test_killed_it_leaves_nothing_that_a_program_started(rehearse):
    program = {**PONG, "program": ["/bin/sh", "-c", "/usr/bin/python3 -S -c \"$1\" $2 & wait", "sh", SERVER, "{port}"]}
    rehearsal = rehearse({**SCENARIO, "workers": 1, "dependencies": {"prices": program}}).until_it_plays()
    assert len(rehearsal.named("python3")) == 1
    rehearsal.process.kill()
    ended(rehearsal, -signal.SIGKILL)


def test_killed_while_it_starts_it_leaves_nothing(rehearse):
    for after_ms in (0, 2, 5, 10, 20, 40):
        rehearsal = rehearse({**SCENARIO, "workers": 32})
        time.sleep(after_ms / 1000)
        rehearsal.process.kill()
        rehearsal.end()
        rehearsal.nothing_is_left()


def test_killed_with_its_whole_process_group_it_leaves_nothing(rehearse):
    rehearsal = rehearse().until_it_plays()
    os.killpg(rehearsal.process.pid, signal.SIGKILL)
    ended(rehearsal, -signal.SIGKILL)


def test_a_terminal_reaches_the_parent_alone(rehearse):
    rehearsal = rehearse().until_it_plays()
    os.killpg(rehearsal.process.pid, signal.SIGINT)
    ended(rehearsal, 128 + signal.SIGINT)
    assert "in the middle" not in rehearsal.said()


@pytest.mark.parametrize("who", ["worker 2", "rescd", "a dependency"])
def test_without_one_of_its_processes_there_is_no_result(rehearse, who):
    rehearsal = rehearse().until_it_plays()
    if who == "a dependency":
        rest = rehearsal.pids() - {rehearsal.process.pid, *rehearsal.named("rescd")}
        victim = rest.difference(*(rehearsal.named("worker %d" % i) for i in range(4))).pop()
    else:
        victim, = rehearsal.named(who)
    os.kill(victim, signal.SIGKILL)
    ended(rehearsal, 3)
    assert "%s (process %d) was killed by signal 9 (Killed) in the middle of the rehearsal" % (who, victim) in rehearsal.said()


def test_one_that_was_stopped_has_no_result(rehearse):
    """One in the middle, one until after its end; both for a moment only, as by Ctrl-Z and fg."""
    both = [rehearse({**SCENARIO, "duration": duration}).until_it_plays() for duration in ("6s", "600ms")]
    for rehearsal in both:
        rehearsal.process.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    for rehearsal in both:
        rehearsal.process.send_signal(signal.SIGCONT)
    for rehearsal in both:
        ended(rehearsal, 3)
        assert "this process was stopped for 0." in rehearsal.said()


def test_one_that_is_told_to_go_on_and_was_not_stopped_goes_on(rehearse):
    rehearsal = rehearse({**SCENARIO, "duration": "500ms"}).until_it_plays()
    rehearsal.process.send_signal(signal.SIGCONT)
    assert rehearsal.end() == 0, rehearsal.said()


def test_when_one_of_its_processes_was_stopped_there_is_no_result(rehearse):
    """Whether it goes on or not: all others do, and notice nothing."""
    stops = [("worker 2", True), ("worker 2", False), ("rehearse-server", True), ("rescd", False)]
    all_of_them = [(rehearse().until_it_plays(), *stop) for stop in stops]
    for rehearsal, who, goes_on in all_of_them:
        victim, = rehearsal.named(who)
        os.kill(victim, signal.SIGSTOP)
        until(lambda pid=victim: state_of(pid) == "T", what="it is stopped")
        if goes_on:
            os.kill(victim, signal.SIGCONT)
    for rehearsal, _, goes_on in all_of_them:
        assert rehearsal.end(4) == 3
        ended(rehearsal, 3)
        # Who looks in between sees the stop, and nothing else.
        assert ") was stopped in the middle" in rehearsal.said() or goes_on and ") was stopped, and went on, in the middle" in rehearsal.said()


def test_when_a_program_was_stopped_and_not_by_its_script_there_is_no_result(rehearse):
    """It may be stopped by its script, and while it is, somebody else may not let it go on either."""
    hangs = {**PONG, "faults": [{"kind": "hang", "from": "100ms", "to": "200ms"}, {"kind": "hang", "from": "700ms", "to": "60s"}]}
    stopped, released = [rehearse({**SCENARIO, "workers": 1, "dependencies": {"prices": hangs}}).until_it_plays() for _ in range(2)]
    time.sleep(0.3)
    os.kill(stopped.named("python3")[0], signal.SIGSTOP)
    victim, = released.named("python3")
    until(lambda: state_of(victim) == "T", what="its script stops it")
    os.kill(victim, signal.SIGCONT)
    for rehearsal, what in ((stopped, "stopped"), (released, "continued")):
        assert rehearsal.end(4) == 3
        ended(rehearsal, 3)
        assert "dependency prices: /usr/bin/python3 was %s, and not by its script" % what in rehearsal.said()


def test_who_started_it_need_not_care_for_its_children(rehearse, tmp_path):
    """SIGCHLD, ignored, is inherited: then the kernel tells a parent nothing of a child that has ended."""
    script = tmp_path / "careless"
    script.write_text("#!/bin/bash\ntrap '' CHLD\nexec %s \"$@\"\n" % PROGRAM)
    script.chmod(0o755)
    rehearsal = rehearse({**SCENARIO, "workers": 1, "dependencies": {"prices": PONG}}, program=str(script)).until_it_plays()
    os.kill(rehearsal.named("python3")[0], signal.SIGKILL)
    assert rehearsal.end(4) == 3
    ended(rehearsal, 3)
    assert "has ended by itself, with signal 9" in rehearsal.said()


# ---- what the environment has to say ----


def test_nothing_of_the_environment_is_meant_for_it(rehearse):
    words = {"RESC_INSTANCE": "no-such-instance", "RESC_FAILPOINT": "x=stop", "NOTIFY_SOCKET": "/nonexistent", "WATCHDOG_USEC": "1000"}
    rehearsal = rehearse(SCENARIO, **words).until_it_plays()
    rescd, = rehearsal.named("rescd")
    with open("/proc/%d/environ" % rescd, "rb") as file:
        there = {word.split(b"=")[0].decode() for word in file.read().split(b"\0")}
    assert there.isdisjoint(words)
    assert {worker["name"] for worker in rehearsal.snapshot()["workers"]} == {"worker %d" % i for i in range(4)}


def test_only_the_parent_holds_the_pipe_that_rescd_lives_on(rehearse):
    rehearsal = rehearse().until_it_plays()
    rescd, = rehearsal.named("rescd")
    pipe = os.readlink("/proc/%d/fd/0" % rescd)
    holders = set()
    for pid in rehearsal.pids():
        for fd in glob.glob("/proc/%d/fd/*" % pid):
            with contextlib.suppress(OSError):
                if os.readlink(fd) == pipe:
                    holders.add(pid)
    assert holders == {rescd, rehearsal.process.pid}


def test_a_runtime_directory_of_somebody_else_is_not_in_its_way(rehearse, tmp_path):
    """su leaves XDG_RUNTIME_DIR as it was. Root has another place, so this must not be root."""
    script = tmp_path / "as-another"
    another = "setpriv --reuid 65534 --inh-caps +dac_override --ambient-caps +dac_override " if os.geteuid() == 0 else ""
    script.write_text("#!/bin/sh\nexec %s%s \"$@\"\n" % (another, PROGRAM))
    script.chmod(0o755)
    for place in ("/nonexistent", "/tmp/" + "x" * 100):
        rehearsal = rehearse({**SCENARIO, "duration": "310ms"}, program=str(script), XDG_RUNTIME_DIR=place)
        assert rehearsal.end() == 0, rehearsal.said()
        rehearsal.nothing_is_left()
        assert glob.glob("/tmp/resc-65534/rehearse-%d-*" % rehearsal.process.pid) == []
    if os.geteuid() == 0:
        os.rmdir("/tmp/resc-65534")


# ---- what cannot be started ----


def fake_rescd(tmp_path, text):
    """The program beside a rescd that is none."""
    program = shutil.copy(PROGRAM, tmp_path / "resctl-rehearse")
    (tmp_path / "rescd").write_text("#!/bin/sh\n" + text)
    (tmp_path / "rescd").chmod(0o755)
    return program


def test_a_rescd_that_does_not_start_says_why(rehearse, tmp_path):
    rehearsal = rehearse(SCENARIO, program=fake_rescd(tmp_path, "echo 'no room in /dev/shm' >&2; exit 1"))
    ended(rehearsal, 3)
    assert "does not start:\nno room in /dev/shm" in rehearsal.said()


DEAF = {"views": ["shared"], "dependencies": {"prices": {"program": ["sleep", "60", "{port}"]}}}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_does_not_wait_for_a_program_that_does_not_listen(rehearse, number):
    rehearsal = rehearse({**SCENARIO, **DEAF})
    until(lambda: rehearsal.named("sleep"), what="the program runs")
    rehearsal.process.send_signal(number)
    assert rehearsal.end(5) == 128 + number
    assert rehearsal.said().splitlines() == ["resctl rehearse: ended by a signal: " + signal.strsignal(number)]
    rehearsal.nothing_is_left()


def test_a_signal_does_not_wait_for_a_rescd_that_does_not_start(rehearse, tmp_path):
    rehearsal = rehearse(SCENARIO, program=fake_rescd(tmp_path, "exec cat"))
    until(lambda: rehearsal.named("cat"), what="it runs")
    rehearsal.process.send_signal(signal.SIGINT)
    assert rehearsal.end(5) == 128 + signal.SIGINT
    assert rehearsal.said().splitlines() == ["resctl rehearse: ended by a signal: Interrupt"]
    rehearsal.nothing_is_left()


def test_a_program_that_goes_into_the_background_is_told_to_stay(rehearse):
    away = {"program": ["/bin/sh", "-c", "(sleep 0.1) & exit 0", "{port}"]}
    rehearsal = rehearse({**SCENARIO, "dependencies": {"prices": away}})
    ended(rehearsal, 3)
    assert "has ended by itself, with status 0; one that goes into the background must be told to stay in the foreground" in rehearsal.said()


@pytest.mark.parametrize("few", [6, 8, 12, 30])
def test_too_few_descriptors_are_named_with_the_remedy(rehearse, tmp_path, few):
    script = tmp_path / "with-few"
    script.write_text("#!/bin/sh\nulimit -n %d\nexec %s \"$@\"\n" % (few, PROGRAM))
    script.chmod(0o755)
    rehearsal = rehearse({**SCENARIO, "workers": 60}, program=str(script))
    ended(rehearsal, 3)
    assert "Too many open files; a higher `ulimit -n`" in rehearsal.said()


MANY = ("import socketserver,sys\nclass H(socketserver.BaseRequestHandler):\n def handle(self):\n  while self.request.recv(99): self.request.sendall(b'+PONG\\n')\n"
        "socketserver.ThreadingTCPServer.request_queue_size=99\nsocketserver.ThreadingTCPServer(('127.0.0.1',int(sys.argv[1])),H).serve_forever()")


LACKS = {
    "Too many open files; a higher `ulimit -n` lets it have more": ("ulimit -n 64", {"send": "PING\n", "expect": "+PONG"}),
    "no port of this host is free": (
        # Each call connects, and what it connected from is not free again for a minute.
        "[ -n \"$alone\" ] || alone=1 exec unshare -n \"$0\" \"$@\"; ip link set lo up; echo 40000 40019 >/proc/sys/net/ipv4/ip_local_port_range", {}),
}


@pytest.mark.parametrize("what", LACKS, ids=["descriptors", "ports"])
def test_calls_for_which_a_worker_has_not_the_means_are_no_failures_of_the_dependency(rehearse, tmp_path, what):
    if "unshare" in LACKS[what][0] and subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("needs a network of its own")
    script = tmp_path / "with-few"
    script.write_text("#!/bin/sh\n%s\nexec %s \"$@\"\n" % (LACKS[what][0], PROGRAM))
    script.chmod(0o755)
    many = {"program": ["/usr/bin/python3", "-S", "-c", MANY, "{port}"], **LACKS[what][1]}
    rehearsal = rehearse({**SCENARIO, "workers": 1, "threads": 40, "dependencies": {"prices": many}}, program=str(script))
    assert rehearsal.end(10) == 3
    ended(rehearsal, 3)
    assert "dependency prices: a worker cannot call it: " in rehearsal.said() and what in rehearsal.said()
    assert "so there is no result" in rehearsal.said()


# ---- what others left ----


def leave_a_segment(rehearsal):
    """The whole of it is killed, rescd first stopped, so that it cannot clean up."""
    rescd, = rehearsal.named("rescd")
    os.kill(rescd, signal.SIGSTOP)
    until(lambda: state_of(rescd) == "T", what="rescd is stopped")
    rehearsal.process.kill()
    rehearsal.end()
    os.kill(rescd, signal.SIGKILL)
    until(lambda: not rehearsal.pids(), what="its processes are gone")
    assert rehearsal.files() != []


def test_what_was_left_by_one_that_was_killed_with_its_rescd_is_taken_away_by_the_next(rehearse):
    left, running = rehearse().until_it_plays(), rehearse().until_it_plays()
    leave_a_segment(left)
    following = rehearse({**SCENARIO, "duration": "300ms"})
    assert following.end() == 0, following.said()
    assert left.files() == []
    assert running.snapshot() is not None and running.process.poll() is None


AFTER_ANOTHER = """#!/bin/sh
# A rehearsal with our very number was killed with its rescd.
%(rescd)s --config '%(config)s' --instance rehearse-$$-1 --metrics '' 2>/dev/null &
until [ -e %(shm)s/resc.rehearse-$$-1 ] && %(resctl)s --instance rehearse-$$-1 snapshot >/dev/null 2>&1; do sleep 0.01; done
kill -9 $!
wait $! 2>/dev/null
exec %(program)s "$@"
"""


def test_what_was_left_by_one_with_the_same_number_is_taken_away_too(rehearse, tmp_path):
    config, script = tmp_path / "config.json", tmp_path / "after-another"
    config.write_text('{"resources": {"other": {}}}')
    script.write_text(AFTER_ANOTHER % {"rescd": os.path.join(BUILD, "rescd"), "config": config, "shm": SHM, "resctl": RESCTL, "program": PROGRAM})
    script.chmod(0o755)
    following = rehearse({**SCENARIO, "duration": "300ms"}, program=str(script))
    assert following.end() == 0, following.said()
    following.nothing_is_left()
