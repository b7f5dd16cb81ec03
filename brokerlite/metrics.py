"""The broker's metrics: their declarations, and the collector that reads them from the machines.

Rules:
- A partition costs about a microsecond, and a broker may have 100,000: `collect` gives others a chance to run after
  each. The machines change meanwhile, so it goes through copies of their tables.
- There is one series for each topic, not for each partition. Apache Kafka has one for each partition; the sum over the
  label `topic` is the same.
- Kafka's BrokerTopicMetrics have one more series, without a label, of all topics. It never falls, because it has the
  traffic of deleted topics, too.
"""

from collections import Counter
from itertools import chain

from ottla.acl.acls import kafkas_name
from ottla.brokerlite.machines.consumer_groups import consumer_group
from ottla.brokerlite.machines.consumer_groups.consumer_group import ConsumerGroup
from ottla.brokerlite.machines.core import BrokerCore
from ottla.brokerlite.machines.groups.group import Group, GroupState
from ottla.brokerlite.machines.share_groups import share_group
from ottla.brokerlite.machines.share_groups.share_group import ShareGroup
from ottla.brokerlite.machines.share_partitions.stored_state import ShareKey
from ottla.brokerlite.machines.topics.topics import Topics
from ottla.brokerlite.machines.transactions.transaction_coordinator import TransactionCoordinator
from ottla.brokerlite.machines.transactions.transaction_metadata import TransactionalIdState
from ottla.codec.apis.share_fetch import ACCEPT, REJECT, RELEASE, RENEW
from ottla.serve import Listener
from ottla.server_metrics import Histogram, MetricKind, Sample, Samples, Series, ServerMetric

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind
_ALL_TOPICS = "without a label: of all topics, deleted ones included"

