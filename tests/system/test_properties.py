# SPDX-License-Identifier: MIT
"""Random sequences of operations, on the test clock, against the plainest model of each policy that can be written down.

A model here knows no shards, no buckets of tokens in flight, no compare-and-swap: lists, sets and exact fractions. The product must give the
same answer to every operation. A sequence that fails is shrunk by hypothesis to the shortest one, which is then kept as a test of its own;
the database of examples stays out of the tree.

A rule only writes down what is asked of the product and how the answer is judged; the whole sequence is then asked at once, because a turn
of the conversation for each step costs more than the step. rescd is not running meanwhile: what it would tidy up by itself, at its own
times, would be a second author of the state. Each sequence starts with an operator's reset.
"""
import collections
import fractions
import functools
import math

import pytest
from harness import Rescd, option_words
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

EXAMPLES, STEPS = 200, 50
BUCKETS_NS = 7800 * 10 ** 6  # a multiple of every bucket of the variants below
OUTCOMES = ["ok", "ok", "ok", "fail", "fail", "timeout", "ignored", "cancelled"]
NEUTRAL = ("ignored", "cancelled")
Fraction = fractions.Fraction


class Machine(RuleBasedStateMachine):
    """One worker, one resource for each variant of the policy. now is the time of the segment in ns.

    A rule that has nothing to do just returns: to draw another one, as preconditions make it, takes a third of the time of all.
    """

    VARIANTS = {}
    rescd = worker = None

    @initialize(data=st.data())
    def begin(self, data):
        self.name = data.draw(st.sampled_from(sorted(self.VARIANTS)))
        self.policy = self.VARIANTS[self.name]
        # Always at the beginning of a bucket of every window: so a sequence does the same each time that it is played.
        now = self.worker.ask("advance", 0)["now_ns"]
        self.now = self.worker.ask("advance", -now % BUCKETS_NS)["now_ns"]
        self.rescd.ctl("reset", self.name)
        self.script = []  # (a command, how its answer is judged)
        self.inside = []  # [number of a ticket, what the model says of it]
        self.number = 0
        self.start()

    def ask(self, command, *words, judge):
        self.script.append((" ".join([command, *map(str, words)]), judge))

    def expect(self, command, *words, **fields):
        def judge(told):
            found = {key: told.get(key) for key in fields}
            assert found == fields, (command, *words)

        self.ask(command, *words, judge=judge)

    def pass_time(self, ns):
        self.now += ns
        self.expect("advance", ns, now_ns=self.now)

    def next_ticket(self, **options):
        self.number += 1
        return [self.name, *option_words(ticket=self.number, **options)]

    def play(self):
        answers = self.worker.batch([command for command, _ in self.script])
        for (_, judge), told in zip(self.script, answers):
            judge(told)

    def teardown(self):
        try:
            self.play()
        finally:  # whatever is still inside would be seen by the next sequence
            self.worker.batch(["leave %d cancelled" % number for number in range(1, self.number + 1)])


# ---- breaker ----

