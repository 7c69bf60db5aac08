# SPDX-License-Identifier: MIT
"""The real programs, under a test's hand: rescd on an instance of its own, workers that do what they are told, resctl.

Nothing here sleeps for a fixed time. What happens by itself is waited for with until(), which has a deadline. In the test build time
stands still until a test moves it: Rescd.advance().
"""
import contextlib
import functools
import itertools
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VARIANT = os.environ.get("RESC_VARIANT", "test")
BUILD = os.path.join(TOP, "build", VARIANT)
RESCD = os.path.join(BUILD, "rescd")
RESCTL = os.path.join(BUILD, "resctl")
HELPERS = os.path.join(BUILD, "tests", "system")
SHM = "/dev/shm"
PATIENCE = 10.0  # seconds; a machine that is loaded may take long, a fault takes for ever
# Of a process that has nothing left to do: the kernel lets go of its inotify, and for that waits for whoever is inside inotify at that
# moment, also where those get no processor. It has taken three quarters of a minute on a machine that had other things to do.
ENDING = 120.0

RETRIED_UPSTREAM, RETRY, NOT_IDEMPOTENT = 1, 2, 4  # flags of resc.h
BATCH = 100  # commands whose answers fit a pipe

LONG = os.environ.get("RESC_LONG", "") != ""  # the long form: as many rounds as the promise says, whatever the time

# Commands that run another in a pid namespace of its own: as in a container, and where /proc still is that of the host.
NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
OTHER_NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child"]

OURS = "resc-test-%d-" % os.getpid()  # instances and directories of these tests
numbers = itertools.count(1)


def left_by_us():
    """What there would be if it were not taken away."""
    return [os.path.join(SHM, "resc." + OURS + "*"), os.path.join(tempfile.gettempdir(), OURS + "*")]


def until(condition, patience=PATIENCE, what=None):
    """The first true value of condition(), polled. An AssertionError that says what was waited for."""
    deadline = time.monotonic() + patience
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError("not within %g s: %s" % (patience, what or getattr(condition, "__doc__", None) or condition))
        time.sleep(0.002)


def best_of(measure, bound, few=3, most=10):
    """Measures a few times, and until one time is below the bound: a loaded machine may be late, a broken program always is. How often."""
    times = []
    while len(times) < few or min(times) >= bound:
        assert len(times) < most, times
        times.append(measure())
    return len(times)


def rounds(few, all_of_them):
    """How often: few times, or as the field case says where the long form is asked for (RESC_LONG=1)."""
    return all_of_them if LONG else few


def helper(name, *args, timeout=120, **kw):
    """Runs one of the C programs of this directory; its JSON answer."""
    done = subprocess.run([os.path.join(HELPERS, name), *map(str, args)], stdout=subprocess.PIPE, timeout=timeout, check=True, **kw)
    return json.loads(done.stdout)


def may(*command):
    """Is this command allowed here? For what needs root or namespaces."""
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def wait_for_end(stream, patience=ENDING):
    """Reads a pipe to its end: until every process that has the other side is gone, also those in namespaces that are being torn down."""
    deadline = time.monotonic() + patience
    while select.select([stream], [], [], max(0, deadline - time.monotonic()))[0]:
        if not os.read(stream if isinstance(stream, int) else stream.fileno(), 65536):
            return
    raise AssertionError("somebody still lives after %g s" % patience)


def option_words(deadline_ms=None, retry=False, upstream=False, flags=0, **options):
    """What a caller says about a call, or about a retry, as words for the worker."""
    flags |= (RETRIED_UPSTREAM if upstream else 0) | (RETRY if retry else 0)
    if flags:
        options["flags"] = flags
    if deadline_ms is not None:
        options["deadline"] = deadline_ms
    return ["%s=%s" % item for item in options.items() if item[1] is not None]


def state_of(pid):
    """T: stopped; Z: dead, and nobody has waited for it."""
    with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
        return file.read().rsplit(")", 1)[1].split()[0]


def is_stopped(process):
    """A Popen; one that has ended is not."""
    return process.poll() is None and state_of(process.pid) == "T"