MESSAGES_IN = ServerMetric(
    "kafka_server_brokertopicmetrics_messagesin_total",
    _COUNTER,
    f"records appended since the start, transaction markers included; {_ALL_TOPICS}",
    ("topic",),
)
BYTES_IN = ServerMetric(
    "kafka_server_brokertopicmetrics_bytesin_total",
    _COUNTER,
    f"bytes appended since the start; {_ALL_TOPICS}",
    ("topic",),
)
BYTES_OUT = ServerMetric(
    "kafka_server_brokertopicmetrics_bytesout_total",
    _COUNTER,
    f"bytes in Fetch responses since the start; {_ALL_TOPICS}",
    ("topic",),
)
_TRAFFIC = (MESSAGES_IN, BYTES_IN, BYTES_OUT)
"""The metrics of a `LogTraffic`."""
LOG_SIZE = ServerMetric("kafka_log_log_size", _GAUGE, "bytes of the logs of all partitions", ("topic",))
LOG_START_OFFSET = ServerMetric(
    "kafka_log_log_logstartoffset", _GAUGE, "the sum of the start offsets of all partitions", ("topic",)
)
LOG_END_OFFSET = ServerMetric(
    "kafka_log_log_logendoffset", _GAUGE, "the sum of the end offsets of all partitions", ("topic",)
)
TOPICS = ServerMetric(
    "kafka_controller_kafkacontroller_globaltopiccount", _GAUGE, "topics that are served, internal ones included"
)
PARTITIONS = ServerMetric("kafka_server_replicamanager_partitioncount", _GAUGE, "partitions of these topics")
UNSERVED_TOPICS = ServerMetric(
    "ottla_broker_unserved_topics", _GAUGE, "topics that are not served, because their files are damaged"
)
OFFLINE_PARTITIONS = ServerMetric(
    "kafka_controller_kafkacontroller_offlinepartitionscount", _GAUGE, "partitions of the topics that are not served"
)
FLUSH_DURATION = ServerMetric(
    "kafka_log_logflushstats_logflushrateandtimems",
    _HISTOGRAM,
    "milliseconds of a flush to disk (fsync); `waited`: whether responses wait for it (`--sync always`)",
    ("waited",),
)
GROUPS = ServerMetric("kafka_coordinator_group_groupmetadatamanager_numgroups", _GAUGE, "groups")
GROUPS_IN_STATE = {
    state: ServerMetric(
        f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.value.lower()}",
        _GAUGE,
        f"groups in the state {state.value}",
    )
    for state in GroupState
}
GROUPS_OF_PROTOCOL = ServerMetric(
    "kafka_server_group_coordinator_metrics_group_count", _GAUGE, "groups by their protocol", ("protocol",)
)
CONSUMER_GROUPS = ServerMetric(
    "kafka_server_group_coordinator_metrics_consumer_group_count",
    _GAUGE,
    "groups of the consumer protocol (KIP-848) by their state",
    ("state",),
)
SHARE_GROUPS = ServerMetric(
    "kafka_server_group_coordinator_metrics_share_group_count", _GAUGE, "share groups by their state", ("state",)
)
GROUP_STATE = ServerMetric("ottla_broker_group_state", _GAUGE, "1 for the state that the group has", ("group", "state"))
GROUP_MEMBERS = ServerMetric("ottla_broker_group_members", _GAUGE, "members of the group", ("group",))
GROUP_LAG = ServerMetric(
    "ottla_broker_group_lag",
    _GAUGE,
    "records between the committed offsets and the end offsets of the topic's partitions; partitions without a "
    "committed offset are not counted; of a share group: records that no member has accepted or rejected yet",
    ("group", "topic"),
)
RECORDS_ACKNOWLEDGED = ServerMetric(
    "kafka_server_sharegroupmetrics_recordacknowledgements_total",
    _COUNTER,
    "records that members of share groups acknowledged since the start; `acktype`: Accept, Release, Reject or Renew",
    ("acktype",),
)
RECORDS_IN_FLIGHT = ServerMetric(
    "kafka_server_sharepartitionmetrics_inflightmessagecount",
    _GAUGE,
    "records of a share group from the first that is not done yet to the last that was delivered",
    ("group", "topic"),
)
LOCKS_EXPIRED = ServerMetric(
    "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
    _COUNTER,
    "records whose locks expired since the start, because their member did not acknowledge them",
    ("group", "topic"),
)
SHARE_SESSIONS = ServerMetric("kafka_server_sharesessioncache_sharesessionscount", _GAUGE, "open share sessions")
SHARE_SESSION_PARTITIONS = ServerMetric(
    "kafka_server_sharesessioncache_sharepartitionscount", _GAUGE, "partitions of all share sessions together"
)
TRANSACTIONAL_IDS = ServerMetric(
    "ottla_broker_transactional_ids", _GAUGE, "transactional ids by the state of their last transaction", ("state",)
)
OPEN_TRANSACTIONS = ServerMetric(
    "ottla_broker_open_transactions", _GAUGE, "transactions that have begun and do not have all their markers yet"
)
DENIED = ServerMetric(
    "ottla_broker_denied_total",
    _COUNTER,
    "rights that requests needed and their clients did not have, by Kafka's names of operations and resource types",
    ("operation", "resource"),
)
BROKER_METRICS = (
    *_TRAFFIC,
    *(LOG_SIZE, LOG_START_OFFSET, LOG_END_OFFSET),
    *(TOPICS, PARTITIONS, UNSERVED_TOPICS, OFFLINE_PARTITIONS, FLUSH_DURATION),
    *(GROUPS, *GROUPS_IN_STATE.values(), GROUPS_OF_PROTOCOL, CONSUMER_GROUPS, SHARE_GROUPS),
    *(GROUP_STATE, GROUP_MEMBERS, GROUP_LAG),
    *(RECORDS_ACKNOWLEDGED, RECORDS_IN_FLIGHT, LOCKS_EXPIRED, SHARE_SESSIONS, SHARE_SESSION_PARTITIONS),
    *(TRANSACTIONAL_IDS, OPEN_TRANSACTIONS),
    DENIED,
)
"""The metrics of a broker. Its listener has `TRAFFIC_METRICS`."""

_ACKNOWLEDGEMENTS = {ACCEPT: "Accept", RELEASE: "Release", REJECT: "Reject", RENEW: "Renew"}
"""Kafka's names of the types; gaps are not counted."""
_OPEN = (TransactionalIdState.ONGOING, TransactionalIdState.PREPARE_COMMIT, TransactionalIdState.PREPARE_ABORT)


def collect(core: BrokerCore, listener: Listener, waited: Histogram, unwaited: Histogram) -> Samples:
    """Yield the samples of a broker.

    Args:
        waited: the durations of the flushes that responses wait for.
        unwaited: of all other flushes.
    """
    yield from listener.samples()
    yield from _of_topics(core.topics)
    yield Sample(FLUSH_DURATION, waited, ("true",))
    yield Sample(FLUSH_DURATION, unwaited, ("false",))
    yield from _of_groups(core)
    yield from _of_shares(core)
    yield from _of_transactions(core.transactions)
    for right in sorted({right for served in core.handlers.values() for right in served.needs}, key=str):
        labels = kafkas_name(right.operation), kafkas_name(right.resource_type)
        yield Sample(DENIED, core.audit.denials[right], labels)


