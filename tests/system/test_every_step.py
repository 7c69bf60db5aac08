# SPDX-License-Identifier: MIT
"""A crash, and a stop, at every step of every protocol, while seven others call (F7).

Every failpoint of the sources has a row here, or this module fails. At each, a worker, rescd or resctl is killed, and in another case
stopped; seven workers go on calling the same resources, with every guard on. Then:

    - none of the seven waits: in the calls that do not wait by their policy nobody gives the processor away, not once, and no call takes
      much processor time. Both hold on any machine, however busy; wall times are measured as well, for people (last tests);
    - what the dead held comes back, and all accounts are exact: what the segment has counted is what everybody has counted for itself,
      and of the dead one's last call, exactly what had been done of it at that step;
    - who was stopped goes on after everything has changed (leases expired, breaker and limit moved), ends its call, and the accounts are
      exact with its part in them.

The seven and those that die are step_worker.c, which says what a turn is. They write into a board: a file that both sides map.
"""
import contextlib
import glob
import itertools
import mmap
import os
import re
import signal
import subprocess
import time

import pytest
from harness import ENDING, HELPERS, OTHER_NAMESPACE, PATIENCE, RESCTL, TOP, Rescd, best_of, is_stopped, may, until

SEVEN = 7
VICTIM = SEVEN  # the place of who dies or stops; those behind it are for others that a case needs
PLACES = 12
WORKERS = 16  # in the table; another number is another segment
TURNS = 6  # of each of the seven, while one is dead or stopped
SPEED = 20  # of the test clock

# The board of step_worker.c.
FIRST, PLACE = 256, 256
PERIOD, SPEED_WORD, MORTAL, DOUBLE_FIRST, WRONG_ANSWER, OWNERS = 0, 1, 2, 3, 4, 64
(COMMAND, OBEYED, PHASE, RESOURCE, TURNS_DONE, ERRORS, LAST_ERROR, SEEN_PERIOD, CALLS, WORST_WALL, WORST_CPU, SWITCHES, WORST_QUEUE,
 OUTCOME) = range(14)
WALLS, BUCKETS, TALLIES, TALLY = 16, 48, 64, 16
PAUSE, RUN, END = range(3)
OUTSIDE, OPENING, ENTERING, INSIDE, LEAVING, RETRYING, BEGINNING, FINISHING, LOOKING_UP, CLOSING = range(10)
NAMES = ["payments", "ledger", "pool"]
TALLY_NAMES = ["admitted", "refused", "ended ok", "ended fail", "stale", "retries", "retries refused", "keys first", "keys done",
               "keys replayed", "keys busy", "keys unknown"]
(ADMITTED, REFUSED, ENDED_OK, ENDED_FAIL, STALE, GRANTED, NOT_GRANTED, FIRST_KEY, DONE_KEY, REPLAYED, BUSY_KEY, UNKNOWN_KEY,
 STALE_PROBE) = range(13)

CPU_LIMIT_NS = 100_000_000  # of one call, which takes some 2 us; a host that takes the processor away may count that as used
TOKEN = 1_000_000  # in millionths
CAPACITY = 1_000_000  # of the ledger's budget
BOARD_WORDS = 4096
STEP_WORKER = os.path.join(HELPERS, "step_worker")


def config(limit=3, rate=2000, workers=WORKERS, extra="a"):
    """Every guard on payments; nothing that waits on ledger and pool; a resource that nobody calls; names that are made when asked for."""
    breaker = {"consecutive": 4, "failure_rate": 0.6, "window": "10s", "min_calls": 20, "cooldown": "100ms", "probe_timeout": "1h"}
    budget = {"capacity": 50, "ratio": 0.5, "per_second": 20, "ttl": "10s", "in_flight_floor": 1, "in_flight_share": 0.5}
    return {"workers": workers, "once_keys": 256, "made": 8, "resources": {
        "payments": {
            "breaker": {**breaker, "window": 50, "jitter": 0.1}, "retry": {"attempts": 3, "budget": budget},
            "bulkhead": {"limit": limit, "max_wait": "10ms", "max_waiting": 6, "low": 0.34, "normal": 0.7},
            "rate": {"per_second": rate, "burst": 50, "max_wait": "5ms"}, "throttle": {"window": "10s", "k": 1.5},
            "timeout": {"attempt": "800ms", "probe": "300ms"}, "once": {"ttl": "2s"}},
        "ledger": {"breaker": breaker, "retry": {"attempts": 3, "budget": {"capacity": CAPACITY, "ratio": 0.001, "per_second": 0}}},
        "pool": {"bulkhead": {"limit": "40%"}, "injection": True},
        "quiet": {"breaker": breaker, "injection": True},
        "extra-" + extra: {"bulkhead": {"limit": 4}},
        "shard-*": {"bulkhead": {"limit": 2}}}}


