"""What ``.option(…)`` takes when rows are written: the names and meanings of Spark's own Kafka connector, and ours.

Rules:
- A job of the other connector changes the format's name and nothing else. What that refuses is refused.
- ``kafka.…`` are the names of Kafka's producer; the rest is in `ottla.spark.kafka_options`.

Source: KafkaSourceProvider.scala, kafkaParamsForProducer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.errors import ConfigurationError
from ottla.sdk.produce.options import ProducerOptions, compressors
from ottla.sdk.produce.partitioners import CHOOSERS, KEYED
from ottla.spark.kafka_options import PREFIX, ClientConfig, Names, read_client, warn
from ottla.spark.options import READING

_SPARKS = (
    "checkpointlocation",
    "queryname",
    "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms",
    "_asyncprogresstrackingoverridesinksupportcheck",
)
"""Of the query as a whole, which Spark hands to every sink."""
_FOR_READING = "it is for reading"
_SOURCE = "it is for reading: name the topic to write to in option topic"
_REFUSED = {
    "path": "topics are no paths: name the topic in option topic, and call save() or start() without one",
    **dict.fromkeys(("subscribe", "subscribePattern", "assign"), _SOURCE),
    "includeHeaders": "it is for reading: a column headers is written without it",
    "kafka.key.serializer": "keys are bytes or strings: encode the column key",
    "kafka.value.serializer": "values are bytes or strings: encode the column value, as in to_json(struct('*'))",
    "kafka.interceptor.classes": "interceptors are Java classes, which Python cannot load",
    "kafka.transactional.id": "rows are written at least once; exactly once, by transactions, is not there yet",
}
_NAMES = Names("writing", ("topic", "partitioner", "exactlyOnce"), dict.fromkeys(READING, _FOR_READING) | _REFUSED)


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
        ours, kafkas = _NAMES.split({name: value for name, value in given.items() if name.lower() not in _SPARKS})
        if ours.get("topic") == "":
            raise ConfigurationError("option topic is empty: name a topic, or leave it out if there is a column topic")
        _refuse_exactly_once(ours)
        return cls(_producer(kafkas, ours.get("partitioner")), ours.get("topic"))


def _refuse_exactly_once(options: Mapping[str, str]) -> None:
    wanted = options.get("exactlyOnce", "false").lower()
    if wanted not in ("false", "true"):
        raise ConfigurationError(f"exactlyOnce must be false or true, not {options['exactlyOnce']!r}")
    if wanted == "true":
        raise ConfigurationError("exactlyOnce=true is not there yet: leave it out, and rows are written at least once")


def _producer(kafkas: Mapping[str, str], partitioner: str | None) -> ProducerConfig:
    client, arguments = read_client(kafkas, "producer", "on writing")
    if partitioner is not None:
        if partitioner not in (*KEYED, *CHOOSERS):
            raise ConfigurationError(f"partitioner {partitioner!r} is not one of {', '.join((*KEYED, *CHOOSERS))}")
        if arguments.get("partitioner", partitioner) != partitioner:
            raise ConfigurationError(f"options partitioner and {PREFIX}partitioner.class contradict each other")
        arguments["partitioner"] = partitioner
    linger = arguments.get("linger", ProducerOptions().linger)
    limit = dict(client.options).get("delivery_timeout", math.inf)
    if linger >= limit:
        raise ConfigurationError(
            f"{PREFIX}linger.ms ({linger * 1000:g}) must be below {PREFIX}delivery.timeout.ms ({limit * 1000:g}): "
            "no row would be sent in time"
        )
    if arguments.get("acks") == 0:
        warn("with acks=0 no broker says whether it has stored a row: rows may be lost")
    return ProducerConfig(client, tuple(sorted(arguments.items())))