def _of_topics(topics: Topics) -> Samples:
    series = Series(*_TRAFFIC, LOG_SIZE, LOG_START_OFFSET, LOG_END_OFFSET)
    total = topics.deleted
    served = list(topics.by_name.values())
    for topic in served:
        labels = (topic.name,)
        for log in topic.partitions:
            traffic = log.traffic
            total = total.plus(traffic)
            series.add(labels, *traffic, log.segments.size, log.start_offset, log.end_offset)
            yield None
    yield from series.samples()
    yield from map(Sample, _TRAFFIC, total)
    yield Sample(TOPICS, len(served))
    yield Sample(PARTITIONS, sum(len(topic.partitions) for topic in served))
    yield Sample(UNSERVED_TOPICS, len(topics.unserved))
    yield Sample(OFFLINE_PARTITIONS, sum(topic.partitions for topic in topics.unserved.values()))


def _of_groups(core: BrokerCore) -> Samples:
    states, members, lags = Series(GROUP_STATE), Series(GROUP_MEMBERS), Series(GROUP_LAG)
    groups = list(core.groups.all())
    for group in groups:
        states.add((group.group_id, group.state_name), 1)
        members.add((group.group_id,), len(group.members))
        for (topic, partition), committed in list(core.offsets.of(group.group_id).items()):
            log = core.topics.partition(topic, partition)
            if log is not None:
                lags.add((group.group_id, topic), max(0, log.high_watermark - committed.offset))
            yield None
        yield None
    yield from _add_lags_of_shares(core, lags)
    yield Sample(GROUPS, len(groups))
    in_state = Counter((group.kind, group.state_name) for group in groups)
    for state, metric in GROUPS_IN_STATE.items():
        yield Sample(metric, in_state[Group.kind, state.value])
    of_kind = Counter(group.kind for group in groups)
    for kind in (Group.kind, ConsumerGroup.kind, ShareGroup.kind):
        yield Sample(GROUPS_OF_PROTOCOL, of_kind[kind], (kind,))
    for name in consumer_group.STATES:
        yield Sample(CONSUMER_GROUPS, in_state[ConsumerGroup.kind, name], (name,))
    for name in share_group.STATES:
        yield Sample(SHARE_GROUPS, in_state[ShareGroup.kind, name], (name,))
    for series in (states, members, lags):
        yield from series.samples()


def _add_lags_of_shares(core: BrokerCore, lags: Series) -> Samples:
    for group in list(core.share_groups.by_id.values()):
        for topic_id, initialized in list(group.initialized.items()):
            if (topic := core.topics.by_id.get(topic_id)) is None:
                continue
            for index in initialized.partitions:
                log, state = topic.partition(index), core.share_states.get(ShareKey(group.group_id, topic_id, index))
                lag = state.lag(log.high_watermark) if log is not None and state is not None else None
                if lag is not None:
                    lags.add((group.group_id, topic.name), lag)
                yield None


def _of_shares(core: BrokerCore) -> Samples:
    shares, series = core.share_partitions, Series(RECORDS_IN_FLIGHT, LOCKS_EXPIRED)
    counts = chain(
        ((key, partition.in_flight, 0) for key, partition in shares.in_memory()),
        ((key, 0, expired) for key, expired in list(shares.expired.items())),
    )
    for key, in_flight, expired in counts:
        if (topic := core.topics.by_id.get(key.topic_id)) is not None:
            series.add((key.group_id, topic.name), in_flight, expired)
        yield None
    yield from series.samples()
    for kind, name in _ACKNOWLEDGEMENTS.items():
        yield Sample(RECORDS_ACKNOWLEDGED, shares.acknowledged[kind], (name,))
    yield Sample(SHARE_SESSIONS, len(core.share_sessions))
    yield Sample(SHARE_SESSION_PARTITIONS, core.share_sessions.partitions)


def _of_transactions(transactions: TransactionCoordinator) -> Samples:
    in_state: Counter[TransactionalIdState] = Counter()
    for each in list(transactions.by_id.values()):
        in_state[each.state] += 1
        yield None
    for state in TransactionalIdState:
        yield Sample(TRANSACTIONAL_IDS, in_state[state], (state.value,))
    yield Sample(OPEN_TRANSACTIONS, sum(in_state[state] for state in _OPEN))