def until_asleep(*workers):
    """Calls that are seen to wait do wait: a place in the queue is taken, and then there is one more look whether a permit is free."""
    until(lambda: all(state_of(worker.pid) == "S" for worker in workers), what="those that wait are asleep")


def as_hex(text):
    return (text.encode() if isinstance(text, str) else bytes(text)).hex() or "-"


class Gone(Exception):
    """A process ended where an answer was expected."""


class Speaker:
    """One end of a conversation in lines of JSON: a worker, or a child that one of them forked."""

    def __init__(self, to, answers, name):
        self.to, self.answers, self.name = to, answers, name
        self.buffer = b""
        self.children = []
        self.dir = None

    def send(self, *words):
        try:
            self.to.write((" ".join(map(str, words)) + "\n").encode())
            self.to.flush()
        except BrokenPipeError as e:
            raise Gone(self.name) from e

    def receive(self, patience=PATIENCE * 3):
        deadline = time.monotonic() + patience
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError("%s gave no answer within %g s" % (self.name, patience))
            data = os.read(self.answers.fileno(), 65536)
            if not data:
                raise Gone(self.name)
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def ask(self, *words):
        self.send(*words)
        return self.receive()

    def batch(self, commands):
        """Many commands at once, each a string or a list of words; their answers. For runs in which a turn for each would cost too much."""
        lines = [c if isinstance(c, str) else " ".join(map(str, c)) for c in commands]
        answers = []
        for start in range(0, len(lines), BATCH):
            part = lines[start:start + BATCH]
            self.send("\n".join(part))
            answers += [self.receive() for _ in part]
        return answers

    # ---- the calls, by their names. Options: deadline_ms, priority, cost, flags, reserved; retry=True and upstream=True set flags ----

    def enter(self, name, deadline_ms=None, **options):
        return self.ask("enter", name, *option_words(deadline_ms=deadline_ms, **options))

    def send_enter(self, name, **options):
        """An enter that is expected to wait; its answer comes by receive()."""
        self.send("enter", name, *option_words(**options))

    def until_admitted(self, name, patience=PATIENCE, what=None):
        """Asks again and again; the ticket."""
        def admitted():
            ticket = self.enter(name)
            return ticket if ticket["r"] == 0 else None

        return until(admitted, patience, what or "a call of %s that is let in" % name)

    def leave(self, ticket, outcome="ok", retry_after_ms=None):
        ticket = ticket["ticket"] if isinstance(ticket, dict) else ticket
        return self.ask("leave", ticket, outcome, *([] if retry_after_ms is None else [retry_after_ms]))

    def call(self, name, outcome="ok", **options):
        """One whole call. The answer of enter where it was refused, else that of leave."""
        ticket = self.enter(name, **options)
        return ticket if ticket["r"] != 0 else self.leave(ticket, outcome)

    def calls(self, name, *outcomes, **options):
        """Whole calls, one after the other, as "ok" or "ok*1000": [[answer, how often in a row], ...]."""
        return self.ask("calls", name, ",".join(outcomes), *option_words(**options))["answers"]

    def retry(self, name, outcome="fail", attempts=0, **options):
        """Asks resc_retry. Further options: pushback, previous (in ns)."""
        return self.ask("retry", name, outcome, attempts, *option_words(**options))

    def granted(self, name, times, outcome="fail"):
        """Asks so often for a retry; how often it was granted before the first no. There is no yes after that: time stands still."""
        answers = [told["answer"] for told in self.batch(["retry %s %s 0" % (name, outcome)] * times)]
        yes = answers.count("ok")
        assert answers == ["ok"] * yes + ["budget"] * (times - yes), answers
        return yes

    def run(self, name, *outcomes, **options):
        """resc_run with attempts that end so."""
        return self.ask("run", name, ",".join(outcomes), *option_words(**options))

    def timeouts(self, name):
        return self.ask("timeouts", name)

    def once_begin(self, name, key, **options):
        """stored: the answer's bytes."""
        answer = self.ask("once_begin", name, as_hex(key), *option_words(**options))
        answer["stored"] = bytes.fromhex(answer["stored"]) if "stored" in answer else b""
        return answer

    def once_done(self, begun, stored=b""):
        return self.ask("once_done", begun["key"], as_hex(stored))

    def once_abandon(self, begun):
        return self.ask("once_abandon", begun["key"])

    def deadline_parse(self, text, form="ms"):
        return self.ask("deadline_parse", form, as_hex(text))

    def deadline_format(self, ns, form="ms"):
        """ns: from now; None: no deadline."""
        return self.ask("deadline_format", form, "none" if ns is None else ns)

    def retry_after(self, text):
        return self.ask("retry_after", as_hex(text))

    def advance(self, ms=0, ns=0):
        """Moves the test clock of the host's segment. Milliseconds of that segment since its creation."""
        return self.ask("advance", int(ms * 1000000) + ns)["now_ns"] // 1000000

    def fail(self, name, times):
        for _ in range(times):
            self.call(name, "fail")

    def hold(self, name, count, **options):
        answer = self.ask("hold", name, count, *option_words(**options))
        assert answer["held"] == count, answer
        return answer["tickets"]

    def status(self):
        return self.ask("status")

    def state(self, name):
        return self.ask("state", name)

    def counters(self, name):
        answer = self.ask("counters", name)
        assert answer.pop("r") == 0
        return answer

    def loop(self, name, count, fail_share=0.0, seed=1, **options):
        return self.ask("loop", name, count, fail_share, seed, *option_words(**options))

    def busy(self, name, fail_share=0.0, seed=1, **options):
        assert self.ask("busy", name, fail_share, seed, *option_words(**options))["busy"]

    def idle(self):
        return self.ask("idle")

    # ---- children ----

    def fork(self, *how, run=None):
        """Its child, as a Speaker with a pid. how: "bare", "signal"; run: in an attempt of a request of that resource."""
        self.dir = self.dir or tempfile.mkdtemp(prefix=OURS)
        n = len(self.children)
        paths = [os.path.join(self.dir, "%s%d" % (d, n)) for d in ("in", "out")]
        for path in paths:
            os.mkfifo(path)
        # Open for both, so that neither side waits for the other; the child keeps its own ends.
        ends = [os.open(path, os.O_RDWR | os.O_CLOEXEC) for path in paths]
        pid = self.ask(*(("run_fork", run) if run else ("fork",)), *paths, *how)["child"]
        child = Speaker(os.fdopen(ends[0], "wb", buffering=0), os.fdopen(ends[1], "rb", buffering=0), "child %d" % pid)
        child.pid = pid
        self.children.append(child)
        return child

    def clean_children(self):
        for child in self.children:
            child.clean_children()
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
            child.to.close()
            child.answers.close()
        if self.dir:
            shutil.rmtree(self.dir, ignore_errors=True)


