"""Which topics are treated how, and where a key goes.

Rules:
- The first rule whose glob matches counts. Topics whose names begin with ``__`` are Kafka's own and match none, nor do
  names that no topic can have.
- The number of partitions is pinned when a rewritten topic is first seen: were it to follow a growing topic, every key
  would move. Only a topic that was deleted and made again (another topic id) gets a new pin. A restart forgets the pin,
  so a rule may state the number. Records of a topic that has fewer partitions than that are refused.
- A record without a key stays where its client put it; an empty key is a key.
"""

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ottla.codec.records import Records
from ottla.proxy.config import Mode, TopicRule, parse_rule

if TYPE_CHECKING:
    from uuid import UUID

_REMEMBERED_TOPICS = 10_000
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Names of topics. Source: Topic.java."""


class TopicRules:
    """The configured rules, asked by topic name."""

    def __init__(self, rules: Sequence[TopicRule]) -> None:
        self._rules = [(re.compile(fnmatch.translate(rule.glob)), rule) for rule in rules]
        self.of = lru_cache(_REMEMBERED_TOPICS)(self._find)
        """The rule of a topic, or ``None``."""

    def _find(self, topic: str) -> TopicRule | None:
        if topic.startswith("__") or not _LEGAL_NAME.fullmatch(topic):
            return None
        return next((rule for pattern, rule in self._rules if pattern.match(topic)), None)

    def rewrites(self, topic: str) -> bool:
        rule = self.of(topic)
        return rule is not None and rule.mode is Mode.REWRITE


class RuleHistory:
    """The rules that this proxy, and those before it on the same state, were given, the newest last.

    A producer that was open when the rule of a topic changed may have numbered records of that topic itself, where the
    proxy would number them now, or the other way round: upstream could take new records for old ones. So it has to be
    opened again before it sends to that topic.
    """

    def __init__(self, rules: Sequence[TopicRule], earlier: Sequence[tuple[str, ...]] = ()) -> None:
        now = tuple(f"{rule.glob}={rule.mode.value}" for rule in rules)
        self.texts = [*earlier] if earlier and earlier[-1] == now else [*earlier, now]
        """Each as its rules with their modes."""
        self._rules = [TopicRules([parse_rule(text) for text in texts]) for texts in self.texts]

    @property
    def newest(self) -> int:
        """The number of those in force."""
        return len(self.texts) - 1

    def changed(self, topic: str, since: int) -> bool:
        """Whether a topic is rewritten now and was not at any time since the rules number ``since``, or reversely."""
        rewrites = self._rules[-1].rewrites(topic)
        return any(each.rewrites(topic) != rewrites for each in self._rules[since:-1])


@dataclass(frozen=True, slots=True)
class Routes:
    """Where the keys of one topic go."""

    topic_id: "UUID"
    partitions: int
    """The pinned number."""
    partitioner: str

    def split(self, records: Records, partition: int) -> dict[int, Records]:
        """The records by where they go; those without a key to the ``partition`` for which they came."""
        return records.split(self.partitioner, self.partitions, partition)


def routes_of(rule: TopicRule, topic_id: "UUID", partitions: int) -> Routes:
    """The routes of a topic with so many partitions, unless its rule states another number."""
    return Routes(topic_id, rule.partitions or partitions, rule.partitioner)
