"""Kafka's configuration names and their meaning here: tables of Java's, librdkafka's and confluent-kafka's names.

Rules:
- Each name in a table is one of: an option of ottla (`To`), a fixed value (`Only`), or no option at all (`No`).
- An option's declaration has Kafka's names for it (`ottla.sdk.options.option`); the tables here have all other names.
- A converter turns Kafka's value into ottla's: values may be strings, and milliseconds become seconds.
- `ottla.from_kafka_config` reads whole configurations with it; errors about unknown options name ottla's option.

Source: ProducerConfig.java, ConsumerConfig.java, AdminClientConfig.java; librdkafka's CONFIGURATION.md.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal

from ottla.late_dataclass import dataclass
from ottla.sdk.consume.options import ConsumerOptions
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.kafka_security import is_security
from ottla.sdk.kafka_values import boolean, level, number
from ottla.sdk.options import ClientOptions, kafka_names
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.share.options import ShareConsumerOptions

Part = Literal["client", "producer", "consumer", "share_consumer"]

# -- what names mean -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class To:
    """The name sets an option of a part."""

    part: Part
    option: str
    convert: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Only:
    """The name can have these values, which describe ottla's behaviour; others fail, with ``why``, or are ``idle``.

    Attributes:
        needed: values that a program relies on, so they are not ``idle`` even if others are.
    """

    values: tuple[str, ...]
    why: str
    idle: bool = False
    needed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class No:
    """The name has no meaning here, because of ``why``; if it is ``idle``, no program notices that it is left out."""

    why: str
    idle: bool = False


_LATER = "not yet"
JVM = "it names Java classes, which Python cannot load"
_WRITES = "use client.producer(key_serializer=…, value_serializer=…) with functions"
_READS = "keys and values are bytes: decode them yourself"
_SECURITY = "use tls= and sasl= of connect"
_METRICS = "metrics come from client.metrics()"
_SOCKETS = "the operating system sizes socket buffers"
_BATCHES = "the consumer yields batches, which max.poll.records bounds"
_PARTITIONER = "use client.producer(partitioner=…) for anything else"
_RETRIES = "requests are retried until delivery.timeout.ms or default.api.timeout.ms has passed, if that is safe"
_NEGOTIATED = "versions are always negotiated"
_LOGGED = 'set the level of logging.getLogger("ottla.sdk")'
_RETIRED = "librdkafka itself ignores it by now"
_INNER = "it tunes the internals of librdkafka"
_SYSTEM = "Python and trio handle sockets and files"
_DELIVERY = "use await producer.send_soon(…, on_delivery=…)"
_REBALANCES = "use client.consumer(listener=…), with assigned, revoked and lost"
_BACKOFF = "retry.backoff.ms is the pause before any retry"

Meaning = To | Only | No


def _declared(part: Part, *options: type[Any]) -> dict[str, Meaning]:
    """Kafka's names in the declarations of options, which are dataclasses."""
    declared = [each for some in options for each in fields(some)]
    return {name: To(part, each.name, convert) for each in declared for name, convert in kafka_names(each).items()}


_CLIENTS = _declared("client", ClientOptions)
_OF_PRODUCERS = {name: _CLIENTS.pop(name) for name in ("delivery.timeout.ms", "max.request.size")}
"""Ottla's client has these options, but in Kafka only producers do."""
_OF_CONSUMERS = {
    name: _CLIENTS.pop(name) for name in ("fetch.max.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes")
}
"""Ottla's client has these options, but in Kafka only consumers do."""

CLIENT: dict[str, Meaning] = {
    **_CLIENTS,
    "socket.connection.setup.timeout.max.ms": No("it is three times socket.connection.setup.timeout.ms", idle=True),
    "bootstrap.controllers": No("ottla connects to brokers, not to controllers"),
    "client.dns.lookup": Only(("use_all_dns_ips",), "all addresses of a name are tried", idle=True),
    "config.providers": No(JVM),
    "enable.metrics.push": Only(("false",), f"pushing metrics to brokers (KIP-714) is {_LATER} possible", idle=True),
    "interceptor.classes": No(
        f"{JVM}; pass objects to client.producer(interceptors=…), client.consumer(interceptors=…)"
    ),
    "metadata.recovery.strategy": Only(("rebootstrap",), "the bootstrap addresses are always tried as well", idle=True),
    "metadata.recovery.rebootstrap.trigger.ms": No("the bootstrap addresses are always tried as well", idle=True),
    "metric.reporters": No(f"{_METRICS}, or by ottla.sdk.prometheus", idle=True),
    "metrics.num.samples": No(_METRICS, idle=True),
    "metrics.recording.level": No(_METRICS, idle=True),
    "metrics.sample.window.ms": No(_METRICS, idle=True),
    "receive.buffer.bytes": No(_SOCKETS, idle=True),
    "send.buffer.bytes": No(_SOCKETS, idle=True),
    "retries": Only(("2147483647",), _RETRIES, idle=True, needed=("0",)),
    "security.providers": No(JVM),
}