class Worker(Speaker):
    """A worker process. env: RESC_FAILPOINT and the like. before: a command that runs it, as unshare. build: another version."""

    def __init__(self, instance, env=None, before=(), pass_stderr=None, build=BUILD):
        self.errors = tempfile.TemporaryFile()
        self.wrapped = bool(before)
        self.process = subprocess.Popen(
            [*before, os.path.join(build, "tests", "system", "worker"), instance], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=pass_stderr or self.errors, env={**os.environ, **(env or {})})
        super().__init__(self.process.stdin, self.process.stdout, "worker %d" % self.process.pid)
        try:
            self.hello = self.receive()
        except Gone:
            self.process.wait(ENDING)
            raise
        self.pid = self.hello.get("pid", self.process.pid)

    def signal(self, number):
        self.process.send_signal(number)

    def is_stopped(self):
        return is_stopped(self.process)

    def until_stopped(self):
        """A SIGCONT that comes before the stop is lost, and a SIGSTOP takes a moment."""
        until(self.is_stopped, what="%s is stopped" % self.name)

    def kill(self):
        """SIGKILL, and waits for the end. Of the worker itself, also where unshare runs it."""
        self.process.kill()
        self.process.wait(ENDING)
        if self.wrapped:
            wait_for_end(self.answers)

    def end(self):
        """The end of its input: it leaves, closes and exits."""
        if self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
            self.process.wait(ENDING)
        return self.process.returncode

    def died(self, patience=ENDING):
        """Waits for an end that comes by itself. The return code: -9 for SIGKILL."""
        return self.process.wait(patience)

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def clean(self):
        self.clean_children()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(OSError):
                stream.close()


