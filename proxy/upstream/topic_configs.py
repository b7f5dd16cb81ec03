"""Knows the configuration of rewritten topics that decides which records upstream accepts.

Rules:
- The proxy asks upstream once before the first records of a topic, and again in the background when the answer is old.
- If upstream does not tell (the proxy's user may not describe configurations), the topic counts as without limits: its
  brokers judge alone, as before. The log says so once.

Source: TopicConfig.java; LogValidator.java; UnifiedLog.java.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.errors import UnknownTopicOrPartition
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.topic_config_requests import AFTER, BEFORE, CLEANUP, DIFFERENCE, LARGEST, TYPE

if TYPE_CHECKING:
    from uuid import UUID

log = logging.getLogger("ottla.proxy")

REFRESH = 60.0
"""Seconds after which the proxy asks again."""
AGAIN = 1.0
"""Seconds after which it asks again if a broker did not know the topic."""
_NO_LIMIT = 2**63 - 1

Values = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Limits:
    """The demands of a topic on records; by default there are none.

    Attributes:
        keyed: every record needs a key, because the topic is compacted.
        before_max, after_max: the most milliseconds from a record's time to the broker's, and the other way round.
        largest: the most bytes of a batch.
    """

    keyed: bool = False
    before_max: int = _NO_LIMIT
    after_max: int = _NO_LIMIT
    largest: int = _NO_LIMIT


NO_LIMITS = Limits()


def limits_of(values: Values) -> Limits:
    """The limits that a topic's configuration states; brokers before 3.6 have one limit for both kinds of times."""

    def number(name: str, default: int) -> int:
        try:
            return int(values.get(name) or default)
        except ValueError:
            return default

    both = number(DIFFERENCE, _NO_LIMIT)
    before, after = number(BEFORE, both), number(AFTER, both)
    if values.get(TYPE) == "LogAppendTime":  # brokers replace the times
        before = after = _NO_LIMIT
    keyed = "compact" in (values.get(CLEANUP) or "").replace(" ", "").split(",")
    return Limits(keyed, before, after, number(LARGEST, _NO_LIMIT))


@dataclass(frozen=True, slots=True)
class _Known:
    topic_id: "UUID"
    limits: Limits
    since: float


class TopicConfigs:
    """Asks for the limits of topics, and keeps them."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._known: dict[str, _Known] = {}
        self._asked: dict[str, UUID] = {}
        """Topic -> its id at the open question."""
        self._silent = False
        """The log says that upstream does not tell."""

    def is_known(self, topic: str, topic_id: "UUID") -> bool:
        """Whether upstream has told the limits of a topic with this id, or that it does not tell."""
        known = self._known.get(topic)
        return known is not None and known.topic_id == topic_id

    def request(self, topic: str, topic_id: "UUID", then: Callable[[float], None]) -> None:
        """Ask for the limits of a topic, and call ``then``, unless it has been asked for already."""
        if self._asked.get(topic) == topic_id:
            return

        def told(values: Values | None, why: str, now: float) -> None:
            if self._asked.get(topic) == topic_id:
                del self._asked[topic]
            unknown = why == UnknownTopicOrPartition().name  # this broker does not know the topic yet
            limits = NO_LIMITS if values is None else limits_of(values)
            self._known[topic] = _Known(topic_id, limits, now - REFRESH + AGAIN if unknown else now)
            if values is None and not unknown and not self._silent:
                self._silent = True
                facts = {"topic": topic, "why": why}
                log.warning("topic configuration unknown, only brokers judge records", extra=facts)
            then(now)

        self._control.configs.request(topic, told)
        self._asked[topic] = topic_id  # last: after a bug, the next request asks again

    def of(self, topic: str, now: float) -> Limits:
        """The limits of a topic; old ones are refreshed in the background."""
        known = self._known.get(topic)
        if known is None:
            return NO_LIMITS
        if now >= known.since + REFRESH and topic not in self._asked:  # or the topic may have been replaced
            self.request(topic, known.topic_id, lambda now: None)
        return known.limits