PRODUCER: dict[str, Meaning] = {
    **_declared("producer", ProducerOptions),
    **_OF_PRODUCERS,
    "compression.gzip.level": To("producer", "gzip", level),
    "compression.lz4.level": To("producer", "lz4", number),
    "compression.zstd.level": To("producer", "zstd", number),
    "key.serializer": No(f"{JVM}; {_WRITES}", idle=True),
    "value.serializer": No(f"{JVM}; {_WRITES}", idle=True),
    "max.block.ms": No(
        "put a timeout around the call that waits: with trio.fail_after(seconds): await producer.send_soon(…)"
    ),
    "max.in.flight.requests.per.connection": Only(
        ("5",),
        "up to five batches of a partition are in flight, and retries keep their order",
        idle=True,
    ),
    "metadata.max.idle.ms": No("a topic's metadata are refreshed for as long as it is used", idle=True),
    "partitioner.adaptive.partitioning.enable": Only(
        ("true",), "keyless records go to partitions with short queues", idle=True
    ),
    "partitioner.availability.timeout.ms": No("keyless records go to partitions with short queues", idle=True),
    "partitioner.ignore.keys": Only(("false",), f"keys decide the partition; {_PARTITIONER}"),
    "transaction.two.phase.commit.enable": Only(("false",), "ottla does not have two-phase commit (KIP-939) yet"),
}

CONSUMER: dict[str, Meaning] = {
    **_declared("share_consumer", ShareConsumerOptions),
    **_declared("consumer", ConsumerOptions, MemberOptions),
    **_OF_CONSUMERS,
    "enable.auto.commit": To("consumer", "enable_auto_commit", boolean),
    "allow.auto.create.topics": Only(("false",), "reading a topic does not create it"),
    "check.crcs": Only(("true",), "checksums are always checked", idle=True),
    "exclude.internal.topics": Only(("true",), "a pattern matches no internal topics; name them to read them"),
    "fetch.min.bytes": Only(("1",), "the broker answers a Fetch as soon as there is a record", idle=True),
    "internal.throw.on.fetch.stable.offset.unsupported": No("it is internal to Java's consumer", idle=True),
    "key.deserializer": No(f"{JVM}; {_READS}", idle=True),
    "value.deserializer": No(f"{JVM}; {_READS}", idle=True),
}