class Place:
    """One place of the board, and the process that writes there."""

    def __init__(self, crew, number, what, env=None, before=()):
        self.crew, self.number, self.base = crew, number, FIRST + number * PLACE
        for i in range(PLACE):
            crew.board[self.base + i] = 0
        self.command(RUN)
        self.process = subprocess.Popen([*before, STEP_WORKER, crew.rescd.instance, crew.board_path, str(number), str(next(crew.seeds)), what],
                                        stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})

    def __getitem__(self, word):
        return self.crew.board[self.base + word]

    def __setitem__(self, word, value):
        self.crew.board[self.base + word] = value

    def tally(self, resource, what):
        return self[TALLIES + resource * TALLY + what]

    def last_error(self):
        """What it was, and in which phase."""
        return os.strerror(self[LAST_ERROR] & 0xffffffff), self[LAST_ERROR] >> 32

    def command(self, what):
        """Gives it, with a number of its own."""
        self[COMMAND] = next(self.crew.commands) << 2 | what

    def obeys(self):
        return self[OBEYED] == self[COMMAND]

    def is_gone(self):
        return self.process.poll() is not None

    def end(self):
        self.command(END)
        assert self.process.wait(ENDING) == 0 and self[ERRORS] == 0, (self[ERRORS], self.last_error())


def at(point, action):
    """The first time only: who was stopped goes on to its end."""
    return {"RESC_FAILPOINT": "%s@1=%s" % (point, action)}


def until_met(process, action, what):
    """It is dead, or stopped, at its failpoint."""
    until(lambda: process.poll() is not None or is_stopped(process), ENDING if action == "kill" else PATIENCE * 3, what)
    assert process.poll() == (-signal.SIGKILL if action == "kill" else None), (what, process.poll())


