"""What options for reading and for writing have in common: how names are found, and Kafka's own, `kafka.…`.

Rules:
- Names are case-insensitive, as Spark hands them over.
- A name that nobody knows is an error, with the one that was probably meant: a misspelt `startingOffsets` must not read
  a whole topic.
- Kafka's names have the meanings of `ottla.sdk.kafka_config`. One that changes no row here is passed over with a
  warning, as what tunes another client, or is for the other direction; one that would, and cannot be had, is refused.
- A warning is given once by a process: Spark has the options of a sink parsed again for each micro-batch.
- Messages are for people who write options, not programs.

Source: KafkaSourceProvider.scala, kafkaParamsForDriver and kafkaParamsForProducer.
"""

import difflib
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ottla.errors import ConfigurationError
from ottla.kafka_names import in_kafkas_names
from ottla.sdk import mdns
from ottla.sdk.kafka_security import PROTOCOL, TUNING, Security, is_security, read_security
from ottla.sdk.options import Options, announced_name

log = logging.getLogger("ottla.spark")

PREFIX = "kafka."
_BOOTSTRAP = "bootstrap.servers"

_PARTITION_BYTES = 7 * 2**20
"""Of a partition in one answer, unless the user says otherwise: a task reads in bulk, and few answers cost the broker a
quarter of what those of Kafka's default of 1 MiB do. What is read ahead is bounded besides, all partitions together. Of
answers of this size a connection keeps the memory of two, of larger ones that of one (`ottla.codec.inbox`).
"""

_IDLE = {
    "allow.auto.create.topics",
    "delivery.report.only.error",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "group.protocol",
    "group.protocol.type",
    "group.remote.assignor",
    "max.block.ms",
    "offset.store.method",
    "queuing.strategy",
    "share.acknowledgement.mode",
    "share.acquire.mode",
    "topic.metadata.propagation.max.ms",
}
"""What programs may rely on, and no query does."""
_REFUSED = {
    "interceptors": "interceptors are objects of a program, and would change what is read or written",
    "partitioner.ignore.keys": "keys decide the partition, unless option partitioner says otherwise",
    "topic.blacklist": "say in subscribe, subscribePattern or assign what to read",
}
_FUNCTION = "it takes a function, which no option can be"
_FOR_PROGRAMS = "it is for programs in Python: the options for TLS and SASL are kafka.ssl.… and kafka.sasl.…"
_PROBABLE = 0.75
"""How much a name must be like another to be taken for a misspelling of it."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How to reach the brokers; equal ones share a client.

    Attributes:
        bootstrap: ``host:port``, several separated by commas, or ``zeroconf://name``.
        options: names and values as `ottla.connect` takes them.
        security: Kafka's names for TLS and SASL, with their values; files are those of the machine that connects.
    """

    bootstrap: str
    options: tuple[tuple[str, Any], ...] = ()
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """What a client is made with. Raises as `secured`."""
        return {"partition_max_bytes": _PARTITION_BYTES, **dict(self.options), **self.secured().arguments}

    def secured(self) -> Security:
        """What is made of the names for TLS and SASL.

        Raises:
            ConfigurationError: they make no sense; says which, and shows no secret.
        """
        made = read_security(dict(self.security))
        if made.wrong:
            wrong = in_kafkas_names("; ".join(each.what for each in made.wrong))
            raise ConfigurationError(f"options {PREFIX}…: {wrong}")
        return made

    def found(self) -> "ClientConfig":
        """With the addresses that ``zeroconf://`` stands for: asked for on the driver, because executors may be in
        another network, where nobody answers, and need not find the brokers again.

        Raises:
            BrokerUnreachable: nobody answered.
        """
        announced, name = announced_name(self.bootstrap)
        if not announced:
            return self
        now = time.monotonic()
        for old in [each for each, (at, _) in _found.items() if now > at + FOUND_SECONDS]:
            del _found[old]
        if self not in _found:
            addresses = mdns.find(name, Options(**dict(self.options)).connect_timeout)
            _found[self] = time.monotonic(), replace(self, bootstrap=",".join(sorted(addresses)))
        return _found[self][1]


FOUND_SECONDS = 60.0
"""How long addresses count that were found by zeroconf: a stream has its writer made again for each micro-batch."""
_found: dict[ClientConfig, tuple[float, ClientConfig]] = {}
"""When they were found."""

NO_TABLES = "there are no tables of format ottla: CREATE TEMPORARY VIEW … USING ottla OPTIONS (…) makes a view"
_OF_TABLES = {"provider", "owner"}
"""What Spark hands over besides the options for CREATE TABLE, and in no other case."""
_said: set[str] = set()
"""The warnings that this process has given."""
_silent = ContextVar("_silent", default=False)


def warn(text: str, **facts: str) -> None:
    """Write a line, unless this process has written the same before."""
    if text not in _said and not _silent.get():
        _said.add(text)
        log.warning(text, extra=facts)


