# SPDX-License-Identifier: MIT
"""Takes down what a run of tests has started, whatever ends the run: no fixture runs in a pytest that gets a SIGKILL.

watch() starts a process that outlives the run. It waits for the end of a pipe whose other side only the run has. Everything that is started
after watch(), and whatever that starts, has a mark in its environment, and is found by it in any session, namespace and under any user.
A part of a run, or a run that a run has started, has the mark of the whole with something behind a point.
"""
import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import time

WORD = "RESC_TEST_RUN"


def marked(mark):
    """The processes that have this mark, each as (pid, pidfd); the pidfd is closed afterwards. A zombie has no environment."""
    wanted = ("%s=%s" % (WORD, mark)).encode()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            try:
                with open("/proc/%d/environ" % pid, "rb") as file:
                    words = file.read().split(b"\0")
                if any(word == wanted or word.startswith(wanted + b".") for word in words):
                    yield pid, fd
            finally:
                os.close(fd)


def end(mark):
    """SIGKILL to all of them, until there are none; twice, because one that forks or calls exec just now may not be seen."""
    quiet = 0
    while quiet < 2:
        quiet += 1
        for _, fd in marked(mark):
            quiet = 0
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        time.sleep(0.02)


def remove(pattern):
    for path in glob.glob(pattern):
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)


def watch(*patterns):
    """From now on. patterns: of files and directories that go as well. Returns the mark."""
    mark = ".".join([*filter(None, [os.environ.get(WORD)]), "%d-%d" % (os.getpid(), time.monotonic_ns())])
    without = {k: v for k, v in os.environ.items() if k != WORD}  # or the keeper of a run that started this one would end it first
    # Kept, so that the pipe is open until this process ends.
    watch.keeper = subprocess.Popen([sys.executable, os.path.abspath(__file__), mark, *patterns], stdin=subprocess.PIPE, env=without,
                                    start_new_session=True)
    os.environ[WORD] = mark
    return mark


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end(sys.argv[1])
    for each in sys.argv[2:]:
        remove(each)
