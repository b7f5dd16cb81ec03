"""What read options and write options have in common: how names are matched, and Kafka's own names, `kafka.…`.

Rules:
- Names are case-insensitive, as Spark passes them.
- An unknown name is an error that suggests the name that was probably meant: a misspelt `startingOffsets` must not read
  a whole topic.
- Kafka's names have the meanings of `ottla.sdk.kafka_config`. An option that changes no row here only causes a warning:
  it tunes a different client, or is for the other direction. An option that would change rows, and that we do not
  support, is refused.
- A process gives the same warning once: Spark parses the options of a sink again for each micro-batch.
- Messages are for people who write options, not programs.

Source: KafkaSourceProvider.scala, kafkaParamsForDriver and kafkaParamsForProducer.
"""

import difflib
import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from typing import Any, Literal

from ottla.errors import ConfigurationError
from ottla.kafka_names import in_kafkas_names
from ottla.late_dataclass import dataclass
from ottla.sdk import mdns
from ottla.sdk.kafka_security import PROTOCOL, TUNING, Security, is_security, read_security
from ottla.sdk.options import Options, announced_name

log = logging.getLogger("ottla.spark")

PREFIX = "kafka."
_BOOTSTRAP = "bootstrap.servers"

_PARTITION_BYTES = 7 * 2**20
"""Bytes of one partition in a Fetch response, unless the user says otherwise. A task reads in bulk, and few large
responses cost the broker a quarter of what Kafka's default of 1 MiB costs. The client limits besides how much it reads
ahead, over all partitions. A connection keeps the buffers of two responses of this size, but only one buffer if they
are larger (`ottla.codec.inbox`).
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
"""Options that a program may rely on, but a query never does."""
_REFUSED = {
    "interceptors": "interceptors are objects of a program, and would change what is read or written",
    "partitioner.ignore.keys": "keys decide the partition, unless option partitioner says otherwise",
    "topic.blacklist": "say in subscribe, subscribePattern or assign what to read",
}
_FUNCTION = "it takes a function, and an option cannot be one"
_FOR_PROGRAMS = "it is for Python programs: the options for TLS and SASL are kafka.ssl.… and kafka.sasl.…"
_PROBABLE = 0.75
"""How similar two names must be for one to count as a misspelling of the other."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How to reach the brokers. Tasks with equal configurations share a client.

    Attributes:
        bootstrap: ``host:port``, or several separated by commas, or ``zeroconf://name``.
        options: names and values of arguments of `ottla.connect`.
        security: Kafka's names for TLS and SASL, with their values; files are read on the machine that connects.
    """

    bootstrap: str
    options: tuple[tuple[str, Any], ...] = ()
    security: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a client. Raises as `secured`."""
        return {"partition_max_bytes": _PARTITION_BYTES, **dict(self.options), **self.secured().arguments}

    def secured(self) -> Security:
        """Interpret the names for TLS and SASL.

        Raises:
            ConfigurationError: an option is invalid; says which, and shows no secret.
        """
        made = read_security(dict(self.security))
        if made.wrong:
            wrong = in_kafkas_names("; ".join(each.what for each in made.wrong))
            raise ConfigurationError(f"options {PREFIX}…: {wrong}")
        return made

    def found(self) -> "ClientConfig":
        """Return the configuration with the addresses that ``zeroconf://`` finds. Call it on the driver: executors may
        be in another network, without an answer, and need not search for the brokers again.

        Raises:
            BrokerUnreachable: no broker answered.
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
"""How long addresses found by zeroconf stay valid: Spark makes a stream's writer again for each micro-batch."""
_found: dict[ClientConfig, tuple[float, ClientConfig]] = {}
"""The configurations with addresses, and when they were found."""

NO_TABLES = "format ottla has no tables: CREATE TEMPORARY VIEW … USING ottla OPTIONS (…) creates a view"
_OF_TABLES = {"provider", "owner"}
"""Spark adds these to the options for CREATE TABLE, and only then."""
_said: set[str] = set()
"""The warnings that this process has already given."""
_silent = ContextVar("_silent", default=False)


def warn(text: str, **facts: str) -> None:
    """Log a warning, unless this process has already logged the same text."""
    if text not in _said and not _silent.get():
        _said.add(text)
        log.warning(text, extra=facts)


@contextmanager
def silent() -> Iterator[None]:
    """Suppress `warn`: the options are only being checked."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)


def warn_without_effect(name: str, where: str) -> None:
    """Warn that an option has no effect.

    Args:
        where: in which query, or why, as in "on writing".
    """
    warn(f"option {name} has no effect {where}", option=name)


@dataclass(frozen=True, slots=True)
class Names:
    """The option names that a query accepts.

    Attributes:
        use: "reading" or "writing", for messages.
        known: our names, and the names of Spark's own connector without `kafka.`.
        refused: names with the reason; Kafka's names have their prefix.
    """

    use: str
    known: tuple[str, ...]
    refused: Mapping[str, str]

    def split(self, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the options of `known`, spelt as there, and Kafka's options, in lower case and without their prefix.

        Raises:
            ConfigurationError: an option is refused, or unknown and without Kafka's prefix.
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
                raise ConfigurationError(f"format ottla has no option {name} for {self.use}: {self._hint(lower)}")
        return ours, kafkas

    def _hint(self, lower: str) -> str:
        """Suggest the name that may be meant by an unknown one."""
        from ottla.sdk.kafka_meanings import meaning

        spelling = {name.lower(): name for name in (*self.known, PREFIX + _BOOTSTRAP)}
        if is_security(lower) or meaning(lower) is not None:
            return f"did you mean {PREFIX}{lower}?"
        if close := difflib.get_close_matches(lower, spelling, 1, _PROBABLE):
            return f"did you mean {spelling[close[0]]}?"
        return f"the options are {', '.join(self.known)}, and {PREFIX}… for Kafka's own"


def known_names(kafkas: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of ``kafkas`` that Kafka's clients know; warn about the others, as Java's clients do.

    Raises:
        ConfigurationError: a name is similar to one of Kafka's, and probably misspelt.
    """
    from ottla.sdk.kafka_meanings import MEANINGS, SAME, meaning  # used on the driver only; workers do without it

    known = {}
    for name, value in kafkas.items():
        if is_security(name) or meaning(name) is not None:
            known[name] = value
        elif close := difflib.get_close_matches(name, (*MEANINGS, *SAME, PROTOCOL), 1, _PROBABLE):
            raise ConfigurationError(f"Kafka has no option {PREFIX}{name}: did you mean {PREFIX}{close[0]}?")
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
    """Return how to reach the brokers, and the arguments of a producer or a consumer.

    Args:
        kafkas: Kafka's names, without their prefix.
        where: in which query an option has no effect, as in "on writing".
        wanted: the arguments of this part that have an effect, by their names; ``None``: all of them.

    Raises:
        ConfigurationError: an option is misspelt, missing, contradicts another, or has an invalid value.
    """
    from ottla.sdk.kafka_config import understood

    if not kafkas.get(_BOOTSTRAP):
        raise ConfigurationError(f"option {PREFIX}{_BOOTSTRAP} is missing: give host:port, or zeroconf://name")
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
    """Whether to pass an option to the client. Warns if it has no effect, except if its value asks for just that.

    Raises:
        ConfigurationError: the option would change rows, and is not supported.
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
