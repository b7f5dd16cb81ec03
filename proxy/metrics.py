"""The proxy's metrics: their declarations, and the collector that reads them from the core.

Rules:
- Apache Kafka has no proxy, so all of these are ottla's own; the names of the listener's metrics are Kafka's.
- Topics that no rule matches have no series of their own, because clients may name any.
"""

from ottla.acl.acls import kafkas_name
from ottla.acl.rights import EVERY_RIGHT
from ottla.codec.apis import NAMES
from ottla.proxy.clients.observer import Tallies
from ottla.proxy.core import ProxyCore
from ottla.proxy.events import Address
from ottla.proxy.topic_rule import Mode
from ottla.proxy.upstream.link import UpstreamLinks
from ottla.serve import Listener
from ottla.server_metrics import OTHER, MetricKind, Sample, Samples, Series, ServerMetric

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind
_NODE_OTHER = "`(other)`: bootstrap addresses until metadata tells their node, and former addresses of nodes"

RECORDS = ServerMetric(
    "ottla_proxy_records_total",
    _COUNTER,
    "records of topics that a rule matches, when the proxy sends them to upstream, which may still refuse them; "
    "refused records that a client sends again are counted again; `mode`: of the rule at that time, `rewrite`, "
    "`fan-out`, `copy`, `reject` or `observe`; with `observe-sample`, the counts of observed topics are estimates",
    ("topic", "mode"),
)
KEYLESS = ServerMetric(
    "ottla_proxy_keyless_records_total", _COUNTER, "records of these topics without a key", ("topic",)
)
MOVED = ServerMetric(
    "ottla_proxy_moved_records_total",
    _COUNTER,
    "records that mode `rewrite` or `copy` sent to another partition than their client chose",
    ("topic",),
)
COPIED = ServerMetric(
    "ottla_proxy_copied_records_total",
    _COUNTER,
    "records of the topic that mode `copy` sent to the topic `target` as well; upstream may still refuse them",
    ("topic", "target"),
)
MISPLACED = ServerMetric(
    "ottla_proxy_misplaced_records_total",
    _COUNTER,
    "records that clients put in another partition than the topic's partitioner chooses; `client_id` is empty for "
    "batches that a restart found in the journal",
    ("topic", "client_id"),
)
FAILED = ServerMetric(
    "ottla_proxy_failed_batches_total",
    _COUNTER,
    "batches of rewritten topics that failed, and batches that mode `reject` refused; `outcome`: `refused` (by the "
    "proxy or upstream, at least in part), `unknown` (they may or may not be stored), `dropped` (not sent, because too "
    "many bytes were held, and their client had disconnected)",
    ("topic", "outcome"),
)
UNOBSERVED = ServerMetric(
    "ottla_proxy_unobserved_batches_total",
    _COUNTER,
    "batches of observed topics whose keys were not counted, because too many others were being read",
    ("topic",),
)
PASSED_RECORDS = ServerMetric(
    "ottla_proxy_passed_records_total",
    _COUNTER,
    "records that were passed to upstream unchanged, observed ones included, as their batches' headers say; those of "
    "clients before Kafka 0.11, whose message sets have no such header, are not counted",
)
PASSED_BYTES = ServerMetric(
    "ottla_proxy_passed_bytes_total", _COUNTER, "bytes of batches and message sets that were passed unchanged"
)
HELD_BYTES = ServerMetric(
    "ottla_proxy_held_bytes",
    _GAUGE,
    "approximate memory held for clients: bytes of requests, records and responses being read, waiting or being sent",
)
HELD_BYTES_LIMIT = ServerMetric(
    "ottla_proxy_held_bytes_limit",
    _GAUGE,
    "`max-buffered`: above it, the proxy takes requests only from clients within their share",
)
PAUSED_CLIENTS = ServerMetric(
    "ottla_proxy_paused_clients", _GAUGE, "clients that are not read, because too many bytes are held"
)
UNSETTLED_BATCHES = ServerMetric(
    "ottla_proxy_unsettled_batches", _GAUGE, "batches of rewritten topics whose outcome is not known yet"
)
HELD_RECORDS = ServerMetric("ottla_proxy_held_records", _GAUGE, "records of these batches")
JOURNAL_WORKS = ServerMetric(
    "ottla_proxy_journal_works",
    _GAUGE,
    "1 while the journal is written, 0 after a failed write; then a restart before it recovers fences producers; "
    "absent without `state`",
)
UPSTREAM_AVAILABLE = ServerMetric(
    "ottla_proxy_upstream_available", _GAUGE, "1 while a broker of upstream answers the proxy, otherwise 0"
)
UPSTREAM_CONNECTIONS = ServerMetric(
    "ottla_proxy_upstream_connections",
    _GAUGE,
    f"connections to the node, open or being opened; {_NODE_OTHER}",
    ("node",),
)
UPSTREAM_IN_FLIGHT = ServerMetric(
    "ottla_proxy_upstream_requests_in_flight",
    _GAUGE,
    f"requests to the node without a response yet; {_NODE_OTHER}",
    ("node",),
)
UPSTREAM_DURATION = ServerMetric(
    "ottla_proxy_upstream_request_milliseconds",
    _HISTOGRAM,
    "milliseconds from a request to the node to its response; Fetch and JoinGroup wait there on purpose; requests that "
    f"end without a response are not counted; {_NODE_OTHER}",
    ("node", "request"),
)
UPSTREAM_UNANSWERED = ServerMetric(
    "ottla_proxy_upstream_unanswered_requests_total",
    _COUNTER,
    "requests to the node that ended without a response: their deadline passed, or the connection ended; "
    f"{_NODE_OTHER}",
    ("node",),
)
DENIED = ServerMetric(
    "ottla_proxy_denied_total",
    _COUNTER,
    "rights that requests needed and their clients did not have, by Kafka's names of operations and resource types",
    ("operation", "resource"),
)
PROXY_METRICS = (
    *(RECORDS, KEYLESS, MOVED, COPIED, MISPLACED, FAILED, UNOBSERVED, PASSED_RECORDS, PASSED_BYTES),
    *(HELD_BYTES, HELD_BYTES_LIMIT, PAUSED_CLIENTS, UNSETTLED_BATCHES, HELD_RECORDS, JOURNAL_WORKS),
    *(UPSTREAM_AVAILABLE, UPSTREAM_CONNECTIONS, UPSTREAM_IN_FLIGHT, UPSTREAM_DURATION, UPSTREAM_UNANSWERED),
    DENIED,
)
"""The metrics of a proxy. Its listener has `TRAFFIC_METRICS`."""