class BreakerMachine(Machine):
    """The state machine, its windows, its trial and its leases."""

    VARIANTS = {
        "in-a-row": {"consecutive": 3, "cooldown": 1000, "probes": 2, "successes": 3, "probe_timeout": 700},
        "rate": {"failure_rate": Fraction(1, 2), "window": 1000, "min_calls": 4, "cooldown": 300, "cooldown_factor": 2, "cooldown_max": 1000},
        "slow": {"slow_rate": Fraction(1, 3), "slow_call": 50, "failure_rate": 1, "window": 777, "min_calls": 3, "cooldown": 100, "probes": 3},
        "calls": {"failure_rate": Fraction(2, 5), "window_calls": 5, "min_calls": 3, "cooldown": 400, "retry_after_max": 900},
        "all": {"consecutive": 4, "failure_rate": Fraction(3, 4), "slow_rate": 1, "slow_call": 20, "window": 100, "min_calls": 2, "cooldown": 50,
                "probes": 4, "trial_failure_rate": Fraction(1, 2), "probe_timeout": 90},
    }

    def start(self):
        self.state, self.why, self.due, self.reopened = "closed", None, None, 0
        self.generation = self.worker.state(self.name)["generation"]
        self.leases = [None] * self.setting("probes", 1)
        self.fresh()

    def setting(self, key, otherwise=None):
        return self.policy.get(key, otherwise)

    def ms(self):
        return self.now // 1000000

    def fresh(self):
        self.window, self.streak, self.good, self.bad, self.late = [], 0, 0, 0, 0

    # ---- what moves it ----

    def move(self, state):
        self.state = state
        self.generation = (self.generation + 1) & 0xffff
        self.fresh()

    def open(self, reopened, retry_after):
        self.reopened = reopened
        cooldown = min(self.setting("cooldown") * self.setting("cooldown_factor", 1) ** reopened, self.setting("cooldown_max", 86400000))
        if retry_after is not None and retry_after >= 0:
            cooldown = min(max(retry_after, 1), self.setting("retry_after_max", 60000))
        self.due = self.ms() + cooldown
        self.move("open")

    def inside_window(self):
        if "window_calls" in self.policy:
            return self.window[-self.policy["window_calls"]:]
        tick = -(-self.setting("window", 10000) // 10)
        return [c for c in self.window if self.ms() // tick - c[0] // tick < 10]

    def count(self, fail, slow, retry_after):
        self.window.append((self.ms(), fail, slow))
        self.streak = self.streak + 1 if fail else 0
        calls = self.inside_window()
        failed, slowed = sum(c[1] for c in calls), sum(c[2] for c in calls)
        if self.setting("consecutive", math.inf) <= self.streak or len(calls) >= self.setting("min_calls", 20) and (
                failed and failed >= len(calls) * self.setting("failure_rate", math.inf) or
                slowed and slowed >= len(calls) * self.setting("slow_rate", math.inf)):
            self.open(0, retry_after)

    def judge(self, fail, slow, retry_after):
        self.good += not fail
        self.bad += fail
        self.late += slow
        rate, probes = self.setting("trial_failure_rate"), self.setting("probes", 1)
        if rate is None:
            again, well = self.bad or self.late, self.good >= self.setting("successes", probes)
        else:
            results = self.good + self.bad
            again = results >= probes and (self.bad and self.bad >= results * rate or
                                           self.late and self.late >= results * self.setting("slow_rate", math.inf))
            well = results >= probes
        if again:
            self.open(self.reopened + 1, retry_after)
        elif well:
            self.reopened = 0
            self.move("closed")

    # ---- operations ----

    def expected_admission(self):
        """The answer, and what the model has to remember of the ticket."""
        if self.state == "open":
            if self.ms() < self.due:
                return "open", None
            self.move("half_open")
        if self.state == "closed":
            return "ok", {"generation": self.generation, "since": self.now}
        for i, held in enumerate(self.leases):
            if not self.is_out(held):
                self.leases[i] = {"generation": self.generation, "since": self.now, "lease": i}
                return "ok", self.leases[i]
        return "half_open", None

    def is_out(self, held):
        """A lease of this trial that is not overdue. Whatever else is in a place may be taken over."""
        return held is not None and held["generation"] == self.generation and \
            self.ms() - held["since"] // 1000000 < self.setting("probe_timeout", 30000)

    def expected_end(self, ticket, outcome, fail, slow, retry_after):
        if "lease" in ticket:
            if self.leases[ticket["lease"]] is not ticket:
                return "stale"
            self.leases[ticket["lease"]] = None
            if outcome in NEUTRAL:
                return "ok"
            if ticket["generation"] == self.generation:
                self.judge(fail, slow, retry_after)
                return "ok"
            return "stale"
        if ticket["generation"] != self.generation:
            return "stale"
        if outcome not in NEUTRAL:
            self.count(fail, slow, retry_after)
        return "ok"

    @rule()
    def enter_one(self):
        open_until = self.due if self.state == "open" else None
        expected, ticket = self.expected_admission()
        words = self.next_ticket()
        if ticket is None:
            self.expect("enter", *words, answer=expected, retry_after_ms=open_until - self.ms() if expected == "open" else -1)
        else:
            self.expect("enter", *words, answer="ok", probe="lease" in ticket)
            self.inside.append((self.number, ticket))

    @rule(which=st.integers(0, 100), outcome=st.sampled_from(OUTCOMES), retry_after=st.none() | st.integers(-1, 2000))
    def leave_one(self, which, outcome, retry_after):
        if not self.inside:
            return
        number, ticket = self.inside.pop(which % len(self.inside))
        fail, slow = outcome in ("fail", "timeout"), False
        if "slow_rate" in self.policy:
            slow = self.now - ticket["since"] > self.policy["slow_call"] * 1000000
        expected = self.expected_end(ticket, outcome, fail, slow, retry_after)
        self.expect("leave", number, outcome, *([] if retry_after is None else [retry_after]), answer=expected)

    @rule(outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=4))
    def whole_calls(self, outcomes, retry_after=None):
        for outcome in outcomes:
            self.enter_one()
            if self.inside and self.inside[-1][0] == self.number:
                self.leave_one(len(self.inside) - 1, outcome, retry_after)

    @rule(times=st.integers(2, 6), retry_after=st.none() | st.integers(0, 1000))
    def failures_in_a_row(self, times, retry_after):
        self.whole_calls(["fail"] * times, retry_after)

    @rule(count=st.integers(1, 5))
    def begin_trial(self, count):
        self.failures_in_a_row(6, None)
        self.wait_until_due(0)
        for _ in range(count):
            self.enter_one()

    @rule(count=st.integers(1, 5), outcome=st.sampled_from(["ok", "ok", "fail"]), more_ns=st.sampled_from([0, 1, -1000000, 1000000]))
    def slow_calls(self, count, outcome, more_ns):
        """Together, and each as long as the limit of what is slow, or a little more or less."""
        first = len(self.inside)
        for _ in range(count):
            self.enter_one()
        self.pass_time(max(0, self.setting("slow_call", 10) * 1000000 + more_ns))
        while len(self.inside) > first:
            self.leave_one(first, outcome, None)

    @rule(ms=st.integers(0, 1500), ns=st.integers(0, 999999))
    def wait(self, ms, ns):
        self.pass_time(ms * 1000000 + ns)

    @rule(key=st.sampled_from(["cooldown", "window", "probe_timeout", "hour"]), more_ms=st.integers(-1, 1))
    def wait_as_long_as(self, key, more_ms):
        self.pass_time((self.setting(key, 3600000) + more_ms) * 1000000)

    @rule(buckets=st.integers(1, 11), early=st.integers(0, 1))
    def wait_for_the_edge_of_a_bucket(self, buckets, early):
        tick = -(-self.setting("window", 10000) // 10)
        self.pass_time(max(0, (self.ms() // tick + buckets) * tick - self.ms() - early) * 1000000)

    @rule(early=st.integers(0, 1))
    def wait_until_due(self, early):
        if self.state == "open":
            self.pass_time(max(0, self.due - self.ms() - early) * 1000000)

    @invariant()
    def same(self):
        out = sum(self.is_out(held) for held in self.leases)
        self.expect("state", self.name, state=self.state, generation=self.generation, in_flight=len(self.inside),
                    due_ms=max(0, self.due - self.ms()) if self.state == "open" else -1, probes_out=out if self.state == "half_open" else 0)

    def play(self):
        super().play()
        seen = self.rescd.show(self.name)["window"]
        calls = self.inside_window() if self.state == "closed" else []
        assert (seen["calls"], seen["failures"], seen["consecutive_failures"]) == (len(calls), sum(c[1] for c in calls), self.streak)
        if "slow_rate" in self.policy:
            assert seen["slow"] == sum(c[2] for c in calls)


# ---- bulkhead ----

class BulkheadMachine(Machine):
    """Who may come in, by priority, and how many retries."""

    VARIANTS = {
        "plain": {"limit": 3}, "one": {"limit": 1},
        "shares": {"limit": 7, "critical": 1, "normal": Fraction(3, 4), "low": Fraction(2, 5)},
        "tiny": {"limit": 2, "normal": Fraction(1, 2), "low": Fraction(1, 10)},
        "capped": {"limit": 10, "low": Fraction(1, 2), "floor": 2, "share": Fraction(3, 10)},
    }

    def start(self):
        pass

    def occupied(self):
        return len(self.inside)

    def expected(self, priority, retry):
        limit = self.policy["limit"]
        calls, retries = self.occupied() + 1, sum(t["retry"] for _, t in self.inside) + retry
        if calls > limit:
            return "full"
        share = self.policy.get(priority, 1)
        if share < 1 and calls > max(1, math.floor(limit * share)):
            return "priority"
        if retry and "floor" in self.policy and retries > max(self.policy["floor"], math.floor(self.policy["share"] * calls)):
            return "retries"
        return "ok"

    @rule(priority=st.sampled_from(["critical", "normal", "low"]), retry=st.booleans(), count=st.integers(1, 4))
    def enter_some(self, priority, retry, count):
        for _ in range(count):
            expected = self.expected(priority, retry)
            self.expect("enter", *self.next_ticket(priority=priority, retry=retry), answer=expected)
            if expected == "ok":
                self.inside.append((self.number, {"retry": retry}))

    @rule(which=st.integers(0, 100), outcome=st.sampled_from(OUTCOMES))
    def leave_one(self, which, outcome):
        if not self.inside:
            return
        number, _ = self.inside.pop(which % len(self.inside))
        self.expect("leave", number, outcome, answer="ok")
        self.expect("leave", number, outcome, answer="error")

    @invariant()
    def same(self):
        self.expect("state", self.name, in_flight=len(self.inside), retries=sum(t["retry"] for _, t in self.inside),
                    limit=self.policy["limit"], waiting=0, state="closed")


# ---- rate ----

class RateMachine(Machine):
    """A bucket of exact fractions. The product rounds what it takes up, by a quarter of a nanosecond an operation."""

    VARIANTS = {
        "one": {"per_second": Fraction(1), "burst": 1}, "usual": {"per_second": Fraction(5), "burst": 5},
        "slow": {"per_second": Fraction(1, 1000), "burst": 3}, "third": {"per_second": Fraction(333333, 1000000), "burst": 4},
        "seven": {"per_second": Fraction(7), "burst": 10}, "fast": {"per_second": Fraction(9999), "burst": 100},
        "front": {"per_second": Fraction(50), "burst": 25},
    }
    NEAR = Fraction(1, 1000)  # of a token

    def start(self):
        self.tokens, self.at = Fraction(self.policy["burst"]), self.now
        self.taken = collections.deque()

    def refill(self, now):
        self.tokens = min(Fraction(self.policy["burst"]), self.tokens + self.policy["per_second"] * (now - self.at) / 1000000000)
        self.at = now

    def take(self, now, cost):
        assert cost <= self.policy["burst"] and self.tokens >= cost - self.NEAR
        self.tokens = max(self.tokens - cost, Fraction(0))
        self.taken.append((now, cost))
        while self.taken[0][0] <= now - 1000000000:
            self.taken.popleft()
        assert sum(c for _, c in self.taken) <= self.policy["burst"] + self.policy["per_second"]

    def judge(self, now, cost, told):
        self.refill(now)
        if told["r"] == 0:
            self.take(now, cost)
        elif cost > self.policy["burst"]:
            assert told["answer"] == "cost"
        else:
            assert told["answer"] == "rate" and self.tokens < cost + self.NEAR
            missing_ms = (cost - self.tokens) / self.policy["per_second"] * 1000
            assert abs(told["retry_after_ms"] - missing_ms) <= 1 + self.NEAR / self.policy["per_second"] * 1000

    @rule(cost=st.integers(0, 3) | st.integers(0, 110), times=st.integers(1, 5), outcome=st.sampled_from(OUTCOMES))
    def call(self, cost, times, outcome):
        """What becomes of a call is nothing to the rate limit."""
        for _ in range(times):
            self.ask("enter", *self.next_ticket(cost=cost), judge=functools.partial(self.judge, self.now, max(cost, 1)))
            self.ask("leave", self.number, outcome, judge=lambda told: None)

    @rule(ns=st.integers(0, 10 ** 6) | st.integers(0, 3 * 10 ** 9) | st.sampled_from([10 ** 8, 2 * 10 ** 8, 10 ** 9, 3600 * 10 ** 9]))
    def wait(self, ns):
        self.pass_time(ns)

    @rule(tokens=st.integers(1, 3), early=st.integers(0, 2))
    def wait_for_tokens(self, tokens, early):
        """As long as these take, or a moment less."""
        self.pass_time(max(0, math.ceil(tokens / self.policy["per_second"] * 10 ** 9) - early * 10 ** 6))

    @invariant()
    def same(self):
        def judge(now, told):
            self.refill(now)
            assert abs(Fraction(told["rate_tokens"]) - self.tokens) <= self.NEAR

        self.ask("state", self.name, judge=functools.partial(judge, self.now))


# ---- retry budget ----

class BudgetMachine(Machine):
    """A bucket of exact fractions. The product counts in millionths, and owes what is less.

    What expires does so by slices of a tenth of the ttl: not later than it should, and not more than a slice earlier. So there are two
    levels, least and most, between which the product's is; they are the same where nothing expires.
    """

    VARIANTS = {
        "usual": {"ratio": Fraction(1, 10), "capacity": 10},
        "floor": {"ratio": Fraction(333333, 1000000), "capacity": 3, "per_second": Fraction(7, 10)},
        "costs": {"ratio": Fraction(1, 2), "capacity": 20, "cost": Fraction(5, 2), "timeout_cost": Fraction(5), "per_second": Fraction(1, 1000)},
        "grpc": {"ratio": Fraction(1, 10), "capacity": 10, "threshold": Fraction(1, 2)},
        "requests": {"ratio": Fraction(1, 5), "capacity": 4, "deposit": "request", "per_second": Fraction(10)},
        "only-floor": {"ratio": Fraction(0), "capacity": 1, "per_second": Fraction(333333, 1000000)},
        "huge": {"ratio": Fraction(1000), "capacity": 4294967295, "cost": Fraction(1)},
        "expires": {"ratio": Fraction(1, 2), "capacity": 6, "ttl": 2000},
        "expires-too": {"ratio": Fraction(3, 10), "capacity": 1000, "ttl": 500, "deposit": "request", "timeout_cost": Fraction(2)},
    }
    NEAR = Fraction(3, 1000000)

    def start(self):
        self.capacity = Fraction(self.policy["capacity"])
        self.least = self.most = self.capacity
        self.at = self.now // 1000000
        self.earned = [(self.at, self.capacity)]

    def add(self, amount):
        self.least, self.most = min(self.capacity, self.least + amount), min(self.capacity, self.most + amount)

    def earn(self, now):
        self.earned.append((now, self.policy["ratio"]))
        self.add(self.policy["ratio"])

    def pass_to(self, now):
        """The floor comes in, and what is old is worth nothing."""
        self.add(self.policy.get("per_second", Fraction(0)) * (now - self.at) / 1000)
        self.at = now
        if "ttl" in self.policy:
            ttl = self.policy["ttl"]
            self.earned = [(at, amount) for at, amount in self.earned if now - at < ttl]
            self.most = min(self.most, sum(amount for _, amount in self.earned))
            self.least = min(self.least, sum(amount for at, amount in self.earned if now - at <= ttl * 9 // 10))

    def take(self, cost):
        self.least, self.most = max(Fraction(0), self.least - cost), max(Fraction(0), self.most - cost)

    def cost(self, outcome):
        cost = self.policy.get("cost", Fraction(1))
        return self.policy.get("timeout_cost", cost) if outcome == "timeout" else cost

    @rule(outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=6), retry=st.booleans())
    def calls(self, outcomes, retry):
        def judge(now, outcome, told):
            assert told["answers"] == [["ok", 1]]
            if outcome == "ok" if self.policy.get("deposit") != "request" else not retry:
                self.earn(now)

        for outcome in outcomes:
            self.ask("calls", self.name, outcome, *option_words(retry=retry), judge=functools.partial(judge, self.now // 1000000, outcome))

    def withdraw(self, now, outcome, told):
        self.pass_to(now)
        cost, threshold = self.cost(outcome), self.policy.get("threshold")
        if threshold is not None:
            self.take(cost)
            assert told["answer"] == ("ok" if self.most > threshold * self.capacity else "budget")
        elif told["answer"] == "ok":
            assert self.most >= cost - (self.NEAR if "per_second" in self.policy else 0)
            self.take(cost)
        else:
            assert told["answer"] == "budget" and self.least < cost + (self.NEAR if "per_second" in self.policy else 0)

    @rule(outcomes=st.lists(st.sampled_from(["fail", "fail", "timeout"]), min_size=1, max_size=6), attempts=st.integers(0, 1))
    def retries(self, outcomes, attempts):
        for outcome in outcomes:
            self.ask("retry", self.name, outcome, attempts, judge=functools.partial(self.withdraw, self.now // 1000000, outcome))

    @rule(outcome=st.sampled_from(["ok", "ignored", "cancelled", "fail"]))
    def a_retry_that_is_refused_for_another_reason(self, outcome):
        """It costs nothing; but gRPC's rule counts failures, so that a failure is charged all the same."""
        def judge(now, told):
            assert told["answer"] == ("attempts" if outcome == "fail" else "not_retryable")
            if outcome == "fail" and "threshold" in self.policy:
                self.pass_to(now)
                self.take(self.cost(outcome))

        self.ask("retry", self.name, outcome, 2, judge=functools.partial(judge, self.now // 1000000))

    @rule(ms=st.integers(0, 3000) | st.sampled_from([1, 50, 200, 450, 500, 1800, 2000, 86400000]))
    def wait(self, ms):
        self.pass_time(ms * 1000000)

    @rule(ns=st.integers(0, 3000000))
    def wait_a_moment(self, ns):
        self.pass_time(ns)

    @invariant()
    def same(self):
        def judge(now, told):
            self.pass_to(now)
            tokens = Fraction(told["tokens"])
            assert 0 <= tokens <= self.capacity and self.least - self.NEAR <= tokens <= self.most + self.NEAR

        self.ask("state", self.name, judge=functools.partial(judge, self.now // 1000000))


# ---- the configuration of a variant, and the run ----

def duration(ms):
    return "%dms" % ms


def breaker_config(policy):
    written = {}
    for key, value in policy.items():
        if key in ("cooldown", "cooldown_max", "window", "slow_call", "probe_timeout", "retry_after_max"):
            value = duration(value)
        written["window" if key == "window_calls" else key] = "%.4f%%" % (value * 100) if isinstance(value, Fraction) else value
    return {"breaker": written}


def bulkhead_config(policy):
    budget = {"in_flight_floor": policy["floor"], "in_flight_share": float(policy["share"])} if "floor" in policy else None
    bulkhead = {k: float(v) if k != "limit" else v for k, v in policy.items() if k not in ("floor", "share")}
    return {"bulkhead": bulkhead, **({"retry": {"budget": budget}} if budget else {})}


def rate_config(policy):
    return {"rate": {"per_second": float(policy["per_second"]), "burst": policy["burst"]}}


def budget_config(policy):
    written = {k: float(v) if isinstance(v, Fraction) else v for k, v in policy.items()}
    if "ttl" in policy:
        written["ttl"] = duration(policy["ttl"])
    return {"retry": {"attempts": 3, "budget": written}}


@pytest.mark.parametrize("machine,config", [(BreakerMachine, breaker_config), (BulkheadMachine, bulkhead_config), (RateMachine, rate_config),
                                            (BudgetMachine, budget_config)], ids=["breaker", "bulkhead", "rate", "budget"])
def test_any_sequence_does_what_the_model_does(machine, config):
    rescd = Rescd({"resources": {name: config(policy) for name, policy in machine.VARIANTS.items()}})
    try:
        machine.rescd, machine.worker = rescd, rescd.worker()
        rescd.kill()
        run_state_machine_as_test(machine, settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None, suppress_health_check=list(HealthCheck)))
    finally:
        rescd.clean()