class Rescd:
    """rescd on an instance of its own. Started at once unless start=False; clean() takes away everything, whatever happened."""

    def __init__(self, config, start=True, args=(), env=None, before=(), metrics="127.0.0.1:0"):
        self.instance = OURS + str(next(numbers))
        self.dir = tempfile.mkdtemp(prefix=OURS)
        os.chmod(self.dir, 0o755)
        self.config_path = os.path.join(self.dir, "resc.json")
        self.control_path = os.path.join(self.dir, "control.sock")
        self.log_path = os.path.join(self.dir, "log")
        self.segment = os.path.join(SHM, "resc." + self.instance)
        self.metrics, self.args, self.before = metrics, list(args), list(before)
        self.build = BUILD  # of the rescd and the resctl that are run from now on: see test_upgrade.py
        self.env = env or {}
        self.process = None
        self.life = None  # a pipe that ends with rescd itself, also where unshare runs it
        self.workers = []
        self.messages = []
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.notify_path = os.path.join(self.dir, "notify")
        self.notify.bind(self.notify_path)
        open(self.log_path, "wb").close()
        self.write_config(config)
        if start:
            self.start()

    # ---- configuration ----

    def write_config(self, config):
        """As an operator's tool does it: a new file, renamed over the old one."""
        text = config if isinstance(config, str) else json.dumps(config, indent=2)
        with open(self.config_path + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(self.config_path + ".new", self.config_path)

    # ---- life ----

    def spawn(self, env=None, args=()):
        """Starts it and does not wait for anything."""
        command = [*self.before, os.path.join(self.build, "rescd"), "--config", self.config_path, "--instance", self.instance, "--control", self.control_path,
                   "--metrics", self.metrics, *self.args, *args]
        self.close_life()
        self.life, end = os.pipe()
        log = open(self.log_path, "ab")
        self.log_start = os.path.getsize(self.log_path)
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[end],
                                        env={**os.environ, "NOTIFY_SOCKET": self.notify_path, **self.env, **(env or {})})
        log.close()
        os.close(end)
        return self

    def close_life(self):
        if self.life is not None:
            os.close(self.life)
        self.life = None

    def start(self, env=None, args=()):
        """Starts it and waits until it says READY=1."""
        self.drain()
        self.spawn(env, args)
        deadline = time.monotonic() + PATIENCE
        while not any("READY=1" in m for m in self.drain()):
            if self.process.poll() is not None:
                raise AssertionError("rescd ended with %d:\n%s" % (self.process.returncode, self.log()))
            if time.monotonic() > deadline:
                raise AssertionError("rescd is not ready:\n%s" % self.log())
            select.select([self.notify], [], [], 0.05)
        return self

    def drain(self):
        """The messages of sd_notify that came since the last time."""
        fresh = []
        with contextlib.suppress(BlockingIOError):
            while True:
                fresh.append(self.notify.recv(4096, socket.MSG_DONTWAIT).decode())
        self.messages += fresh
        return fresh

    def fails_to_start(self, env=None, args=()):
        """Starts it, expects that it ends by itself with 1, and returns what it said."""
        self.spawn(env, args)
        code = self.process.wait(ENDING)
        assert code == 1, (code, self.log())
        return self.log()

    def kill(self):
        self.process.kill()
        self.process.wait(ENDING)
        wait_for_end(self.life)

    def stop(self):
        self.process.terminate()
        code = self.process.wait(ENDING)
        assert code == 0, self.log()

    def restart(self, env=None):
        self.kill()
        self.start(env)

    def died(self, patience=ENDING):
        return self.process.wait(patience)

    def log(self, everything=False):
        with open(self.log_path, "rb") as file:
            file.seek(0 if everything else self.log_start)
            return file.read().decode(errors="replace")

    # ---- workers ----

    def worker(self, **kw):
        worker = Worker(self.instance, **kw)
        self.workers.append(worker)
        return worker

    def crew(self, count, **kw):
        return [self.worker(**kw) for _ in range(count)]

    # ---- operators ----

    def ctl(self, *args, code=0, **kw):
        """Runs resctl. The finished process, whose exit code was as expected."""
        done = subprocess.run([os.path.join(self.build, "resctl"), "--instance", self.instance, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60, check=False, encoding="utf-8", **kw)
        assert code is None or done.returncode == code, (args, done)
        return done

    def ask(self, *args, code=0):
        """Runs resctl --json; the document."""
        return json.loads(self.ctl(*args, "--json", code=code).stdout)

    def snapshot(self):
        return self.ask("snapshot")

    def show(self, name):
        return self.ask("show", name)[0]

    def events(self, kind=None, last=1024):
        lines = self.ctl("events", "--last", last, "--json").stdout.splitlines()
        return [e for e in map(json.loads, lines) if kind is None or e["kind"] == kind]

    def advance(self, duration):
        self.ctl("clock", "advance", duration)

    def until_counted(self, name, **counters):
        """Whoever frees a cell counts it a moment later, and then goes on to the next."""
        def counted():
            seen = self.show(name)["counters"]
            return {key: seen[key] for key in counters} == counters

        until(counted, what="%s of %s" % (counters, name))

    def until_reaped(self, deaths):
        """So many deaths are in the events, which is the last thing that is done for one but for its slot. The events."""
        until(lambda: len(self.events("reaped")) >= deaths, what="%d deaths in the events" % deaths)
        return self.events("reaped")

    def until_turned(self):
        """rescd has just had its turn of each second. Segment time stands still but for this."""
        self.advance("1ms")
        now = self.snapshot()["now_ms"]
        until(lambda: self.snapshot()["daemon"]["heartbeat_ms"] >= now, what="a turn of rescd")
        self.scrape()  # the heartbeat comes first in a turn, and who answers has ended it

    def reload(self, code=None):
        """resctl reload: {"ok": ...}, whatever came of it."""
        return self.ask("reload", code=code)

    def load(self, config):
        """Another configuration, which is good; the answer of resctl reload."""
        self.write_config(config)
        answer = self.reload()
        assert answer["ok"], answer
        return answer

    # ---- metrics ----

    @property
    def metrics_url(self):
        ports = re.findall(r"metrics are served at '[^']*', port (\d+)", self.log())
        return "http://127.0.0.1:%s/metrics" % ports[-1]

    def scrape(self):
        """{(name, ((label, value), ...)): number}, as prometheus_client reads it."""
        from prometheus_client.parser import text_string_to_metric_families as parse

        with urllib.request.urlopen(self.metrics_url, timeout=PATIENCE) as page:
            text = page.read().decode()
        return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in parse(text) for s in family.samples}

    # ---- the segment ----

    def files(self):
        """What is in /dev/shm of this instance."""
        prefix = os.path.basename(self.segment)
        return sorted(n for n in os.listdir(SHM) if n == prefix or n.startswith(prefix + "."))

    def clean(self):
        for worker in self.workers:
            worker.clean()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        self.close_life()
        for name in self.files():
            path = os.path.join(SHM, name)
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        self.notify.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def metric(page, name, **labels):
    return page[(name, tuple(sorted(labels.items())))]


