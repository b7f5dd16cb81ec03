"""What ``.option(…)`` takes when rows are written: the names and meanings of Spark's own Kafka connector, and ours.

Rules:
- A job of the other connector changes the format's name and nothing else. What that refuses is refused.
- ``kafka.…`` are the names of Kafka's producer, with the meanings of `ottla.sdk.kafka_config`: what only tunes the
  other client is passed over with a warning, what would change rows or promises is refused.
- Names are case-insensitive, as Spark hands them over.

Source: KafkaSourceProvider.scala, kafkaParamsForProducer.
"""

import difflib
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.errors import ConfigurationError
from ottla.sdk.kafka_security import is_security
from ottla.sdk.produce.options import ProducerOptions, compressors
from ottla.sdk.produce.partitioners import CHOOSERS, KEYED
from ottla.spark.options import READING, ClientConfig

log = logging.getLogger("ottla.spark")

_PREFIX = "kafka."
_BOOTSTRAP = "kafka.bootstrap.servers"
_OURS = ("topic", "partitioner", "exactlyOnce")
_SPARKS = ("checkpointlocation", "queryname")
"""Of the query as a whole, which Spark hands to every sink."""

_REFUSED = {
    "path": "topics are no paths: name the topic in option topic, and call save() or start() without one",
    "kafka.key.serializer": "keys are bytes or strings: encode the column key",
    "kafka.value.serializer": "values are bytes or strings: encode the column value, as in to_json(struct('*'))",
    "kafka.interceptor.classes": "interceptors are Java classes, which Python cannot load",
    "kafka.transactional.id": "rows are written at least once; exactly once, by transactions, is not there yet",
}


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """How to reach the brokers, and how to send; equal ones share a producer.

    Attributes:
        arguments: names and values as `ottla.sdk.client.Client.producer` takes them.
    """

    client: ClientConfig
    arguments: tuple[tuple[str, Any], ...] = ()

    @property
    def options(self) -> ProducerOptions:
        """What a producer is made with."""
        given = dict(self.arguments)
        acks = given.pop("acks", "all")
        compression, _ = compressors(given.pop("compression", "none"), given.pop("compression_level", None))
        return ProducerOptions(
            acks=-1 if acks == "all" else acks, compression=compression[0], compression_level=compression[1], **given
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one query that writes, checked as far as that is possible without a broker.

    Attributes:
        topic: where all rows go; ``None``: where the column topic says.
    """

    producer: ProducerConfig
    topic: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "WriteOptions":
        """The options that a user gave, by names in any case.

        Raises:
            ConfigurationError: one is unknown, missing, contradicts another, or has a value that cannot be.
        """
        ours: dict[str, str] = {}
        kafkas: dict[str, str] = {}
        for name, value in given.items():
            lower = name.lower()
            if lower in _REFUSED:
                raise ConfigurationError(f"option {name} cannot be used with format ottla: {_REFUSED[lower]}")
            if lower in READING:
                raise ConfigurationError(f"option {name} is for reading: name the topic to write to in option topic")
            if lower.startswith(_PREFIX):
                kafkas[lower.removeprefix(_PREFIX)] = value.strip()
            elif lower not in _SPARKS:
                ours[_spelt(name)] = value.strip()
        if ours.get("topic") == "":
            raise ConfigurationError("option topic is empty: name a topic, or leave it out if there is a column topic")
        _refuse_exactly_once(ours)
        return cls(_producer(kafkas, ours.get("partitioner")), ours.get("topic"))


def _spelt(name: str) -> str:
    for known in _OURS:
        if name.lower() == known.lower():
            return known
    close = difflib.get_close_matches(name, (*_OURS, _BOOTSTRAP), n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(_OURS)}, and {_PREFIX}… for Kafka's own"
    raise ConfigurationError(f"format ottla knows no option {name} for writing: {hint}")


def _refuse_exactly_once(options: Mapping[str, str]) -> None:
    wanted = options.get("exactlyOnce", "false").lower()
    if wanted not in ("false", "true"):
        raise ConfigurationError(f"exactlyOnce must be false or true, not {options['exactlyOnce']!r}")
    if wanted == "true":
        raise ConfigurationError("exactlyOnce=true is not there yet: leave it out, and rows are written at least once")


def _producer(given: Mapping[str, str], partitioner: str | None) -> ProducerConfig:
    """Of the names without their prefix."""
    from ottla.sdk.kafka_config import from_kafka_config  # on the driver alone: it brings trio, no thing for workers

    if not given.get("bootstrap.servers"):
        raise ConfigurationError(f"option {_BOOTSTRAP} is missing: host:port of a broker, or zeroconf://name")
    security = tuple(sorted((name, value) for name, value in given.items() if is_security(name)))
    names = {name: value for name, value in given.items() if not is_security(name) and _has_effect(name, value)}
    try:
        made = from_kafka_config(names, lenient=True)
    except ConfigurationError as error:
        raise ConfigurationError(f"options {_PREFIX}…: {error}") from None
    arguments = made.producer
    if partitioner is not None:
        if partitioner not in (*KEYED, *CHOOSERS):
            raise ConfigurationError(f"partitioner {partitioner!r} is not one of {', '.join((*KEYED, *CHOOSERS))}")
        if arguments.get("partitioner", partitioner) != partitioner:
            raise ConfigurationError(f"options partitioner and {_PREFIX}partitioner.class contradict each other")
        arguments["partitioner"] = partitioner
    linger, limit = arguments.get("linger", ProducerOptions().linger), made.get("delivery_timeout", math.inf)
    if linger >= limit:
        raise ConfigurationError(
            f"{_PREFIX}linger.ms ({linger * 1000:g}) must be below {_PREFIX}delivery.timeout.ms ({limit * 1000:g}): "
            "no row would be sent in time"
        )
    if arguments.get("acks") == 0:
        log.warning("with acks=0 no broker says whether it has stored a row: rows may be lost")
    bootstrap = made.pop("bootstrap")
    client = ClientConfig(bootstrap, tuple(sorted(made.items())), security)
    for name, why in client.secured().left_out.items():
        log.warning(f"option {_PREFIX}{name} has no effect: {why}", extra={"option": f"{_PREFIX}{name}"})
    return ProducerConfig(client, tuple(sorted(arguments.items())))


def _has_effect(name: str, value: str) -> bool:
    """Whether it is an option of producers; of consumers' it is said that they have no effect."""
    from ottla.sdk.kafka_config import MEANINGS, SAME, To, meaning

    what = meaning(name)
    if what is None:
        close = difflib.get_close_matches(name, (*MEANINGS, *SAME), n=1)
        hint = f"did you mean {_PREFIX}{close[0]}?" if close else "leave it out"
        raise ConfigurationError(f"Kafka's producer knows no option {_PREFIX}{name}: {hint}")
    if isinstance(what, To) and what.part == "consumer":
        log.warning(f"option {_PREFIX}{name} has no effect on writing", extra={"option": f"{_PREFIX}{name}"})
        return False
    return True
