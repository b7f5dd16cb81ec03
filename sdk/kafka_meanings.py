"""Kafka's configuration names and their meaning here: a table of Java's, librdkafka's and confluent-kafka's names.

Rules:
- Each name in a table is one of: an option of ottla (`To`), a fixed value (`Only`), or no option at all (`No`).
- A converter turns Kafka's value into ottla's: values may be strings, and milliseconds become seconds.
- `ottla.from_kafka_config` reads whole configurations with it; errors about unknown options name ottla's option.

Source: ProducerConfig.java, ConsumerConfig.java, AdminClientConfig.java; librdkafka's CONFIGURATION.md.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from ottla.errors import ConfigurationError
from ottla.sdk.kafka_security import is_security
from ottla.sdk.options import MOST

Part = Literal["client", "producer", "consumer"]

# -- values ----------------------------------------------------------------------------------------------------------


def as_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value).strip()


def _number(value: Any) -> int:
    try:
        return int(as_text(value))
    except ValueError:
        raise ConfigurationError(f"{value!r} is not an integer") from None


def _seconds(value: Any) -> float:
    """Milliseconds to seconds; librdkafka accepts fractions, too."""
    try:
        number = float(as_text(value))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigurationError(f"{value!r} is not a number of milliseconds")
    return number / 1000


def _seconds_or_never(value: Any) -> float:
    return math.inf if as_text(value) in ("-1", "0") else _seconds(value)


def _seconds_or_longest(value: Any) -> float:
    return min(_seconds_or_never(value), MOST / 1000)


def _seconds_or_as_long_as_it_takes(value: Any) -> float:
    """For librdkafka's message.timeout.ms; Java's delivery.timeout.ms, a synonym here, cannot be 0."""
    return _seconds(value) or MOST / 1000


def _pause(value: Any) -> float:
    if not (seconds := _seconds(value)):
        raise ConfigurationError("0 would mean retrying without a pause: the minimum is 1")
    return seconds


def _patience(value: Any) -> float:
    if not (seconds := _seconds(value)):
        raise ConfigurationError("0 would leave no time for anything: the minimum is 1")
    return seconds


def _interval(value: Any) -> float:
    if not (seconds := _seconds(value)):
        raise ConfigurationError(
            "0 means at every poll to Java and never to librdkafka: use 1, or enable.auto.commit=false"
        )
    return seconds


def _size(value: Any) -> int:
    """A limit that always lets one record, or one batch, through: 0 means the same as 1."""
    return 1 if _number(value) == 0 else _number(value)


def _boolean(value: Any) -> bool:
    known = {"true": True, "false": False, "1": True, "0": False}.get(as_text(value).lower())
    if known is None:
        raise ConfigurationError(f"{value!r} is neither true nor false")
    return known


def _level(value: Any) -> int | None:
    return None if as_text(value) == "-1" else _number(value)  # -1: the default of the codec's library


def _kilobytes(value: Any) -> int:
    return _number(value) * 1024


def _servers(value: Any) -> str:
    if not all(isinstance(each, str) for each in (value if isinstance(value, list | tuple) else [value])):
        raise ConfigurationError(f"{value!r} is neither host:port nor a list of them")
    return as_text(value).replace("PLAINTEXT://", "")


def _acks(value: Any) -> str | int:
    return "all" if as_text(value).lower() in ("all", "-1") else _number(value)


def _one_of(choices: Mapping[str, str]) -> Callable[[Any], str]:
    """A converter for case-insensitive words; of the name of a Java class only the last part counts."""

    def convert(value: Any) -> str:
        word = as_text(value).rpartition(".")[2].lower()
        if word not in choices:
            raise ConfigurationError(f"{value!r} is not one of {', '.join(choices)}")
        return choices[word]

    return convert


_assignor = _one_of(
    {
        "range": "range",
        "rangeassignor": "range",
        "roundrobin": "roundrobin",
        "roundrobinassignor": "roundrobin",
        "sticky": "sticky",
        "stickyassignor": "sticky",
        "cooperative-sticky": "cooperative-sticky",
        "cooperativestickyassignor": "cooperative-sticky",
    }
)


def _assignors(value: Any) -> tuple[str, ...]:
    return tuple(_assignor(each) for each in as_text(value).split(",") if each.strip())


_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?", re.IGNORECASE)


def _where(value: Any) -> str | timedelta:
    word = as_text(value)
    if word.startswith("by_duration:"):
        found = _DURATION.fullmatch(word.removeprefix("by_duration:"))
        if not found or not any(found.groups()):
            raise ConfigurationError(f"{word!r} has no duration such as P1DT6H")
        try:
            days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        except (ValueError, OverflowError):
            raise ConfigurationError(f"{word!r} is not a valid duration") from None
    places = {"earliest": "beginning", "smallest": "beginning", "beginning": "beginning"}
    places |= {"latest": "end", "largest": "end", "end": "end"}
    places |= {"none": "error", "error": "error"}
    if word not in places:
        raise ConfigurationError(f"{value!r} is not one of earliest, latest, none, by_duration:<PnDTnHnMn.nS>")
    return places[word]


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
_KIP_848 = "ottla does not have the group protocol of KIP-848 yet"
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

_ISOLATIONS = ("read_uncommitted", "read_committed")

Meaning = To | Only | No

CLIENT: dict[str, Meaning] = {
    "bootstrap.servers": To("client", "bootstrap", _servers),
    "client.id": To("client", "client_id", as_text),
    "client.rack": To("client", "rack", as_text),
    "connections.max.idle.ms": To("client", "connections_max_idle", _seconds_or_never),
    "default.api.timeout.ms": To("client", "api_timeout", _patience),
    "metadata.max.age.ms": To("client", "metadata_max_age", _pause),
    "reconnect.backoff.ms": To("client", "reconnect_backoff", _pause),
    "reconnect.backoff.max.ms": To("client", "reconnect_backoff_max", _pause),
    "request.timeout.ms": To("client", "request_timeout", _patience),
    "retry.backoff.ms": To("client", "retry_backoff", _pause),
    "retry.backoff.max.ms": To("client", "retry_backoff_max", _pause),
    "socket.connection.setup.timeout.ms": To("client", "connect_timeout", _patience),
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
    "acks": To("producer", "acks", _acks),
    "batch.size": To("producer", "batch_size", _size),
    "buffer.memory": To("producer", "buffer_memory", _number),
    "compression.type": To("producer", "compression", as_text),
    "compression.gzip.level": To("producer", "gzip", _level),
    "compression.lz4.level": To("producer", "lz4", _number),
    "compression.zstd.level": To("producer", "zstd", _number),
    "delivery.timeout.ms": To("client", "delivery_timeout", _seconds_or_as_long_as_it_takes),
    "enable.idempotence": To("producer", "idempotent", _boolean),
    "linger.ms": To("producer", "linger", _seconds),
    "max.request.size": To("client", "max_request_size", _number),
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
    "partitioner.class": To("producer", "partitioner", _one_of({"roundrobinpartitioner": "round_robin"})),
    "partitioner.adaptive.partitioning.enable": Only(
        ("true",), "keyless records go to partitions with short queues", idle=True
    ),
    "partitioner.availability.timeout.ms": No("keyless records go to partitions with short queues", idle=True),
    "partitioner.ignore.keys": Only(("false",), f"keys decide the partition; {_PARTITIONER}"),
    "transaction.timeout.ms": To("producer", "transaction_timeout", _seconds),
    "transaction.two.phase.commit.enable": Only(("false",), "ottla does not have two-phase commit (KIP-939) yet"),
    "transactional.id": To("producer", "transactional_id", as_text),
}

CONSUMER: dict[str, Meaning] = {
    "auto.commit.interval.ms": To("consumer", "auto_commit", _interval),
    "auto.offset.reset": To("consumer", "start", _where),
    "enable.auto.commit": To("consumer", "enable_auto_commit", _boolean),
    "fetch.max.bytes": To("client", "fetch_max_bytes", _size),
    "fetch.max.wait.ms": To("client", "fetch_max_wait", _seconds),
    "group.id": To("consumer", "group", as_text),
    "group.instance.id": To("consumer", "instance_id", as_text),
    "heartbeat.interval.ms": To("consumer", "heartbeat_interval", _seconds),
    "isolation.level": To("consumer", "isolation", _one_of({each: each for each in _ISOLATIONS})),
    "max.partition.fetch.bytes": To("client", "partition_max_bytes", _size),
    "max.poll.interval.ms": To("consumer", "max_poll_interval", _seconds),
    "max.poll.records": To("consumer", "max_records", _number),
    "partition.assignment.strategy": To("consumer", "assignors", _assignors),
    "session.timeout.ms": To("consumer", "session_timeout", _seconds),
    "allow.auto.create.topics": Only(("false",), "reading a topic does not create it"),
    "check.crcs": Only(("true",), "checksums are always checked", idle=True),
    "exclude.internal.topics": Only(("true",), "a pattern matches no internal topics; name them to read them"),
    "fetch.min.bytes": Only(("1",), "the broker answers a Fetch as soon as there is a record", idle=True),
    "group.protocol": Only(("classic",), _KIP_848),
    "group.remote.assignor": No(_KIP_848),
    "internal.throw.on.fetch.stable.offset.unsupported": No("it is internal to Java's consumer", idle=True),
    "key.deserializer": No(f"{JVM}; {_READS}", idle=True),
    "value.deserializer": No(f"{JVM}; {_READS}", idle=True),
    "share.acknowledgement.mode": No("ottla does not have share groups yet"),
    "share.acquire.mode": No("ottla does not have share groups yet"),
}

LIBRDKAFKA: dict[str, Meaning] = {
    "api.version.request": Only(("true",), _NEGOTIATED, idle=True),
    "api.version.fallback.ms": No(_NEGOTIATED, idle=True),
    "broker.version.fallback": No(_NEGOTIATED, idle=True),
    "compression.level": To("producer", "compression_level", _level),
    "debug": No(_LOGGED, idle=True),
    "log_level": No(_LOGGED, idle=True),
    "batch.num.messages": No("batch.size bounds a batch, in bytes", idle=True),
    "enable.auto.offset.store": Only(("true",), "a batch counts as processed when you ask for the next one"),
    "enable.partition.eof": Only(("false",), "consumer.lag says how much is left"),
    "partitioner": To(
        "producer",
        "partitioner",
        _one_of(
            {
                "consistent": "consistent",
                "consistent_random": "consistent_random",
                "fnv1a_random": "fnv1a_random",
                "murmur2_random": "murmur2_random",
                "random": "random",
            }
        ),
    ),
    "queue.buffering.max.kbytes": To("producer", "buffer_memory", _kilobytes),
    "queue.buffering.max.messages": No("buffer.memory bounds the buffer, in bytes", idle=True),
    "queued.max.messages.kbytes": To("client", "fetch_buffer_bytes", _kilobytes),
    "queued.min.messages": No("the consumer fetches ahead as much as queued.max.messages.kbytes allows", idle=True),
    "socket.keepalive.enable": No("request timeouts detect dead connections", idle=True),
    "socket.nagle.disable": Only(("true",), "TCP_NODELAY is always set", idle=True),
    "statistics.interval.ms": No(_METRICS, idle=True),
    "topic.metadata.refresh.interval.ms": To("client", "metadata_max_age", _seconds_or_longest),
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