# Counters whose family on the metrics page is not made of their name alone: resc_NAME_total.
FAMILIES = {
    "slow": ("resc_slow_calls_total", {}), "stale": ("resc_stale_results_total", {}), "untracked": ("resc_untracked_calls_total", {}),
    "waited": ("resc_waited_calls_total", {}), "opened": ("resc_transitions_total", {"to": "open"}),
    "half_opened": ("resc_transitions_total", {"to": "half_open"}), "closed": ("resc_transitions_total", {"to": "closed"}),
    "retry_deadline": ("resc_retries_refused_total", {"reason": "retry_deadline"}),
    "retry_in_flight": ("resc_retries_refused_total", {"reason": "retry_in_flight"}),
}
PREFIXES = {"ended_": ("resc_calls_total", "outcome"), "refused_": ("resc_refusals_total", "reason"),
            "fallback_": ("resc_fallbacks_total", "kind"), "retry_": ("resc_retries_refused_total", "reason"),
            "would_": ("resc_would_refuse_total", "reason"), "once_": ("resc_once_total", "event"),
            "injected_": ("resc_injection_calls_total", "fault")}


def family_of(counter):
    """A counter's name on the metrics page, and its labels."""
    if counter in FAMILIES:
        return FAMILIES[counter]
    for prefix, (name, label) in PREFIXES.items():
        if counter.startswith(prefix):
            return name, {label: counter[len(prefix):]}
    return "resc_%s_total" % counter, {}


