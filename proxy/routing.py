"""Finds the rule of a topic and the partition of a key.

Rules:
- The first rule whose glob matches applies. Topics whose names begin with ``__`` are Kafka's own and match no rule;
  invalid topic names match none either. A glob matches no internal topic of Kafka Streams, whose tasks choose the
  partitions themselves; a rule can only name such a topic in full.
- The partition count is pinned when a rewritten topic is first seen: if it followed a growing topic, keys would move.
  Only a recreated topic (with another topic id) gets a new pin. A restart without a journal forgets the pin, so a rule
  may state the count. Records for a topic with fewer partitions than that are refused.
- A record without a key stays in the partition that its client chose; an empty key is a key. In mode `fan-out` clients
  choose no partition: the checksum of a batch chooses the partition of all its records without a key. So a restart
  finds the same partition for a batch from the journal.
- A topic that gets copies has a rule of its own, with mode `rewrite` or `fan-out`. So clients' records go there with
  the proxy's sequences, as the copies do: a client's own sequences would collide with theirs. Its rule decides which
  partition a key has there. A record without a key goes to the partition that its client chose in the source, modulo
  the number of partitions there; in mode `fan-out` the checksum chooses the partition.
- Copies are not copied again, so there are no loops.
"""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ottla.codec.records import Records
from ottla.errors import ConfigurationError
from ottla.proxy.topic_rule import LEGAL_NAME, OF_STREAMS, Mode, TopicRule, parse_rule

if TYPE_CHECKING:
    from uuid import UUID

_REMEMBERED_TOPICS = 10_000
_REMEMBERED_RULES = 100
"""The proxy parses rules once, even if an operator switches between them."""


class TopicRules:
    """Finds the configured rule of a topic by its name."""

    def __init__(self, rules: Sequence[TopicRule]) -> None:
        self.change(rules)

    def change(self, rules: Sequence[TopicRule]) -> None:
        """Replace all rules."""
        self.all = tuple(rules)
        self.any_fan_out = any(rule.mode is Mode.FAN_OUT for rule in rules)
        """Whether any rule has mode `fan-out`."""
        self._patterns = [(re.compile(fnmatch.translate(rule.glob)), rule) for rule in rules]
        self.of = lru_cache(_REMEMBERED_TOPICS)(self._find)
        """The rule of a topic, or ``None``."""

    def _find(self, topic: str) -> TopicRule | None:
        if topic.startswith("__") or not LEGAL_NAME.fullmatch(topic):
            return None
        if OF_STREAMS.fullmatch(topic):
            return next((rule for _, rule in self._patterns if rule.glob == topic), None)
        return next((rule for pattern, rule in self._patterns if pattern.match(topic)), None)

    def rewrites(self, topic: str) -> bool:
        """Whether the proxy moves the records of a topic: modes `rewrite`, `fan-out` and `copy`."""
        mode = self.mode(topic)
        return mode is not None and mode.moves

    def fans_out(self, topic: str | None) -> bool:
        """Whether clients see one partition of a topic."""
        return self.any_fan_out and topic is not None and self.mode(topic) is Mode.FAN_OUT

    def copies(self, topic: str) -> tuple[str, ...]:
        """The topics that get copies of a topic's records."""
        rule = self.of(topic)
        return () if rule is None else rule.copies

    def mode(self, topic: str) -> Mode | None:
        """The mode of a topic; ``None``: no rule matches it."""
        rule = self.of(topic)
        return None if rule is None else rule.mode


def check_copies(rules: Sequence[TopicRule]) -> None:
    """Check the rules of the topics that get copies.

    Raises:
        ConfigurationError: one has no rule, the wrong mode, or is copied itself.
    """
    found = TopicRules(rules)
    for rule in rules:
        for topic in rule.copies:
            own = found.of(topic)
            where = f"the rule {rule.text!r} copies to {topic}"
            if own is None:
                raise ConfigurationError(f"{where}, which needs a rule of its own: add '{topic}=rewrite'")
            if own.mode is Mode.COPY:
                raise ConfigurationError(
                    f"{where}, which {own.text!r} copies, too, and copies are not copied: put '{topic}=rewrite' before "
                    "that rule, and name every topic that gets copies in one rule"
                )
            if not own.mode.moves:
                raise ConfigurationError(
                    f"{where}, which has mode {own.mode.value} ({own.text!r}): it needs mode rewrite or fan-out"
                )


