"""The options for writing rows: names and meanings of Spark's own Kafka connector, and options of our own.

Rules:
- To move a job over from that connector, you change only the name of the format. Options that it refuses are refused
  here too.
- Names with ``kafka.`` are options of Kafka's producer; the rest is in `ottla.spark.kafka_options`.

Source: KafkaSourceProvider.scala, kafkaParamsForProducer.
"""

import math
from collections.abc import Mapping
from typing import Any

from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.partitioners import CHOOSERS, KEYED
from ottla.spark.kafka_options import PREFIX, ClientConfig, Names, read_client, warn
from ottla.spark.reading.read_options import READING

_SPARKS = (
    "checkpointlocation",
    "queryname",
    "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms",
    "_asyncprogresstrackingoverridesinksupportcheck",
)
"""Options of the query as a whole, which Spark passes to every sink."""
_FOR_READING = "it is a read option"
_SOURCE = "it is a read option: name the topic to write to in option topic"
_REFUSED = {
    "path": "topics are not paths: name the topic in option topic, and call save() or start() without a path",
    **dict.fromkeys(("subscribe", "subscribePattern", "assign"), _SOURCE),
    "includeHeaders": "it is a read option: a column headers is written without it",
    "kafka.key.serializer": "keys are bytes or strings: encode the column key",
    "kafka.value.serializer": "values are bytes or strings: encode the column value, as in to_json(struct('*'))",
    "kafka.interceptor.classes": "interceptors are Java classes, which Python cannot load",
    "kafka.transactional.id": "rows are written at least once; exactly-once writes with transactions are not supported",
}
_NAMES = Names("writing", ("topic", "partitioner", "exactlyOnce"), dict.fromkeys(READING, _FOR_READING) | _REFUSED)


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """How to reach the brokers, and how to send. Tasks with equal configurations share a producer.

    Attributes:
        arguments: names and values of arguments of `ottla.sdk.client.Client.producer`.
    """

    client: ClientConfig
    arguments: tuple[tuple[str, Any], ...] = ()

    @property
    def options(self) -> ProducerOptions:
        """The options of the producer."""
        return ProducerOptions(**dict(self.arguments))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a query that writes, checked as far as possible without a broker.

    Attributes:
        topic: the topic for all rows; ``None``: the column topic names it.
    """

    producer: ProducerConfig
    topic: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> "WriteOptions":
        """Parse the options that a user gave; names are case-insensitive.

        Raises:
            ConfigurationError: an option is unknown, missing, contradicts another, or has an invalid value.
        """
        ours, kafkas = _NAMES.split({name: value for name, value in given.items() if name.lower() not in _SPARKS})
        if ours.get("topic") == "":
            raise ConfigurationError("option topic is empty: name a topic, or leave the option out to use column topic")
        _refuse_exactly_once(ours)
        return cls(_producer(kafkas, ours.get("partitioner")), ours.get("topic"))


def _refuse_exactly_once(options: Mapping[str, str]) -> None:
    wanted = options.get("exactlyOnce", "false").lower()
    if wanted not in ("false", "true"):
        raise ConfigurationError(f"exactlyOnce must be false or true, not {options['exactlyOnce']!r}")
    if wanted == "true":
        raise ConfigurationError("exactlyOnce=true is not supported: leave it out to write rows at least once")


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
            f"{PREFIX}linger.ms ({linger * 1000:g}) must be less than {PREFIX}delivery.timeout.ms ({limit * 1000:g}), "
            "or rows time out before they are sent"
        )
    if arguments.get("acks") == 0:
        warn("with acks=0 the brokers do not confirm that a row is stored: rows may be lost")
    return ProducerConfig(client, tuple(sorted(arguments.items())))