def agreed(rescd, worker, name, page=None):
    """What the library tells a worker, the snapshot and the metrics page say of a resource: the same, or this fails. In the snapshot's form."""
    page = page or rescd.scrape()  # first: a rescd that answers is not in the middle of anything
    seen, state, counters = rescd.show(name), worker.state(name), worker.counters(name)
    on_page = functools.partial(metric, page, resource=name)

    def same(what, *values):
        numbers = [float(v or 0) for v in values]
        assert all(abs(n - numbers[0]) < 1e-6 for n in numbers), (name, what, values)

    assert counters == seen["counters"], name
    for counter, value in counters.items():
        family, labels = family_of(counter)
        same(counter, value, on_page(family, **labels))
    assert counters["enters"] == counters["admitted"] + sum(v for k, v in counters.items() if k.startswith("refused_")), name
    assert (state["state"], state["generation"]) == (seen["state"], seen["generation"]), name
    same("state", ["closed", "open", "half_open"].index(seen["state"]), on_page("resc_breaker_state"))
    same("probe_due", state["probe_due"], seen["probe_due"], on_page("resc_breaker_probe_due"))
    assert state["due_ms"] == (-1 if seen["state"] != "open" else seen["due_left_ms"]), name
    same("forced", state["forced"], seen["override"] is not None,
         sum(on_page("resc_override_info", mode=mode) for mode in ("open", "closed", "disabled")))
    for key in ("calls", "failures", "slow"):
        same("window." + key, seen["window"][key], on_page("resc_window_" + key))
    same("consecutive_failures", seen["window"]["consecutive_failures"], on_page("resc_consecutive_failures"))
    same("probes_out", state["probes_out"], seen["probes"]["out"], on_page("resc_probes_out"))
    same("in_use", state["in_flight"], seen["permits"]["in_use"], on_page("resc_permits_in_use"),
         sum(h["permits"] for h in seen["permits"]["by_worker"]))
    same("limit", state["limit"], seen["permits"]["limit"], on_page("resc_permits_limit"))
    same("waiting", state["waiting"], seen["permits"]["waiting"], on_page("resc_permits_waiting"))
    same("retries", state["retries"], seen["retry"]["in_flight"], on_page("resc_retries_in_flight"))
    for key, told, shown, shown_on_page in (("retry tokens", "tokens", seen["retry"]["tokens"], "resc_retry_tokens"),
                                            ("rate tokens", "rate_tokens", seen["rate"]["tokens"], "resc_rate_tokens"),
                                            ("throttle", "throttle", seen["throttle"]["share"], "resc_throttle_ratio")):
        assert (state[told] == -1) == (shown is None), (name, key, state[told], shown)
        same(key, max(state[told], 0), shown, on_page(shown_on_page))
    same("latency", seen["latency"]["count"], on_page("resc_latency_seconds_count"))
    return seen


def moved(before, after):
    """The counters that are not what they were, and by how much: of two resources of snapshots."""
    old, new = before["counters"], after["counters"]
    return {k: new[k] - old[k] for k in new if new[k] != old[k]}


def steady(resource):
    """The parts of a resource of the snapshot that nobody may change by coming, going or restarting."""
    kept = {k: resource[k] for k in ("name", "state", "since_ms", "why", "opened_since_ms", "due_ms", "generation", "reopened", "override",
                                     "window", "counters", "policy", "retry")}
    for key in ("rate", "throttle"):
        kept[key] = resource[key]
    kept["probes"] = resource["probes"]
    kept["permits"] = resource["permits"]
    return kept


def programs_missing():
    wanted = [RESCD, RESCTL, os.path.join(HELPERS, "worker"), os.path.join(HELPERS, "probe_rounds")]
    return [path for path in wanted if not os.access(path, os.X_OK)]


if __name__ == "__main__":
    sys.exit("this is for the tests: python3 -m pytest tests/system")