class Crew:
    """rescd, the seven, and what everybody has counted."""

    def __init__(self):
        self.rescd = Rescd(config(), metrics="")
        self.workers = WORKERS
        self.deaths = 0  # of this case
        self.last_event = 0
        self.board_path = os.path.join(self.rescd.dir, "board")
        with open(self.board_path, "w+b") as file:
            file.truncate(BOARD_WORDS * 8)
            self.memory = mmap.mmap(file.fileno(), BOARD_WORDS * 8)
        self.board = memoryview(self.memory).cast("Q")
        self.board[SPEED_WORD] = SPEED
        self.seeds, self.commands = itertools.count(1), itertools.count(1)
        self.places = []
        self.past = [[0] * TALLY for _ in NAMES]  # of those who are gone
        self.stale_probes = 0  # of the ledger, in the cases before
        self.tokens = 0  # of the ledger's budget, in millionths, that went with the dead
        try:
            self.start()
        except BaseException:
            self.clean()
            raise

    def start(self):
        auditor = self.rescd.worker()
        assert auditor.granted("ledger", 200) == 200  # so that no deposit meets a full bucket
        auditor.end()
        self.past[1][GRANTED] += 200
        self.seven = [Place(self, i, "clock" if i == 0 else "calls") for i in range(SEVEN)]
        self.places = list(self.seven)
        self.run()
        self.turn(3)
        self.generations = self.seen()[1]
        self.sound = True  # nothing has failed

    def clean(self):
        for place in self.places:
            if not place.is_gone():
                place.process.kill()
                place.process.wait()
        self.board.release()
        self.memory.close()
        self.rescd.clean()

    # ---- the seven ----

    def turn(self, turns):
        """Each of the seven takes so many turns from now on."""
        goal = [p[TURNS_DONE] + turns for p in self.seven]
        until(lambda: all(p[TURNS_DONE] >= g for p, g in zip(self.seven, goal)), what="%d turns of each of the seven" % turns)

    def new_period(self):
        self.board[PERIOD] += 1
        until(lambda: all(p[SEEN_PERIOD] == self.board[PERIOD] for p in self.seven), what="the seven begin a new account of times")

    def pause(self):
        """All that are not stopped."""
        going = [p for p in self.places if not p.is_gone() and not is_stopped(p.process)]
        for p in going:
            p.command(PAUSE)
        until(lambda: all(p.obeys() for p in going), what="the others pause")

    def run(self):
        for p in self.places:
            p.command(RUN)

    def go_on(self, place):
        """Who was stopped takes some turns more, and ends."""
        goal = place[TURNS_DONE] + 2
        place.command(RUN)
        place.process.send_signal(signal.SIGCONT)
        until(lambda: place[TURNS_DONE] >= goal, what="who was stopped goes on")
        place.end()

    def change_everything(self):
        """All that a stopped one has seen: a new generation of both breakers, another limit and back, and leases that are over."""
        for name in ("payments", "ledger"):
            self.rescd.ctl("force", name, "closed", "--for", "1h", "--why", "drill")
            self.rescd.ctl("release", name)
        self.rescd.load(config(limit=2, workers=self.workers))
        self.rescd.load(config(workers=self.workers))
        self.rescd.advance("2h")

    @contextlib.contextmanager
    def reload(self, new):
        """resctl reload, which waits for rescd."""
        self.rescd.write_config(new)
        asked = subprocess.Popen([RESCTL, "--instance", self.rescd.instance, "reload"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
        yield
        assert asked.wait(PATIENCE) in (0, 3)

    def check_nobody_waited(self, walls=None):
        """See above. walls: a histogram of wall times that these are added to."""
        assert [p[ERRORS] for p in self.seven] == [0] * SEVEN, [p.last_error() for p in self.seven]
        # To follow into a successor files are opened and mapped, and the kernel may let one wait a moment for another there.
        most = 0 if self.workers == WORKERS else 5
        assert max(p[SWITCHES] for p in self.seven) <= most, [p[SWITCHES] for p in self.seven]
        assert max(p[WORST_CPU] for p in self.seven) < CPU_LIMIT_NS
        assert all(p[CALLS] > 0 for p in self.seven)
        for p in self.seven if walls is not None else ():
            walls["worst"] = max(walls.get("worst", 0), p[WORST_WALL])
            for i in range(BUCKETS):
                walls[i] = walls.get(i, 0) + p[WALLS + i]

    # ---- who dies or stops ----

    def victim(self, point, action, what="calls", number=VICTIM, before=()):
        place = Place(self, number, what, at(point, action), before)
        self.places.append(place)
        return place

    def forget(self, place, point=None):
        """It is gone, and what it has counted stays. point: where it was killed; then its last call is what it was at that step."""
        self.places.remove(place)
        for r in range(len(NAMES)):
            for what in range(TALLY):
                self.past[r][what] += place.tally(r, what)
        if point is not None and place[PHASE] == LEAVING and point not in BEFORE_THE_OUTCOME:
            self.past[place[RESOURCE]][ENDED_OK if place[OUTCOME] == 0 else ENDED_FAIL] += 1
        if point in AFTER_THE_ADMISSION:
            self.past[place[RESOURCE]][ADMITTED] += 1
        # Who leaves sets the limit that is a share when his slot is free.
        without = point in WITHOUT_A_SLOT or point in ("share.set", "limit.set", "limit.settle") and place[PHASE] == CLOSING
        self.deaths += point is not None and not without
        if NAMES[place[RESOURCE]] == "ledger":
            self.tokens += LOST_TOKENS.get((point, place[PHASE]), 0)

    # ---- the accounts ----

    def total(self, r, what):
        return self.past[r][what] + sum(p.tally(r, what) for p in self.places)

    def seen(self):
        snapshot = self.rescd.snapshot()
        resources = {r["name"]: r for r in snapshot["resources"]}
        return snapshot, {name: resources[name]["generation"] for name in NAMES}, resources

    def differences(self):
        """What is not as it should be while all pause: [] when all accounts are exact."""
        snapshot, _, resources = self.seen()
        wrong = []

        def same(what, told, wanted):
            if told != wanted:
                wrong.append((what, told, wanted))

        same("workers", sorted(w["pid"] or 0 for w in snapshot["workers"]), sorted(p.process.pid for p in self.places if not p.is_gone()))
        same("keys in work", snapshot["once"]["working"], 0)
        if self.workers == WORKERS:  # a share follows the workers once more after the last slot is free
            same("share", resources["pool"]["permits"]["limit"], -(-2 * len(snapshot["workers"]) // 5))
        for r, name in enumerate(NAMES):
            seen, counters = resources[name], resources[name]["counters"]
            same((name, "in use"), seen["permits"]["in_use"], 0)
            same((name, "waiting"), seen["permits"]["waiting"], 0)
            same((name, "debt"), seen["permits"]["debt"] or 0, 0)
            same((name, "effective"), seen["permits"]["effective"], seen["permits"]["limit"])
            same((name, "retries"), seen["retry"]["in_flight"], 0)
            same((name, "probes out"), seen["probes"]["out"], 0)
            refused = sum(v for k, v in counters.items() if k.startswith("refused_"))
            not_granted = sum(v for k, v in counters.items() if k.startswith("retry_"))
            for what, told in ((ADMITTED, counters["admitted"]), (REFUSED, refused), (ENDED_OK, counters["ended_ok"]),
                               (ENDED_FAIL, counters["ended_fail"]), (STALE, counters["stale"]), (GRANTED, counters["retries"]),
                               (NOT_GRANTED, not_granted), (FIRST_KEY, counters["once_first"]), (DONE_KEY, counters["once_done"]),
                               (REPLAYED, counters["once_replayed"]), (BUSY_KEY, counters["once_busy"]), (UNKNOWN_KEY, counters["once_unknown"])):
                same((name, TALLY_NAMES[what]), told, self.total(r, what))
            same((name, "enters"), counters["enters"], counters["admitted"] + refused)
        # A probe whose lease was taken over pays nothing in; one whose breaker has moved on does.
        unsure = self.total(1, STALE_PROBE) - self.stale_probes
        lost = self.ledger_expects() - round(resources["ledger"]["retry"]["tokens"] * TOKEN)
        same("tokens of the ledger", lost if lost not in [i * TOKEN // 1000 for i in range(unsure + 1)] else 0, 0)
        budget = resources["payments"]["retry"]
        same("tokens of payments", 0 <= budget["tokens"] <= budget["capacity"], True)
        return wrong

    def count_stale_probes(self):
        """What those of this case did not pay in is known now."""
        _, _, resources = self.seen()
        self.stale_probes = self.total(1, STALE_PROBE)
        self.tokens += self.ledger_expects() - round(resources["ledger"]["retry"]["tokens"] * TOKEN)

    def ledger_expects(self):
        """Of its budget, in millionths."""
        return CAPACITY * TOKEN - self.total(1, GRANTED) * TOKEN + self.total(1, ENDED_OK) * TOKEN // 1000 - self.tokens

    def check_events(self):
        """Every transition of this case is in the events, once, and every death of who had a slot."""
        _, generations, _ = self.seen()
        everything = self.rescd.events()
        events = [e for e in everything if e["kind"] == "breaker"]
        rolled = everything[0]["number"] > self.last_event + 1
        for name in NAMES:
            told = [e["generation"] for e in events if e["resource"] == name and e["generation"] > self.generations[name]]
            wanted = list(range(self.generations[name] + 1, generations[name] + 1))
            # The ring may have gone round since the case began.
            assert sorted(told) == wanted[len(wanted) - len(told):] and (rolled or len(told) == len(wanted)), (name, wanted)
        self.generations = generations
        told = [e["values"]["worker"] for e in everything if e["kind"] == "reaped" and e["number"] > self.last_event]
        assert len(told) == len(set(told))
        if self.workers == WORKERS and not rolled:  # else there may be those of the segment before as well
            assert len(told) == self.deaths, (told, self.deaths)
            assert not [e for e in everything if e["kind"] == "superseded" and e["number"] > self.last_event], "the table is used up"
        self.deaths, self.last_event = 0, everything[-1]["number"]

    def leave_the_old_segment(self):
        """All go, and rescd comes anew: what the superseded segment still had to give is carried over at once, and not turn by turn."""
        for place in self.seven:
            place.end()
            self.forget(place)
        for _ in range(2):  # the ghost of a probe goes at the second look
            self.rescd.restart()

    def settle(self):
        """All pause, and within a short while all accounts are exact. Then they go on."""
        self.pause()
        if self.workers != WORKERS:
            self.leave_the_old_segment()
        with contextlib.suppress(AssertionError):
            until(lambda: not self.differences(), patience=5)
        assert self.differences() == []
        assert (self.board[DOUBLE_FIRST], self.board[WRONG_ANSWER]) == (0, 0)
        self.check_events()
        self.count_stale_probes()
        self.run()
        self.sound = True


# ---- where: each failpoint of the sources, by the program that meets it and the scene in which it does ----

BY_WORKER = {
    "calls": """attach.opened register.life register.locked register.claimed register.named shard.claimed share.counted
        policy.reading permit.looked permit.taken enter.queued enter.announced enter.permit enter.rate enter.half_open
        enter.admitted probe.leased waiting.joined waiting.announced waiting.left waiting.sleep signal.freed signal.moved rate.take rate.taken
        rate.giving_back throttle.requested throttle.summed leave.released leave.permit leave.lease leave.counted leave.tally verdict.judged
        trip.summed window.numbered bucket.adding count.adding
        transition.claimed transition.proposed transition.won transition.explained transition.recorded transition.event
        event.claimed event.filled
        budget.claim budget.claimed budget.seen budget.taken budget.earned budget.depositing
        once.absent once.claimed once.written once.looked once.recorded once.storing once.stored once.turned""",
    # A share of the workers changes each time; who sets and settles the limit is whoever is first, so it takes some.
    "comes": "share.set limit.set limit.settle unregister.cells unregister.freed",
    "names": "request.taken request.named request.asked request.answered",
    "reaps": "reap.dead reap.permit reap.probe reap.waiting reap.shard reap.once reap.cells reap.told reap.freed",
    "finds a full table": "register.full",
    "ends an override": "override.ending override.closed override.gone",
    "is injected": "enter.injected",
    "ends an injection": "injection.ending injection.gone",
    "mends a rate": "rate.mend",
    "moves": """move.prepared move.marked move.breaker_prepared move.breaker_marked move.ghost move.closed move.counters
        once.closed once.moved""",
}
BY_RESCD = {
    "starts": "start.loading adopt.locked daemon.introducing policy.reading reload.writing event.claimed",
    "reloads": """policy.half policy.filled apply.settled apply.written limit.set budget.seen publish.state publish.named publish.shown retire.hidden control.answering""",
    "reloads, alone": "limit.settle rate.mend budget.claim budget.claimed",
    "reaps, alone": """reap.dead reap.permit reap.probe reap.waiting reap.shard reap.once reap.cells reap.told reap.freed signal.moved once.turned
        share.counted share.set""",
    "ends an override": """override.ending override.closed override.gone
        transition.claimed transition.proposed transition.won transition.explained transition.recorded transition.event""",
    "ends an injection": "injection.ending injection.gone",
    "is asked": "request.answering made.retired",
    "supersedes": """create.opened create.sized create.locked create.header
        succession.old_linked succession.linked succession.superseded succession.moved_one succession.moved
        succession.renamed once.taken""",
    "supersedes, alone": """move.prepared move.marked move.breaker_prepared move.breaker_marked move.ghost move.closed move.counters
        once.closed once.moved once.absent once.claimed once.written once.looked once.recorded""",
}
BY_RESCTL = {
    "force ledger closed --for 10s --why drill": "note.claimed override.text override.set event.claimed event.filled",
    "inject quiet --fail 50% --for 10s --why drill": "note.claimed injection.claimed injection.setting injection.text injection.set",
    "inject quiet --stop": "injection.ending injection.gone",
    "release ledger": """override.ending override.closed override.gone
        transition.claimed transition.proposed transition.won transition.explained transition.recorded transition.event
        event.claimed event.filled""",
    "reset payments": """reset.closed reset.filled
        transition.claimed transition.proposed transition.won transition.explained transition.recorded transition.event
        event.claimed event.filled budget.seen""",
    "show payments": "policy.reading",
}

# The first two are met by a rescd that finds no segment, so that there is nobody yet who could call; the third where somebody stays away
# longer than here anybody waits.
ELSEWHERE = {"create.filled": "test_cases_segment.py", "create.named": "test_cases_segment.py", "waiting.passing": "test_waiting.py"}

# The call was admitted, and nobody has been told.
AFTER_THE_ADMISSION = {"enter.injected", "injection.ending", "injection.gone"}
# The call was left, but its outcome is counted only after these.
BEFORE_THE_OUTCOME = {"leave.released", "leave.permit", "leave.lease", "signal.freed", "signal.moved", "count.adding"}
# What goes with who is killed there, in millionths.
LOST_TOKENS = {("budget.taken", RETRYING): TOKEN, ("budget.depositing", LEAVING): TOKEN // 1000, ("budget.seen", LEAVING): TOKEN // 1000}
WITHOUT_A_SLOT = {"attach.opened", "register.life", "register.locked", "register.full", "unregister.freed"}
AT_A_DEATH = {}  # wall times of calls of the seven, over all cases


def points_of_the_sources():
    found = set()
    for directory in ("lib", "daemon", "tools"):
        for path in glob.glob(os.path.join(TOP, directory, "*.[ch]")):
            with open(path, encoding="utf-8") as file:
                found |= set(re.findall(r'FAILPOINT\("([^"]+)"\)', file.read()))
    return found


def cases(table):
    return [pytest.param(scene, point, action, id="%s-%s-%s" % (scene.replace(",", "").replace(" ", "_"), point, action))
            for scene, points in table.items() for point in points.split() for action in ("kill", "stop")]


def test_every_failpoint_of_the_sources_has_a_row():
    rows = {point for table in (BY_WORKER, BY_RESCD, BY_RESCTL) for points in table.values() for point in points.split()}
    assert points_of_the_sources() == rows | ELSEWHERE.keys() and not rows & ELSEWHERE.keys()
    for point, module in ELSEWHERE.items():
        with open(os.path.join(os.path.dirname(__file__), module), encoding="utf-8") as file:
            assert '"%s' % point in file.read()


@pytest.fixture(scope="module")
def crews():
    made = []
    yield made
    for crew in made:
        crew.clean()


@pytest.fixture
def crew(crews):
    """The same crew for all cases of this module, until one fails."""
    if not crews:
        crews.append(Crew())
    crews[0].sound = False
    crews[0].new_period()
    yield crews[0]
    if not crews[0].sound or crews[0].workers != WORKERS:
        crews.pop().clean()


# ---- others that a case needs ----

def holders(crew):
    """One that is stopped with a probe and its permit, and one with a key in work. The probe last: nobody else then has it taken over."""
    made = []
    for i, point in enumerate(("once.storing", "probe.leased")):
        made.append(crew.victim(point, "stop", number=VICTIM + 1 + i))
        until_met(made[-1].process, "stop", "one that holds something at " + point)
    key, probe = made
    return probe, key


def corpses(crew, alone=False):
    """The same, and dead. Alone: none of the seven can be the one who takes back what they held, or who takes over the cell of a probe
    whose breaker has moved on: so they pause before there are any."""
    if alone:
        crew.pause()
    for holder in holders(crew):
        holder.process.kill()
        holder.process.wait()
        crew.forget(holder, "inside a call")


# ---- a worker ----

class Scenes:
    """What comes before, so that a worker meets its point. Each is a context; in it the victim is started, and meets it."""

    @staticmethod
    @contextlib.contextmanager
    def calls(crew):
        yield "calls"

    @staticmethod
    @contextlib.contextmanager
    def comes(crew):
        yield "comes"

    @staticmethod
    @contextlib.contextmanager
    def names(crew):
        yield "names"

    @staticmethod
    @contextlib.contextmanager
    def reaps(crew):
        """rescd is stopped, and so are the seven, or they would be quicker. One has died with a probe and its permit, one with a key."""
        crew.rescd.process.send_signal(signal.SIGSTOP)
        crew.pause()
        corpses(crew)
        yield "calls"
        crew.run()
        crew.rescd.process.send_signal(signal.SIGCONT)

    @staticmethod
    @contextlib.contextmanager
    def finds_a_full_table(crew):
        crew.rescd.process.send_signal(signal.SIGSTOP)
        crew.pause()
        slots = crew.rescd.snapshot()["segment"]["dims"]["workers"]
        fill = crew.rescd.crew(slots - SEVEN)
        fill[0].kill()
        crew.deaths += 1
        yield "calls"
        crew.run()
        for worker in fill:
            worker.end()
        crew.rescd.process.send_signal(signal.SIGCONT)

    @staticmethod
    @contextlib.contextmanager
    def ends_an_override(crew):
        """rescd is stopped, or it may be the one who ends it: it looks each second."""
        crew.pause()
        crew.rescd.process.send_signal(signal.SIGSTOP)
        crew.rescd.ctl("force", "ledger", "open", "--for", "1ms", "--why", "drill")
        crew.rescd.advance("1ms")
        yield "calls"
        crew.run()
        crew.rescd.process.send_signal(signal.SIGCONT)

    @staticmethod
    @contextlib.contextmanager
    def is_injected(crew):
        crew.pause()
        crew.rescd.ctl("inject", "pool", "--fail", "50%", "--for", "1h", "--why", "drill")
        yield "calls"
        crew.rescd.ctl("inject", "pool", "--stop")

    @staticmethod
    @contextlib.contextmanager
    def ends_an_injection(crew):
        crew.pause()
        crew.rescd.process.send_signal(signal.SIGSTOP)
        crew.rescd.ctl("inject", "pool", "--fail", "50%", "--for", "1ms", "--why", "drill")
        crew.rescd.advance("1ms")
        yield "calls"
        crew.run()
        crew.rescd.process.send_signal(signal.SIGCONT)

    @staticmethod
    @contextlib.contextmanager
    def mends_a_rate(crew):
        """A rescd that died between the new rate and the conversion of what is there."""
        crew.rescd.restart(env=at("apply.written", "kill"))
        crew.pause()
        crew.rescd.write_config(config(rate=1000))
        crew.rescd.ctl("reload", code=3)
        assert crew.rescd.died() == -signal.SIGKILL
        yield "calls"
        crew.run()
        crew.rescd.write_config(config())
        crew.rescd.start()

    @staticmethod
    @contextlib.contextmanager
    def moves(crew):
        """A rescd that died when it had announced a successor, and moved nothing; one holds a probe and its permit in the old segment."""
        crew.pause()  # first: the seven would take over the cell of a probe whose breaker has moved on
        probe, key = holders(crew)
        crew.rescd.restart(env=at("succession.superseded", "kill"))
        crew.workers = 64
        crew.rescd.write_config(config(workers=crew.workers))
        crew.rescd.ctl("reload", code=3)
        assert crew.rescd.died() == -signal.SIGKILL
        yield "calls"
        crew.run()
        crew.rescd.start()
        for holder in (probe, key):
            crew.go_on(holder)
            crew.forget(holder)


@pytest.mark.parametrize("scene, point, action", cases(BY_WORKER))
def test_F7_a_worker(crew, scene, point, action):
    with getattr(Scenes, scene.replace(" ", "_"))(crew) as what:
        victim = crew.victim(point, action, what)
        until_met(victim.process, action, "a worker that meets " + point)
        crew.run()
        crew.turn(TURNS)
        crew.check_nobody_waited(AT_A_DEATH)
    if action == "stop":
        crew.change_everything()
        crew.go_on(victim)
    crew.forget(victim, point if action == "kill" else None)
    crew.settle()


# ---- rescd ----

class Provocations:
    """What makes rescd come to its point. Each is a context, entered when rescd runs with its failpoint, and left when it goes on or has
    been started again. alone: the seven, who would be quicker, pause until it is there."""

    @staticmethod
    @contextlib.contextmanager
    def starts(crew, alone):
        yield

    @staticmethod
    @contextlib.contextmanager
    def reloads(crew, alone):
        """Another limit, another rate, one resource more and one less."""
        if alone:
            crew.pause()
        with crew.reload(config(limit=2, rate=1000, extra="b")):
            yield

    @staticmethod
    @contextlib.contextmanager
    def reaps(crew, alone):
        corpses(crew, alone)
        yield

    @staticmethod
    @contextlib.contextmanager
    def ends_an_override(crew, alone):
        """Of a resource that nobody calls, or its workers would."""
        crew.rescd.ctl("force", "quiet", "open", "--for", "1ms", "--why", "drill")
        yield

    @staticmethod
    @contextlib.contextmanager
    def ends_an_injection(crew, alone):
        crew.rescd.ctl("inject", "quiet", "--fail", "50%", "--for", "1ms", "--why", "drill")
        yield

    @staticmethod
    @contextlib.contextmanager
    def is_asked(crew, alone):
        """For more names than there may be, so that one has to go."""
        asker = crew.victim("none", "stop", "names", VICTIM + 1)
        yield
        asker.end()
        crew.forget(asker)

    @staticmethod
    @contextlib.contextmanager
    def supersedes(crew, alone):
        """One holds a probe in the old segment, and one a key, which is done when it has a successor."""
        if alone:
            crew.pause()  # first: they would take over the cell of a probe whose breaker has moved on
        probe, key = holders(crew)
        crew.workers = 64
        before = crew.rescd.snapshot()["segment"]["generation"]
        with crew.reload(config(workers=crew.workers)):
            def at_its_point():
                return crew.rescd.process.poll() is not None or is_stopped(crew.rescd.process)

            # The holder of the key, who moves what it comes to, is as quick as the seven: alone is without it, too.
            until(lambda: at_its_point() or (not alone and crew.rescd.snapshot()["segment"]["generation"] != before),
                  what="a successor, or it is at its point")
            crew.go_on(key)
            crew.forget(key)
            yield
        crew.go_on(probe)
        crew.forget(probe)


@pytest.mark.parametrize("scene, point, action", cases(BY_RESCD))
def test_F7_rescd(crew, scene, point, action):
    crew.rescd.kill()
    crew.rescd.spawn(at(point, action)) if scene == "starts" else crew.rescd.start(at(point, action))
    provocation, *alone = scene.split(", ")
    with getattr(Provocations, provocation.replace(" ", "_"))(crew, alone):
        until_met(crew.rescd.process, action, "rescd meets " + point)
        crew.run()
        crew.turn(TURNS)
        crew.check_nobody_waited(AT_A_DEATH)
        if action == "stop":
            crew.rescd.process.send_signal(signal.SIGCONT)
        else:
            crew.rescd.start()
    crew.rescd.write_config(config(workers=crew.workers))
    until(lambda: crew.rescd.ctl("reload", code=None).returncode == 0, what="rescd loads what it had before")
    crew.settle()


# ---- resctl ----

@pytest.mark.parametrize("command, point, action", cases(BY_RESCTL))
def test_F7_resctl(crew, command, point, action):
    """Killed in the middle of a command, or stopped while another gives the same one; then one that is let through is obeyed."""
    words = command.split()
    if words[0] == "release":
        crew.rescd.ctl("force", words[1], "closed", "--for", "1h", "--why", "drill")  # 10s are half a second here: it might be over
    if "--stop" in words:
        crew.rescd.ctl("inject", words[1], "--fail", "50%", "--for", "1h", "--why", "drill")
    operator = subprocess.Popen([RESCTL, "--instance", crew.rescd.instance, *words], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                env={**os.environ, **at(point, action)})
    until_met(operator, action, "resctl meets " + point)
    crew.turn(TURNS)
    crew.check_nobody_waited(AT_A_DEATH)
    crew.rescd.ctl(*words, code=None)
    if action == "stop":
        operator.send_signal(signal.SIGCONT)
        operator.wait(ENDING)
    crew.rescd.ctl("release", "ledger", code=None)
    crew.rescd.ctl("inject", "quiet", "--stop", code=None)
    assert crew.rescd.show("ledger")["override"] is None and crew.rescd.show("quiet")["injection"] is None
    crew.settle()


# ---- how long ----

def in_words(walls):
    """Of a histogram by powers of two: the middle, one of a thousand, and the worst, in us."""
    count = sum(walls[i] for i in range(BUCKETS))

    def quantile(share):
        left = count * share
        for i in range(BUCKETS):
            left -= walls[i]
            if left <= 0:
                return 2 ** (i + 1) / 1000
        return 0

    return "%d calls, half below %.1f us, 99.9 %% below %.1f us, worst %.0f us" % (count, quantile(.5), quantile(.999), walls["worst"] / 1000)


def test_after_all_of_it_the_doctor_finds_nothing(crew):
    """It looks a second time, after the one who repairs has had the time to, so this is no luck."""
    crew.turn(6)
    assert crew.rescd.ctl("doctor").stdout.startswith("clean: ")
    crew.settle()


def test_how_long_a_call_takes_while_others_die(crew):
    """For people: pytest -s shows it. What is asserted of it is what no busy machine can hide: nobody waited."""
    quiet = {}
    crew.turn(60)
    crew.check_nobody_waited(quiet)
    print("\nnobody dies: " + in_words(quiet))
    if AT_A_DEATH:
        print("at a death or a stop: " + in_words(AT_A_DEATH))
    crew.settle()


@pytest.mark.parametrize("how", ["rescd alive", "rescd dead", "in another pid namespace"])
def test_the_accounts_are_exact_within_a_second_of_a_death(crew, how):
    """The slot of the dead is freed last of all, so when it is free everything that was in it is right."""
    before = OTHER_NAMESPACE if how.startswith("in") else ()
    if before and not may(*before, "true"):
        pytest.skip("unshare is not permitted here")

    def death():
        victim = crew.victim("permit.taken", "stop", before=before)
        until(lambda: len(crew.rescd.snapshot()["workers"]) == SEVEN + 1 and victim[PHASE] == ENTERING, what="one that holds a permit")
        if how == "rescd dead":
            crew.rescd.kill()
        began = time.monotonic()
        victim.process.kill()
        until(lambda: len(crew.rescd.snapshot()["workers"]) == SEVEN, what="the slot of the dead is free")
        times.append(time.monotonic() - began)
        victim.process.wait()
        crew.forget(victim, "permit.taken")
        if how == "rescd dead":
            crew.rescd.start()
        return times[-1]

    times = []
    best_of(death, 1.0)
    print("\n%s: %s ms from SIGKILL until all accounts are exact" % (how, ", ".join("%.0f" % (t * 1000) for t in times)))
    crew.settle()