@contextmanager
def silent() -> Iterator[None]:
    """`warn` writes nothing: it is only looked whether something is right."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def warn_without_effect(name: str, where: str) -> None:
    """Say that an option has no effect.

    Args:
        where: on what, or why, as in "on writing".
    """
    warn(f"option {name} has no effect {where}", option=name)


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a query takes.

    Attributes:
        use: "reading" or "writing", for messages.
        known: ours, and those of the other connector without `kafka.`.
        refused: with the reason; names of Kafka's have the prefix.
    """

    use: str
    known: tuple[str, ...]
    refused: Mapping[str, str]

    def split(self, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """The options of `known`, spelt as there, and those of Kafka's, in lower case and without their prefix.

        Raises:
            ConfigurationError: one is refused, or, unless it may be one of Kafka's, not known.
        """
        spelling = {name.lower(): name for name in (*self.known, *self.refused)}
        ours: dict[str, str] = {}
        kafkas: dict[str, str] = {}
        if any(name.lower() in _OF_TABLES for name in given):
            raise ConfigurationError(NO_TABLES)
        for name, value in given.items():
            lower = name.lower()
            spelled = spelling.get(lower, name)
            if spelled in self.refused:
                raise ConfigurationError(f"option {spelled} cannot be used for {self.use}: {self.refused[spelled]}")
            if lower.startswith(PREFIX):
                kafkas[lower.removeprefix(PREFIX)] = value.strip()
            elif lower in spelling:
                ours[spelled] = value.strip()
            else:
                raise ConfigurationError(f"format ottla knows no option {name} for {self.use}: {self._hint(lower)}")
        return ours, kafkas

    def _hint(self, lower: str) -> str:
        """What may be meant by a name that is none."""
        from ottla.sdk.kafka_meanings import meaning

        spelling = {name.lower(): name for name in (*self.known, PREFIX + _BOOTSTRAP)}
        if is_security(lower) or meaning(lower) is not None:
            return f"did you mean {PREFIX}{lower}?"
        if close := difflib.get_close_matches(lower, spelling, 1, _PROBABLE):
            return f"did you mean {spelling[close[0]]}?"
        return f"there are {', '.join(self.known)}, and {PREFIX}… for Kafka's own"


def known_names(kafkas: Mapping[str, str]) -> dict[str, str]:
    """Those of ``kafkas`` that are names of Kafka's; warns of the others, as Java's clients do.

    Raises:
        ConfigurationError: one is like a name of Kafka's, and probably misspelt.
    """
    from ottla.sdk.kafka_meanings import MEANINGS, SAME, meaning  # on the driver alone: workers need nothing of it

    known = {}
    for name, value in kafkas.items():
        if is_security(name) or meaning(name) is not None:
            known[name] = value
        elif close := difflib.get_close_matches(name, (*MEANINGS, *SAME, PROTOCOL), 1, _PROBABLE):
            raise ConfigurationError(f"Kafka's clients know no option {PREFIX}{name}: did you mean {PREFIX}{close[0]}?")
        else:
            warn(f"option {PREFIX}{name} has no effect: Kafka's clients do not know it", option=f"{PREFIX}{name}")
    return known


def read_client(
    kafkas: Mapping[str, str],
    part: Literal["producer", "consumer"],
    where: str,
    *,
    wanted: Collection[str] | None = None,
) -> tuple[ClientConfig, dict[str, Any]]:
    """How to reach the brokers, and the arguments of a producer or a consumer.

    Args:
        kafkas: names of Kafka's, without their prefix.
        where: on what an option has no effect, as in "on writing".
        wanted: the names that have an effect, of those that stand for arguments of this part; ``None``: all.

    Raises:
        ConfigurationError: one is misspelt, missing, contradicts another, or has a value that cannot be.
    """
    from ottla.sdk.kafka_config import understood

    if not kafkas.get(_BOOTSTRAP):
        raise ConfigurationError(f"option {PREFIX}{_BOOTSTRAP} is missing: host:port of a broker, or zeroconf://name")
    known = known_names(kafkas)
    taken = {name: value for name, value in known.items() if _is_taken(name, value, part, where, wanted)}
    security = {name: taken.pop(name) for name in list(taken) if is_security(name)}
    try:
        made = understood(taken)
    except ConfigurationError as error:
        raise ConfigurationError(f"options {PREFIX}…: {error}") from None
    client = ClientConfig(made.pop("bootstrap"), tuple(sorted(made.items())), tuple(sorted(security.items())))
    for name, why in (made.left_out | client.secured().left_out).items():
        warn(f"option {PREFIX}{name} has no effect: {why}", option=f"{PREFIX}{name}")
    return client, made.part(part)


def _is_taken(name: str, value: str, part: str, where: str, wanted: Collection[str] | None) -> bool:
    """Whether a client is given it; says where it has no effect, unless that is what it asks for.

    Raises:
        ConfigurationError: it would have one, and cannot have it.
    """
    from ottla.sdk.kafka_meanings import SAME, No, Only, To, meaning, side

    option, same = PREFIX + name, SAME.get(name, name)
    has_effect = side(name) in (None, part) and name not in TUNING and same not in _IDLE
    match meaning(name):
        case To(part=of) if of == part and wanted is not None and same not in wanted:
            has_effect = False
        case Only(values=values) as what:
            if value.lower() in values:
                return False
            if has_effect and (not what.idle or value in what.needed):
                can = " or ".join(values)
                raise ConfigurationError(f"option {option} can only be {can}: {_REFUSED.get(same, what.why)}")
            has_effect = False
        case No() as what:
            if has_effect and not what.idle:
                why = _FUNCTION if same.endswith("_cb") else _FOR_PROGRAMS if same.startswith("ssl_") else what.why
                raise ConfigurationError(f"option {option} cannot be used: {_REFUSED.get(same, why)}")
            has_effect = False
    if not has_effect:
        warn_without_effect(option, where)
    return has_effect