class RuleHistory:
    """Remembers all rules over time, the newest last, and the rules of earlier proxies with the same state directory.

    If a topic's rule changes while a producer is open, upstream may know the producer's own sequences where the proxy
    now sends other ones, or the reverse, and could take new records for duplicates. So the producer must be reopened
    before it sends to that topic.
    """

    def __init__(self, rules: Sequence[TopicRule]) -> None:
        self.texts = [_texts(rules)]
        """Each as a tuple of its rules with their modes."""
        self._rules = [_parsed(texts) for texts in self.texts]

    def follow(self, earlier: Sequence[tuple[str, ...]]) -> None:
        """Continue the rules of earlier proxies; the last of them may be the rules of this one."""
        [now] = self.texts
        self.texts = [*earlier] if earlier and earlier[-1] == now else [*earlier, now]
        self._rules = [_parsed(texts) for texts in self.texts]

    def change(self, rules: Sequence[TopicRule]) -> None:
        """Add rules, unless the last ones have the same modes."""
        now = _texts(rules)
        if now != self.texts[-1]:
            self.texts.append(now)
            self._rules.append(_parsed(now))

    @property
    def newest(self) -> int:
        """The number of the current rules."""
        return len(self.texts) - 1

    def changed(self, topic: str, since: int) -> bool:
        """Whether rewriting of a topic was switched on or off since the rules number ``since``."""
        rewrites = self._rules[-1].rewrites(topic)
        return any(each.rewrites(topic) != rewrites for each in self._rules[since:-1])


def _texts(rules: Sequence[TopicRule]) -> tuple[str, ...]:
    return tuple(rule.text for rule in rules)


@lru_cache(_REMEMBERED_RULES)
def _parsed(texts: tuple[str, ...]) -> TopicRules:
    return TopicRules([parse_rule(text) for text in texts])


class Destination(NamedTuple):
    """A partition of upstream to which records go."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Routes:
    """How the keys of one topic map to partitions."""

    topic_id: "UUID"
    partitions: int
    """The pinned number."""
    partitioner: str
    fans_out: bool = False
    """Clients see one partition, so they have chosen none for records without a key."""

    def of_keyless_copies(self, partition: int, checksum: int) -> int:
        """The partition for copies of a batch's records without a key; see `of_keyless`."""
        return self.of_keyless(partition % self.partitions, checksum)

    def of_keyless(self, partition: int, checksum: int) -> int:
        """The partition for a batch's records without a key.

        Args:
            partition: where the client put them.
            checksum: of the batch.
        """
        return checksum % self.partitions if self.fans_out else partition

    def split(self, records: Records, partition: int) -> dict[int, Records]:
        """The records by destination partition; records without a key stay in ``partition``."""
        return records.split(self.partitioner, self.partitions, partition)


Copies = tuple[tuple[str, Routes], ...]
"""The topics that get copies of a batch, each with its routes."""


def divided(
    records: Records, place: Destination, checksum: int, routes: Routes, copies: Copies
) -> dict[Destination, Records]:
    """The records of a client's batch by destination; its own topic comes first. May run in a thread.

    Args:
        place: the partition that the client chose.
        checksum: of the batch.
    """
    keyless = routes.of_keyless(place.partition, checksum)
    own = routes.split(records, keyless)
    found = {Destination(place.topic, partition): part for partition, part in own.items()}
    for topic, there in copies:
        chosen = there.of_keyless_copies(place.partition, checksum)
        alike = (there.partitioner, there.partitions, chosen) == (routes.partitioner, routes.partitions, keyless)
        parts = own if alike else there.split(records, chosen)  # most copies: the division is most of the work
        found |= {Destination(topic, partition): part for partition, part in parts.items()}
    return found


def routes_of(rule: TopicRule, topic_id: "UUID", partitions: int) -> Routes:
    """The routes of a topic: with the partition count of its rule, or else this one."""
    return Routes(topic_id, rule.partitions or partitions, rule.partitioner, rule.mode is Mode.FAN_OUT)