LIBRDKAFKA: dict[str, Meaning] = {
    "api.version.request": Only(("true",), _NEGOTIATED, idle=True),
    "api.version.fallback.ms": No(_NEGOTIATED, idle=True),
    "broker.version.fallback": No(_NEGOTIATED, idle=True),
    "debug": No(_LOGGED, idle=True),
    "log_level": No(_LOGGED, idle=True),
    "batch.num.messages": No("batch.size bounds a batch, in bytes", idle=True),
    "enable.auto.offset.store": Only(("true",), "a batch counts as processed when you ask for the next one"),
    "enable.partition.eof": Only(("false",), "consumer.lag says how much is left"),
    "queue.buffering.max.messages": No("buffer.memory bounds the buffer, in bytes", idle=True),
    "queued.min.messages": No("the consumer fetches ahead as much as queued.max.messages.kbytes allows", idle=True),
    "socket.keepalive.enable": No("request timeouts detect dead connections", idle=True),
    "socket.nagle.disable": Only(("true",), "TCP_NODELAY is always set", idle=True),
    "statistics.interval.ms": No(_METRICS, idle=True),
    "topic.metadata.refresh.fast.cnt": No(_RETIRED, idle=True),
    "topic.metadata.refresh.fast.interval.ms": No(_BACKOFF, idle=True),
    "topic.metadata.refresh.sparse": Only(("true",), "only metadata of topics in use are requested", idle=True),
    "topic.metadata.propagation.max.ms": No("default.api.timeout.ms bounds the wait for an unknown topic"),
    "topic.blacklist": No("use client.consumer(pattern=…, deny=…)"),
    "api.version.request.timeout.ms": No("request.timeout.ms bounds every request", idle=True),
    "broker.address.family": Only(("any",), "all addresses of a name are tried", idle=True),
    "broker.address.ttl": No("names are looked up for each connection", idle=True),
    "builtin.features": No("errors name every feature that is missing here", idle=True),
    "consume.callback.max.messages": No(_BATCHES, idle=True),
    "coordinator.query.interval.ms": No("the client looks for a coordinator as soon as it loses one", idle=True),
    "delivery.report.only.error": Only(("false",), "on_delivery is called for every record"),
    "enable.gapless.guarantee": Only(("false",), "a failed record does not stop those behind it"),
    "enable.random.seed": No(_INNER, idle=True),
    "enabled_events": No(_INNER, idle=True),
    "fetch.error.backoff.ms": No(_BACKOFF, idle=True),
    "fetch.queue.backoff.ms": No("fetching continues as soon as the buffer has space", idle=True),
    "group.protocol.type": Only(("consumer",), "ottla has groups of consumers only"),
    "interceptors": No("use client.producer(interceptors=…), client.consumer(interceptors=…)"),
    "internal.termination.signal": No(_INNER, idle=True),
    "log.connection.close": No(_LOGGED, idle=True),
    "log.queue": No(_LOGGED, idle=True),
    "log.thread.name": No(_LOGGED, idle=True),
    "message.copy.max.bytes": No(_INNER, idle=True),
    "offset.store.method": Only(("broker",), "the group's coordinator stores offsets"),
    "offset.store.path": No(_RETIRED, idle=True),
    "offset.store.sync.interval.ms": No(_RETIRED, idle=True),
    "opaque": No("use a Python closure instead", idle=True),
    "plugin.library.paths": No("there are no plugins; see interceptors"),
    "produce.offset.report": No(_RETIRED, idle=True),
    "queue.buffering.backpressure.threshold": No(_INNER, idle=True),
    "queuing.strategy": Only(("fifo",), "records of a partition stay in order"),
    "receive.message.max.bytes": No("fetch.max.bytes bounds the size of a response", idle=True),
    "reconnect.backoff.jitter.ms": No(_RETIRED, idle=True),
    "socket.blocking.max.ms": No(_RETIRED, idle=True),
    "socket.max.fails": No("a connection is closed when one of its requests times out", idle=True),
    "sticky.partitioning.linger.ms": No("keyless records change partition with the next batch", idle=True),
    "background_event_cb": No("errors are raised by the calls that they concern"),
    "closesocket_cb": No(_SYSTEM),
    "connect_cb": No(_SYSTEM),
    "consume_cb": No("use async for batch in consumer"),
    "default_topic_conf": No("put its names next to the others"),
    "dr_cb": No(_DELIVERY),
    "dr_msg_cb": No(_DELIVERY),
    "error_cb": No("errors are raised by the calls that they concern, and client.explain() says why a call waits"),
    "log_cb": No('add a handler to logging.getLogger("ottla.sdk")'),
    "msg_order_cmp": No("records of a partition stay in order"),
    "oauthbearer_token_refresh_cb": No(_SECURITY),
    "offset_commit_cb": No("use client.consumer(interceptors=…), with on_commit"),
    "open_cb": No(_SYSTEM),
    "partitioner_cb": No("use client.producer(partitioner=…) with a function"),
    "rebalance_cb": No(_REBALANCES),
    "resolve_cb": No(_SYSTEM),
    "socket_cb": No(_SYSTEM),
    "stats_cb": No(_METRICS),
    "throttle_cb": No(_METRICS),
}

SAME: dict[str, str] = {
    "auto.commit.enable": "enable.auto.commit",
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "default.topic.config": "default_topic_conf",
    "logger": "log_cb",
    "oauth_cb": "oauthbearer_token_refresh_cb",
    "on_commit": "offset_commit_cb",
    "on_delivery": "dr_cb",
}
"""Synonyms: librdkafka's, and at the end confluent-kafka's."""

UNITED: dict[str, str] = {
    "enable_auto_commit": "auto_commit",
    "gzip": "compression_level",
    "lz4": "compression_level",
    "zstd": "compression_level",
}
"""Options that several names decide together, by the option that each name sets on its own."""

MEANINGS: dict[str, Meaning] = CLIENT | PRODUCER | CONSUMER | LIBRDKAFKA


def meaning(name: str) -> Meaning | None:
    """The meaning of one of Kafka's names here; ``None`` if the name is unknown."""
    if name.startswith("ssl_"):
        return No(_SECURITY)
    return MEANINGS.get(SAME.get(name, name))


def side(name: str) -> Part | None:
    """The only part that has this name, producer or consumer; ``None`` if both have it, or if it is unknown."""
    name = SAME.get(name, name)
    if name in PRODUCER or name in CONSUMER:
        return "producer" if name in PRODUCER else "consumer"
    what = MEANINGS.get(name)
    return what.part if isinstance(what, To) and what.part != "client" else None


def is_about_connections(name: str) -> bool | None:
    """Whether a name of Kafka's is about connecting; ``None`` if it is unknown."""
    if is_security(name):
        return True
    what = meaning(name)
    return None if what is None else isinstance(what, To) and what.part == "client"
