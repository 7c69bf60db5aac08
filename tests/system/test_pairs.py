# SPDX-License-Identifier: MIT
"""All of a call's guards or none: for every ordered pair of guards, what the first one gave is put back when the second one refuses.

The refusal moves its own counter and that of the calls that asked, and nothing else that can be seen: permits, leases, tokens, windows,
queue, state and times are exactly as before (time stands still). A5 of the field cases is the pair of a due breaker and a full bulkhead.
"""
import copy
import itertools
import math

import pytest
from harness import agreed, moved, until

NAME = "payments"
FAILURES = 3
BREAKER = {"consecutive": FAILURES, "cooldown": "1s", "probes": 2, "probe_timeout": "1h"}
BULKHEAD = {"limit": 8}
BLOCKS = {
    "deadline": {}, "override": {}, "breaker": {"breaker": BREAKER}, "due": {"breaker": BREAKER}, "trial": {"breaker": BREAKER},
    "throttle": {"throttle": {"k": 2, "window": "10m"}}, "bulkhead": {"bulkhead": BULKHEAD}, "priority": {"bulkhead": BULKHEAD},
    "queue": {"bulkhead": BULKHEAD}, "retries": {"retry": {"budget": {"in_flight_floor": 1, "in_flight_share": 0}}},
    "rate": {"rate": {"per_second": 0.001, "burst": 100}}, "cost": {"rate": {"per_second": 0.001, "burst": 100}},
}
ANSWERS = {"deadline": "deadline", "override": "forced_open", "breaker": "open", "trial": "half_open", "throttle": "throttled",
           "bulkhead": "full", "priority": "priority", "queue": "queue_full", "retries": "retries", "rate": "rate", "cost": "cost"}
# Pairs that are one guard, or in which the first one makes the second one impossible: an override that lets calls pass asks no breaker.
FAMILIES = [{"breaker", "due", "trial"}, {"bulkhead", "priority", "queue"}]
IMPOSSIBLE = [("override", "breaker"), ("override", "trial"), ("bulkhead", "queue")]
PAIRS = [(first, second) for first, second in itertools.product(BLOCKS, ANSWERS)
         if first != second and (first, second) not in IMPOSSIBLE and not any({first, second} <= f for f in FAMILIES)]


M64 = (1 << 64) - 1


def first_draw(seed):
    """The first random number below a million of a worker with that seed: splitmix64 fills the state, xoshiro256** draws."""
    state = []
    for _ in range(2):
        seed = (seed + 0x9e3779b97f4a7c15) & M64
        z = ((seed ^ seed >> 30) * 0xbf58476d1ce4e5b9) & M64
        z = ((z ^ z >> 27) * 0x94d049bb133111eb) & M64
        state.append(z ^ z >> 31)
    z = state[1] * 5 & M64
    return ((z << 7 | z >> 57) & M64) * 9 % (1 << 64) * 1000000 >> 64


# A throttle that refuses a share of the calls refuses this worker's next one only if it refuses all but a ten-thousandth.
LUCKY = next(seed for seed in range(1, 1000000) if first_draw(seed) >= 999900)


class Pair:
    """A resource that has both guards, in which the first lets a call pass and the second refuses it."""

    def __init__(self, host, first, second):
        self.first, self.second = first, second
        self.config = {"resources": {NAME: copy.deepcopy({**BLOCKS[first], **BLOCKS[second]})}}
        self.rescd = host(self.config)
        self.holder, self.waiter, self.asker = self.rescd.crew(3)
        self.options = {}

    def has(self, *guards):
        return self.first in guards or self.second in guards

    def set_up(self):
        if self.first == "throttle":
            self.asker.calls(NAME, "ok*10")
        if self.has("bulkhead", "priority", "queue"):
            self.holder.hold(NAME, 2)
        self.prepare_options()
        if self.second == "rate":
            self.drain()
        self.fail()
        if self.has("due", "trial"):
            self.asker.advance(1000)
        if self.has("trial"):
            self.take_probes(2 if self.second == "trial" else 1)
        if self.has("override"):
            self.rescd.ctl("force", NAME, "open" if self.second == "override" else "closed", "--for", "1h", "--why", "test")
        self.fill_bulkhead()

    def prepare_options(self):
        if self.has("deadline"):
            self.options["deadline_ms"] = 0 if self.second == "deadline" else 60000
        if self.has("priority"):
            self.options["priority"] = "low"
        if self.has("retries"):
            self.options["retry"] = True
        if self.has("cost"):
            self.options["cost"] = 101 if self.second == "cost" else 2
        if self.second == "retries":
            self.holder.hold(NAME, 1, retry=True)

    def fails(self):
        if self.has("due", "trial") or self.second == "breaker":
            return FAILURES
        return FAILURES - 1 if self.first == "breaker" or self.second == "throttle" else 0

    def drain(self):
        """Leaves as many tokens as are needed before the call in question."""
        later = self.fails() + (self.first == "trial")
        tokens = math.floor(self.asker.state(NAME)["rate_tokens"])
        assert self.asker.call(NAME, "cancelled", cost=tokens - later)["answer"] == "ok"

    def fail(self):
        """The throttle refuses some calls, as it should, but none of these."""
        for _ in range(self.fails()):
            self.asker.ask("seed", LUCKY)
            assert self.asker.call(NAME, "fail")["answer"] == "ok"

    def take_probes(self, count):
        for _ in range(count):
            self.holder.ask("seed", LUCKY)
            assert self.holder.enter(NAME)["answer"] == "ok"

    def fill_bulkhead(self):
        """By a reload that lowers the limit to what is in use: so it is also full where a breaker lets nobody in."""
        in_use = self.asker.state(NAME)["in_flight"]
        changes = {"bulkhead": {"limit": in_use}, "priority": {"limit": 2 * in_use, "low": 0.5},
                   "queue": {"limit": in_use, "max_wait": "1h", "max_waiting": 1}}
        if self.second not in changes:
            return
        self.config["resources"][NAME]["bulkhead"] = changes[self.second]
        self.rescd.load(self.config)
        if self.second == "queue":
            self.waiter.send_enter(NAME)
            until(lambda: self.asker.state(NAME)["waiting"] == 1, what="a call that waits")

    def ask(self):
        """What is to be seen before, and the answer. The throttle refuses a share of the calls: those that pass are given up."""
        for _ in range(50):
            before = self.seen()
            answer = self.asker.enter(NAME, **self.options)
            if answer["r"] != 0 or self.second != "throttle":
                break
            self.asker.leave(answer, "cancelled")
        return before, answer

    def seen(self):
        """All that can be seen of it, less the ages of things."""
        return agreed(self.rescd, self.asker, NAME)


