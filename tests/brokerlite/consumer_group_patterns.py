"""Sequences in which members of a consumer group subscribe to regular expressions, for Apache Kafka and for brokerlite.

Apache Kafka resolves a regular expression after it has answered the heartbeat, and looks for new topics every ten
seconds. So after each step the members send heartbeats until the group has settled, and only then it is described,
without its epochs. The assignor is `range`, whose result does not depend on the steps before.
`python -m tests.brokerlite.record_consumer_groups` records the answers of Apache Kafka.
"""

import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla.brokerlite.machines.consumer_groups.assignors import Candidate, range_
from tests.brokerlite.consumer_group_lines import Line, MachineLine, create, delete
from tests.brokerlite.consumer_group_walks import Asking, Owned, Said
from tests.patience import HUNG

WALKS_WITH_PATTERNS = 24
STEPS = 14
ROUNDS = 20
"""Heartbeats of each member until brokerlite, which answers at once, counts as settled whatever it says."""
PATTERNS = (
    *("{}-.*", "{}-a", "{}-[bc]", "{}-(a|d)", ".*{}-[^a]", "(?i){}-A", "{}-\\w", "{}-a|{}-b"),
    *("{}", "{}-", "no-such-.*"),
)
"""The last ones match no topic: a pattern must match the whole name."""
INVALID = ("{}-(", "[a", "*", "{}-(?=a)", "{}\\1", "a{{2,1}}")


@dataclass
class Member:
    """The subscription and the state of a member."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    epoch: int = 0
    has: Owned = field(default_factory=dict)


class PatternWalk:
    """A group of members that change their subscriptions, and topics that come and go."""

    def __init__(self, asking: Asking, seed: int) -> None:
        self.asking, self.prefix = asking, f"p{seed}"
        self.rng = random.Random(seed)
        self.members: dict[str, Member] = {}
        self.counts: dict[str, int] = {}

    def create(self, letter: str) -> None:
        name = f"{self.prefix}-{letter}"
        self.counts[name] = "abcd".index(letter) % 3 + 1
        self.asking.topics[name] = create(self.asking.line, name, self.counts[name])

    def delete(self, name: str) -> None:
        delete(self.asking.line, name)
        del self.counts[name]

    def subscription(self, member: Member) -> dict[str, Any]:
        """Choose names, a pattern, or both."""
        names = self.rng.choice(((), (f"{self.prefix}-a",), (f"{self.prefix}-b", f"{self.prefix}-d")))
        pattern = self.rng.choice(PATTERNS).format(self.prefix, self.prefix) if self.rng.random() < 0.7 else ""
        told: dict[str, Any] = {"subscribed_topic_names": names, "subscribed_topic_regex": pattern}
        if member.epoch and self.rng.random() < 0.3:  # a heartbeat may leave out unchanged fields
            del told["subscribed_topic_names"]
        member.names = told.get("subscribed_topic_names", member.names)
        member.pattern = pattern
        return told

    def beat(self, name: str, **told: Any) -> Any:
        """Send a heartbeat, and adopt the assignment in the answer."""
        member = self.members[name]
        if not member.epoch:
            told |= {"rebalance_timeout_ms": 60_000, "server_assignor": "range", "owned": {}}
        answer = self.asking.heartbeat(name, member.epoch, **told)
        if not answer.error_code:
            member.epoch = answer.member_epoch
            if answer.assignment is not None:
                member.has = self.asking.names(answer.assignment.topic_partitions)
        return answer

    def refused(self, name: str, pattern: str) -> list[Any]:
        """The answer to a pattern that is invalid; both brokers end the text with the reason of their library."""
        answer = self.beat(name, subscribed_topic_regex=pattern)
        return [answer.error_code, (answer.error_message or "").partition(": ")[0]]

    def topics_of(self, member: Member) -> set[str]:
        return {
            name
            for name in self.counts
            if name in member.names or (member.pattern and re.fullmatch(member.pattern, name))
        }

    def expected(self) -> dict[str, Owned]:
        """The partitions of each member when the group has settled."""
        ids = {name: UUID(int=number) for number, name in enumerate(sorted(self.counts))}
        known = {topic_id: name for name, topic_id in ids.items()}
        candidates = {
            name: Candidate(frozenset(ids[topic] for topic in self.topics_of(member)))
            for name, member in self.members.items()
        }
        assigned = range_(candidates, {ids[name]: count for name, count in self.counts.items()})
        return {
            name: {known[topic]: sorted(indexes) for topic, indexes in assigned.get(name, {}).items() if indexes}
            for name in self.members
        }

    def settled(self) -> list[Any]:
        """Send heartbeats until the group is as expected, or for a long time; return its description."""
        expected = self.expected()
        end = time.monotonic() + HUNG
        for round_ in range(1_000_000):
            for name, member in self.members.items():
                self.beat(name, owned=member.has)
            described = self.described()
            whole = {name: [has, has] for name, *_, has, target in described[-1] if has == target}
            if described[0] == "Stable" and whole == {name: [has, has] for name, has in expected.items()}:
                break
            if round_ == ROUNDS if isinstance(self.asking.line, MachineLine) else time.monotonic() > end:
                break
            if not isinstance(self.asking.line, MachineLine):
                time.sleep(0.05)  # Kafka matches patterns in the background, and only responses tell of it
        return described

    def described(self) -> list[Any]:
        said = self.asking.described()
        if len(said) == 2:
            return [*said, []]
        state, _, _, assignor, members = said
        kept = [[name, names, pattern, has, target] for name, _, _, _, names, pattern, has, target, _ in members]
        return [state, assignor, kept]

    def steps(self) -> Iterator[Said]:
        for letter in "ab":
            self.create(letter)
        self.asking.line.pass_time(0.5)  # Apache Kafka's coordinator learns of topics a little later
        created, gone = self.rng.randrange(4, 8), self.rng.randrange(8, 12)
        for number in range(STEPS):
            name = f"m{self.rng.randrange(3)}"
            if number == created:
                self.create("c")
                act = "a topic comes"
            elif number == gone:
                self.delete(f"{self.prefix}-{self.rng.choice('abc')}")
                act = "a topic goes"
            elif name not in self.members:
                act = f"{name} joins"
                self.members[name] = Member()
                yield act, self.beat(name, **self.subscription(self.members[name])).error_code
            elif self.rng.random() < 0.15:
                act = f"{name} leaves"
                member = self.members.pop(name)
                assert member.epoch > 0
                yield act, self.asking.heartbeat(name, -1).error_code
            elif self.rng.random() < 0.25:
                act = f"{name} is refused"
                yield act, self.refused(name, self.rng.choice(INVALID).format(self.prefix))
            else:
                act = f"{name} changes"
                yield act, self.beat(name, **self.subscription(self.members[name])).error_code
            if self.members:
                yield f"{act}: settled", self.settled()
            else:
                yield f"{act}: described", self.described()


def pattern_sequences(line: Line) -> Iterator[list[Any]]:
    """Run all walks; yield the name, the step and the summary of each answer."""
    for seed in range(WALKS_WITH_PATTERNS):
        name = f"patterns {seed}"
        for label, said in PatternWalk(Asking(line, name, {}), seed).steps():
            yield [name, label, said]
