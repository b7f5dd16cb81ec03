"""Counts the requests, bytes and connections of a listener.

Rules:
- Requests of APIs that do not exist count as one, so that clients cannot add more; so do error codes.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping

from ottla.codec.apis import NAMES
from ottla.codec.wire import Buffer
from ottla.errors import BY_CODE, UnknownServerError
from ottla.server_metrics import Histogram, MetricKind, Sample, ServerMetric

_UNKNOWN = -1
"""Stands for all API keys that do not exist, and for frames that are too short to have one."""


class Refusal(enum.StrEnum):
    """Why a listener refused a connection, or closed it."""

    LIMIT = "limit"
    """Too many connections are open."""
    TLS = "tls"
    """The TLS handshake failed, or took too long. A peer that just hangs up has not been refused."""
    SASL = "sasl"
    """The client did not authenticate, or not in time."""
    REQUEST = "request"
    """The peer sent something else than Kafka's protocol, or a request that is answered by closing the connection."""


REQUESTS = ServerMetric(
    "kafka_network_requestmetrics_requests_total",
    MetricKind.COUNTER,
    "requests that the server began to handle",
    ("request",),
)
ERRORS = ServerMetric(
    "kafka_network_requestmetrics_errors_total",
    MetricKind.COUNTER,
    "error codes in responses, of the request as a whole and of each partition, group and so on; successes are not "
    "counted",
    ("request", "error"),
)
DURATION = ServerMetric(
    "kafka_network_requestmetrics_totaltimems",
    MetricKind.HISTOGRAM,
    "milliseconds from the request to its response, waits for records or group members included",
    ("request",),
)
CONNECTIONS = ServerMetric(
    "kafka_server_socket_server_metrics_connection_count", MetricKind.GAUGE, "open connections", ("listener",)
)
ACCEPTED = ServerMetric(
    "kafka_server_socket_server_metrics_connection_creation_total", MetricKind.COUNTER, "connections that were accepted"
)
RECEIVED = ServerMetric(
    "kafka_server_socket_server_metrics_incoming_byte_total",
    MetricKind.COUNTER,
    "bytes from clients, with TLS as they were encrypted",
)
SENT = ServerMetric(
    "kafka_server_socket_server_metrics_outgoing_byte_total",
    MetricKind.COUNTER,
    "bytes of responses to clients, before encryption",
)
REFUSED = ServerMetric(
    "ottla_server_connections_refused_total",
    MetricKind.COUNTER,
    "connections that the server refused or closed, by reason: `limit` (too many are open), `tls` (the TLS handshake "
    "failed or took too long; peers that hang up during it are not counted), `sasl` (wrong credentials, or no "
    "authentication in time), `request` (not Kafka's protocol, or a request that is answered by closing the "
    "connection)",
    ("reason",),
)
TRAFFIC_METRICS = (REQUESTS, ERRORS, DURATION, CONNECTIONS, ACCEPTED, RECEIVED, SENT, REFUSED)
"""The metrics that every listener has."""


class ApiTraffic:
    """Counts the requests of one API.

    Attributes:
        errors: error code -> how often responses had it.
    """

    __slots__ = ("durations", "errors", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.errors: dict[int, int] = {}
        self.durations = Histogram()

    def began(self) -> None:
        """Count a request."""
        self.requests += 1

    def failed(self, codes: Iterable[int]) -> None:
        """Count the error codes of a response."""
        for code in codes:
            known = code if code in BY_CODE else UnknownServerError.code
            self.errors[known] = self.errors.get(known, 0) + 1


class ListenerTraffic:
    """Counts the traffic of one listener.

    Attributes:
        received, sent: bytes.
        accepted: connections.
    """

    def __init__(self) -> None:
        self.received = self.sent = self.accepted = 0
        self._refused = dict.fromkeys(Refusal, 0)
        self._by_api: dict[int, ApiTraffic] = {}

    def accept(self) -> None:
        """Count a connection that was accepted."""
        self.accepted += 1

    def read(self, size: int) -> None:
        """Count bytes from a client."""
        self.received += size

    def wrote(self, size: int) -> None:
        """Count bytes of responses to a client."""
        self.sent += size

    def refused(self, why: Refusal) -> None:
        """Count a connection that was refused or closed."""
        self._refused[why] += 1

    def requested(self, frame: Buffer) -> ApiTraffic:
        """Count a request; return the counts of its API."""
        key = int.from_bytes(frame[:2], "big") if len(frame) >= 2 else _UNKNOWN
        api = self._by_api.get(key) or self._by_api.setdefault(key if key in NAMES else _UNKNOWN, ApiTraffic())
        api.began()
        return api

    def samples(self, connections: Mapping[str, int]) -> Iterator[Sample]:
        """Yield the samples of `TRAFFIC_METRICS`.

        Args:
            connections: listener -> its open connections.
        """
        for key, api in list(self._by_api.items()):
            name = NAMES.get(key, "unknown")
            yield Sample(REQUESTS, api.requests, (name,))
            yield Sample(DURATION, api.durations, (name,))
            for code, count in list(api.errors.items()):
                yield Sample(ERRORS, count, (name, BY_CODE[code].name))
        for listener, count in connections.items():
            yield Sample(CONNECTIONS, count, (listener,))
        yield Sample(ACCEPTED, self.accepted)
        yield Sample(RECEIVED, self.received)
        yield Sample(SENT, self.sent)
        for why, count in self._refused.items():
            yield Sample(REFUSED, count, (why,))
