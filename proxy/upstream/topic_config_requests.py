"""Requests for the configuration of topics by which brokers judge records."""

from collections.abc import Callable, Mapping
from itertools import islice

from ottla.codec.apis.describe_configs import (
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.errors import OttlaError, RemoteProtocolError, broker_error
from ottla.proxy.contained import contained
from ottla.proxy.upstream.attempts import AGAIN, LONGEST_PAUSE, Attempts
from ottla.proxy.upstream.link import UpstreamLink

_VERSION = 4
_KEYS = (
    CLEANUP := "cleanup.policy",
    AFTER := "message.timestamp.after.max.ms",
    BEFORE := "message.timestamp.before.max.ms",
    DIFFERENCE := "message.timestamp.difference.max.ms",
    TYPE := "message.timestamp.type",
    LARGEST := "max.message.bytes",
)
"""What brokers judge records by."""
AT_ONCE = 500
"""The most topics in a request."""
_MOST_FAILURES = 5
"""The number of requests in a row that fail before those who wait are told so."""

ConfigTold = Callable[[Mapping[str, str | None] | None, str, float], None]
"""Called with a topic's configuration, or with ``None`` and the reason if upstream does not tell it, and the time."""


class TopicConfigRequests:
    """Requests the configuration of topics, one request at a time.

    The last call of `request` for a topic counts. An earlier one was for a topic of the same name that was replaced:
    its response, or its failure, changes nothing.
    """

    def __init__(self) -> None:
        self._attempts = Attempts(DescribeConfigsRequest, _VERSION)
        self._served = True
        """Upstream serves DescribeConfigs."""
        self._failures = 0
        self._unsent: dict[str, ConfigTold] = {}
        self._in_flight: dict[str, ConfigTold] = {}

    def request(self, topic: str, told: ConfigTold) -> None:
        """Request the configuration of a topic."""
        self._in_flight.pop(topic, None)
        self._unsent[topic] = told

    @property
    def in_flight(self) -> int:
        return self._attempts.in_flight

    @property
    def due(self) -> float | None:
        """When the next request may be sent; ``None`` if none is missing."""
        return self._attempts.not_before if self._unsent and not self._attempts.in_flight else None

    def greeted(self, link: UpstreamLink) -> None:
        try:
            self._attempts.greeted(link)
            self._served = True
        except RemoteProtocolError:
            self._served = False

    def lost(self) -> None:
        self._attempts.lost()

    def send(self, link: UpstreamLink, now: float, deadline: float) -> None:
        """Send the next request, if it is due."""
        if (due := self.due) is None or now < due:
            return
        if not self._served:
            self._give_up(self._unsent, "upstream does not serve DescribeConfigs", now)
            return
        asked = dict(islice(self._unsent.items(), AT_ONCE))
        link.ask(
            DescribeConfigsRequest(
                resources=tuple(
                    DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=_KEYS)
                    for topic in asked
                )
            ),
            DescribeConfigsResponse,
            self._attempts.version,
            deadline=deadline,
            answered=self._answered,
            failed=self._failed,
        )
        self._attempts.begin()  # last: after a bug, the next link sends them
        for topic in asked:
            self._in_flight[topic] = self._unsent.pop(topic)

    def _answered(self, answer: DescribeConfigsResponse, now: float) -> None:
        self._attempts.answered()
        self._failures = 0
        results = {each.resource_name: each for each in answer.results}
        waiting, self._in_flight = self._in_flight, {}
        for topic, told in waiting.items():
            with contained("the configuration of a topic arrives"):
                if (found := results.get(topic)) is None or found.error_code:
                    told(None, "no answer" if found is None else broker_error(found.error_code).name, now)
                else:
                    told({each.name: each.value for each in found.configs}, "", now)

    def _failed(self, error: OttlaError, now: float) -> None:
        self._failures += 1
        self._attempts.pause(now, min(AGAIN * 2**self._failures, LONGEST_PAUSE))
        if self._failures < _MOST_FAILURES:
            self._unsent = self._in_flight | self._unsent
            self._in_flight = {}
        else:
            self._failures = 0
            self._give_up(self._in_flight, f"upstream does not answer DescribeConfigs: {error}", now)

    def _give_up(self, waiting: dict[str, ConfigTold], why: str, now: float) -> None:
        told_why = dict(waiting)
        waiting.clear()
        for told in told_why.values():
            with contained("no configuration of a topic arrives"):
                told(None, why, now)
