"""The rule of a topic, as the operator writes it."""

import re
from dataclasses import dataclass
from enum import Enum

from ottla.codec.partitioners import PARTITIONERS
from ottla.errors import ConfigurationError

DEFAULT_PARTITIONER = "murmur2"


class Mode(Enum):
    """How the proxy handles the records of a topic."""

    OBSERVE = "observe"
    """Records pass unchanged; keys in another partition than the partitioner chooses are counted."""
    REJECT = "reject"
    """Batches with a key in another partition than the partitioner chooses are refused; all others pass unchanged."""
    REWRITE = "rewrite"
    """Records with a key go to the partition that the partitioner chooses."""
    FAN_OUT = "fan-out"
    """Clients see one partition, to which they can only write; its records are spread as in mode `rewrite`."""

    @property
    def moves(self) -> bool:
        """Whether the proxy itself sends the records to the partitions of their keys."""
        return self in (Mode.REWRITE, Mode.FAN_OUT)


@dataclass(frozen=True, kw_only=True)
class TopicRule:
    """``'GLOB=MODE[:PARTITIONER[:PARTITIONS]]'``: how the proxy handles topics whose names match.

    Raises:
        ConfigurationError: the glob is empty, the partitioner unknown, or the number of partitions is not
            1 to 2147483647.
    """

    glob: str
    """As in a shell: ``*``, ``?``, ``[a-z]``; case-sensitive. Internal topics of Kafka Streams match their full name
    only."""
    mode: Mode
    partitioner: str = DEFAULT_PARTITIONER
    partitions: int | None = None
    """How many partitions keys go to; ``None``: the partition count when the proxy first sees the topic."""

    def __post_init__(self) -> None:
        if not self.glob:
            raise ConfigurationError("a topic rule begins with the topics' name or glob, as in 'flights=rewrite'")
        if self.mode is not Mode.OBSERVE and self.glob.startswith("__"):
            raise ConfigurationError(
                f"{self.glob!r}: topics that begin with __ are the brokers' own: no rule applies to them"
            )
        if self.partitioner not in PARTITIONERS:
            known = ", ".join(PARTITIONERS)
            raise ConfigurationError(f"partitioner {self.partitioner!r} of topic {self.glob!r} is not one of {known}")
        if self.partitions is not None and not 1 <= self.partitions < 2**31:
            raise ConfigurationError(f"topic {self.glob!r} must have 1 to 2147483647 partitions, not {self.partitions}")


def parse_rule(text: str) -> TopicRule:
    """Parse a rule ``'GLOB=MODE[:PARTITIONER[:PARTITIONS]]'``.

    For example ``'flights=rewrite'``, ``'audit-*=observe:crc32'`` or, with the default partitioner,
    ``'flights=rewrite::6'``.

    Raises:
        ConfigurationError: the text is not a rule; the message shows the syntax.
    """
    glob, equals, treatment = text.rpartition("=")
    if not equals:
        raise ConfigurationError(
            f"{text!r} is not a topic rule: write GLOB=MODE[:PARTITIONER[:PARTITIONS]], as in 'flights=rewrite'"
        )
    return rule_of(glob.strip(), treatment)


def rule_of(glob: str, treatment: str) -> TopicRule:
    mode, *rest = treatment.strip().split(":", 2)
    try:
        chosen = Mode(mode)
    except ValueError:
        *known, last = (each.value for each in Mode)
        raise ConfigurationError(f"mode {mode!r} of topic {glob!r} is not {', '.join(known)} or {last}") from None
    if len(rest) < 2:
        return TopicRule(glob=glob, mode=chosen, partitioner=rest[0] if rest else DEFAULT_PARTITIONER)
    partitioner, partitions = rest
    if not re.fullmatch("[0-9]{1,10}", partitions):
        raise ConfigurationError(
            f"{partitions!r:.100} is not a number of partitions of topic {glob!r}, as in 'rewrite::6'"
        )
    return TopicRule(glob=glob, mode=chosen, partitioner=partitioner or DEFAULT_PARTITIONER, partitions=int(partitions))