@pytest.mark.parametrize("first,second", PAIRS, ids=["%s-%s" % p for p in PAIRS])
def test_A5_a_refusal_by_the_second_leaves_the_first_exactly_as_before(host, first, second):
    pair = Pair(host, first, second)
    pair.set_up()
    for _ in range(2):
        before, answer = pair.ask()
        assert answer["answer"] == ANSWERS[second]
        after = pair.seen()
        assert moved(before, after) == {"enters": 1, "refused_" + ANSWERS[second]: 1}
        if second == "throttle":  # it counts what it refuses: that is its rule
            assert after["throttle"]["requests"] == before["throttle"]["requests"] + 1
            after["throttle"] = before["throttle"]
        assert {**after, "counters": 0} == {**before, "counters": 0}
        assert pair.asker.leave(answer, "fail")["answer"] == "error"
        assert {**pair.seen(), "throttle": 0} == {**after, "throttle": 0}


@pytest.mark.parametrize("second", ["rate", "trial"])
def test_A5_a_permit_that_was_waited_for_is_put_back_too(host, second):
    """The call waits for its permit, gets it, and is then refused by what comes after."""
    config = {"resources": {NAME: {"bulkhead": {"limit": 1, "max_wait": "1h"}, "rate": {"per_second": 0.001, "burst": 9},
                                   "breaker": {"consecutive": 1, "cooldown": "1s", "probe_timeout": "1h"}}}}
    rescd = host(config)
    holder, waiter, asker = rescd.crew(3)
    if second == "trial":
        holder.call(NAME, "fail")
        holder.advance(1000)
    held = holder.enter(NAME)
    waiter.send_enter(NAME)
    until(lambda: asker.state(NAME)["waiting"] == 1, what="a call that waits")
    if second == "rate":  # the rate limit has nothing left, and the waiting call does not know yet
        config["resources"][NAME]["rate"]["burst"] = 1
        rescd.load(config)
        assert asker.state(NAME)["rate_tokens"] < 1
    before = agreed(rescd, asker, NAME)
    if second == "rate":
        holder.leave(held, "cancelled")
        assert waiter.receive()["answer"] == "rate"
        after = agreed(rescd, asker, NAME)
        assert moved(before, after) == {"ended_cancelled": 1, "enters": 1, "refused_rate": 1}
    else:
        config["resources"][NAME]["bulkhead"]["limit"] = 2
        rescd.load(config)
        assert waiter.receive()["answer"] == "half_open"
        after = agreed(rescd, asker, NAME)
        assert moved(before, after) == {"enters": 1, "refused_half_open": 1}
    assert after["permits"]["waiting"] == 0 and after["permits"]["in_use"] == (0 if second == "rate" else 1)
    assert (after["rate"], after["probes"], after["state"]) == (before["rate"], before["probes"], before["state"])


@pytest.mark.parametrize("second", ["open", "forced_open"])
def test_A5_tokens_that_were_waited_for_are_put_back_too(host, second):
    """The call has its tokens and sleeps until they are due. Meanwhile another guard closes."""
    rescd = host({"resources": {NAME: {"rate": {"per_second": 1, "burst": 2, "max_wait": "1h"}, "breaker": {"consecutive": 1, "cooldown": "1h"}}}})
    holder, waiter, asker = rescd.crew(3)
    held = holder.hold(NAME, 2)
    waiter.send_enter(NAME)
    # It owes one token: it is there a second earlier than for who comes now.
    until(lambda: asker.enter(NAME, deadline_ms=1)["retry_after_ms"] == 2000, what="a call that has taken the next token")
    if second == "open":
        holder.leave(held[0], "fail")
    else:
        rescd.ctl("force", NAME, "open", "--for", "1h", "--why", "test")
    before = agreed(rescd, asker, NAME)
    asker.advance(1000)
    assert waiter.receive()["answer"] == second
    after = agreed(rescd, asker, NAME)
    assert moved(before, after) == {"enters": 1, "refused_" + second: 1}
    assert (before["rate"]["tokens"], after["rate"]["tokens"]) == (0, 1)
