# SPDX-License-Identifier: MIT
"""rescd --ephemeral: an instance that goes with the process that started it, whatever becomes of that."""
import os
import signal
import socket
import subprocess
import sys
import tempfile

import pytest
from harness import ENDING, RESCD, SHM, until, wait_for_end

CONFIG = {"resources": {"payments": {"bulkhead": {"limit": 8}}}}

# A parent that has the other end of rescd's input. The descriptor is for rescd alone to keep.
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, pass_fds=[int(sys.argv[1])])
os.close(int(sys.argv[1]))
time.sleep(600)
"""


@pytest.fixture
def ephemeral(host):
    """ephemeral(args=...): rescd, started with a pipe that it lives on; the other end is closed by .stdin.close()."""
    started = []

    def start(rescd=None, stdin=subprocess.PIPE):
        rescd = rescd or host(CONFIG, start=False)
        with open(rescd.log_path, "wb") as log:
            process = subprocess.Popen(command(rescd), stdin=stdin, stderr=log)
        rescd.log_start = 0
        started.append(process)
        until(lambda: process.poll() is not None or rescd.ctl("list", code=None).returncode == 0 and os.path.exists(rescd.control_path),
              what="rescd is ready")
        return rescd, process

    yield start
    for process in started:
        process.kill()
        process.wait(ENDING)
        if process.stdin:
            process.stdin.close()


def command(rescd):
    return [RESCD, "--config", rescd.config_path, "--instance", rescd.instance, "--control", rescd.control_path, "--metrics", "", "--ephemeral"]


def nothing_is_left(rescd):
    assert rescd.files() == [] and not os.path.exists(rescd.control_path)


@pytest.mark.smoke
def test_a_parent_that_is_killed_leaves_neither_process_nor_segment_nor_socket(host):
    rescd = host(CONFIG, start=False)
    life, end = os.pipe()
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(end), *command(rescd)], stdin=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, pass_fds=[end])
    os.close(end)
    until(lambda: os.path.exists(rescd.control_path), what="rescd serves")
    assert rescd.files() == [os.path.basename(rescd.segment)]
    parent.kill()
    parent.wait(ENDING)
    wait_for_end(life)
    os.close(life)
    nothing_is_left(rescd)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, None])
def test_however_it_stops_nothing_is_left(ephemeral, how):
    rescd, process = ephemeral()
    if how:
        process.send_signal(how)
    else:
        process.stdin.close()
    assert process.wait(ENDING) == 0
    nothing_is_left(rescd)
    assert "stopped by %s; the segment is removed" % (how.name if how else "the end of standard input") in rescd.log()


def test_a_socket_does_as_well_and_what_is_written_there_changes_nothing(ephemeral):
    ours, other = socket.socketpair()
    with ours:
        with other:
            rescd, process = ephemeral(stdin=other)
        ours.send(b"x" * 1000)
        assert rescd.reload()["ok"] and process.poll() is None
    assert process.wait(ENDING) == 0
    nothing_is_left(rescd)


@pytest.mark.parametrize("stdin", ["null", "file", "datagrams"])
def test_an_input_that_has_no_other_end_is_refused(ephemeral, stdin):
    left, right = socket.socketpair(type=socket.SOCK_DGRAM)
    with tempfile.TemporaryFile() as file, left, right:
        rescd, process = ephemeral(stdin={"null": subprocess.DEVNULL, "file": file, "datagrams": right}[stdin])
        assert process.wait(ENDING) == 1
    assert "--ephemeral ends with standard input, which must be a pipe or a stream socket whose other end the parent holds" in rescd.log()
    nothing_is_left(rescd)


def test_a_terminal_and_a_closed_input_are_refused_too(host):
    rescd = host(CONFIG, start=False)
    ours, terminal = os.openpty()
    closing = ["sh", "-c", 'exec "$@" <&-', "sh"]
    for before, stdin in (([], terminal), (closing, subprocess.DEVNULL)):
        done = subprocess.run([*before, *command(rescd)], stdin=stdin, stderr=subprocess.PIPE, timeout=ENDING, check=False)
        assert done.returncode == 1 and b"--ephemeral ends with standard input, which must be a pipe" in done.stderr
        nothing_is_left(rescd)
    os.close(ours)
    os.close(terminal)


@pytest.mark.parametrize("served", [True, False])
def test_an_instance_that_is_there_is_refused_and_stays(host, ephemeral, served):
    rescd = host(CONFIG)
    if not served:
        rescd.stop()
    generation = rescd.snapshot()["segment"]["generation"]
    _, process = ephemeral(rescd)
    assert process.wait(ENDING) == 1
    assert ("cannot start: --ephemeral makes its own instance, and %s exists: choose another --instance" % rescd.segment) in rescd.log()
    assert rescd.snapshot()["segment"]["generation"] == generation
    assert os.path.exists(rescd.control_path) == served
    if served:
        assert rescd.reload()["ok"]


def test_workers_go_on_together_and_join_the_next_segment(ephemeral):
    rescd, process = ephemeral()
    crew = rescd.crew(2)
    held = crew[0].hold("payments", 6)
    process.stdin.close()
    assert process.wait(ENDING) == 0
    nothing_is_left(rescd)
    assert crew[1].state("payments")["in_flight"] == 6
    assert [crew[1].enter("payments")["answer"] for _ in range(3)] == ["ok", "ok", "full"]
    assert [crew[0].leave(t)["answer"] for t in held] == ["ok"] * 6
    _, process = ephemeral(rescd)
    generation = rescd.snapshot()["segment"]["generation"]
    until(lambda: all(w.call("payments")["r"] == 0 and w.status()["generation"] == generation for w in crew), what="both have joined")
    assert [w.end() for w in crew] == [0, 0]


def test_a_larger_segment_goes_with_its_predecessor(ephemeral):
    rescd, process = ephemeral()
    worker = rescd.worker()
    worker.hold("payments", 2)
    rescd.load({"resources": {"payments": {"bulkhead": {"limit": 2000}}}})
    assert len(rescd.files()) == 2, rescd.files()
    process.stdin.close()
    assert process.wait(ENDING) == 0
    nothing_is_left(rescd)


def test_what_somebody_else_has_put_there_stays(ephemeral):
    rescd, process = ephemeral()
    for path in (rescd.segment, rescd.control_path):
        with open(path + ".foreign", "w", encoding="utf-8") as file:
            file.write("somebody else's")
        os.rename(path + ".foreign", path)
    process.stdin.close()
    assert process.wait(ENDING) == 0
    for path in (rescd.segment, rescd.control_path):
        with open(path, encoding="utf-8") as file:
            assert file.read() == "somebody else's"


@pytest.mark.parametrize("which", ["current", "former"])
def test_it_starts_over_where_a_segment_was_cut(ephemeral, which):
    """It executes itself then: a segment that is its own is not one that is there already."""
    rescd, process = ephemeral()
    worker = rescd.worker()
    worker.hold("payments", 2)
    if which == "former":
        rescd.load({"resources": {"payments": {"bulkhead": {"limit": 2000}}}})
    generation = rescd.snapshot()["segment"]["generation"]
    cut = next(n for n in rescd.files() if (n == os.path.basename(rescd.segment)) == (which == "current"))
    worker.kill()
    os.truncate(os.path.join(SHM, cut), 4096)

    def serves():
        seen = rescd.ctl("list", "--json", code=None)
        return seen.returncode == 0 and (which == "former" or rescd.snapshot()["segment"]["generation"] != generation)

    until(serves, what="it serves")
    until(lambda: rescd.ctl("reload", code=None).returncode == 0, what="it takes commands")
    assert process.poll() is None
    assert (rescd.snapshot()["segment"]["generation"] == generation) == (which == "former")
    process.stdin.close()
    assert process.wait(ENDING) == 0
    nothing_is_left(rescd)