def collect(core: ProxyCore, listener: Listener) -> Samples:
    """Yield the samples of a proxy."""
    yield from listener.samples()
    yield from _of_topics(core.tallies)
    yield Sample(HELD_BYTES, core.buffered.total)
    yield Sample(HELD_BYTES_LIMIT, core.buffered.most)
    yield Sample(PAUSED_CLIENTS, core.paused_clients)
    yield Sample(UNSETTLED_BATCHES, core.rewriter.unsettled)
    yield Sample(HELD_RECORDS, core.rewriter.unsettled_records)
    if core.journal_works is not None:
        yield Sample(JOURNAL_WORKS, int(core.journal_works))
    yield Sample(UPSTREAM_AVAILABLE, int(not core.control.unavailable))
    for right in EVERY_RIGHT:
        labels = kafkas_name(right.operation), kafkas_name(right.resource_type)
        yield Sample(DENIED, core.audit.denials[right], labels)
    yield from _of_upstream(core.links, {address: str(node) for node, address in core.cluster.nodes.items()})


def _of_topics(tallies: Tallies) -> Samples:
    records, moved, copied = Series(RECORDS), Series(MOVED), Series(COPIED)
    failed, others = Series(FAILED), Series(KEYLESS, UNOBSERVED)
    for topic, tally in list(tallies.items()):
        for mode, count in list(tally.sent.items()):
            records.add((topic, mode.value), count)
        others.add((topic,), tally.keyless, tally.unobserved)
        outcomes = {"refused": tally.refused, "unknown": tally.outcome_unknown, "dropped": tally.dropped}
        for outcome, count in outcomes.items():
            if count:
                failed.add((topic, outcome), count)
        if Mode.REWRITE in tally.sent or Mode.COPY in tally.sent:
            moved.add((topic,), tally.moved)
        for target, count in list(tally.copied.items()):
            copied.add((topic, target), count)
        yield None
    for series in (records, others, moved, copied, failed):
        yield from series.samples()
    for labels, count in list(tallies.misplaced.items()):
        yield Sample(MISPLACED, count, labels)
    yield Sample(PASSED_RECORDS, tallies.passed_records)
    yield Sample(PASSED_BYTES, tallies.passed_bytes)


def _of_upstream(links: UpstreamLinks, nodes: dict[Address, str]) -> Samples:
    now, durations = Series(UPSTREAM_CONNECTIONS, UPSTREAM_IN_FLIGHT), Series(UPSTREAM_DURATION)
    unanswered = Series(UPSTREAM_UNANSWERED)
    for address, in_flight in links.in_flight():
        now.add((nodes.get(address, OTHER),), 1, in_flight)
        yield None
    for address, by_api in list(links.durations.items()):
        for key, histogram in list(by_api.items()):
            durations.add((nodes.get(address, OTHER), NAMES[key]), histogram)
            yield None
    for address, count in list(links.unanswered.items()):
        unanswered.add((nodes.get(address, OTHER),), count)
    for series in (now, durations, unanswered):
        yield from series.samples()
