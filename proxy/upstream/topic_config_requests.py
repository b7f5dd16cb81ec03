"""Requests for the configuration of topics by which brokers judge records."""

from collections.abc import Callable, Mapping

from ottla.codec.apis.describe_configs import (
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.errors import OttlaError, RemoteProtocolError, broker_error
from ottla.proxy.contained import contained
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

ConfigTold = Callable[[Mapping[str, str | None] | None, str, float], None]
"""Called with a topic's configuration, or with ``None`` and the reason if upstream does not tell it, and the time."""


class TopicConfigRequests:
    """The topics whose configuration somebody waits for.

    The last request for a topic counts. An earlier one was for a topic of the same name that was replaced: its answer,
    or its failure, changes nothing.
    """

    def __init__(self) -> None:
        self._unsent: dict[str, ConfigTold] = {}
        self._in_flight: dict[str, ConfigTold] = {}

    def request(self, topic: str, told: ConfigTold) -> None:
        """Request the configuration of a topic."""
        self._in_flight.pop(topic, None)
        self._unsent[topic] = told

    @property
    def due(self) -> float | None:
        """When the next request may be sent; ``None`` if none is missing."""
        return 0.0 if self._unsent else None

    def send(self, link: UpstreamLink, now: float, deadline: float) -> None:
        """Send one request for all topics that are in none."""
        if not (asked := self._unsent):
            return
        try:
            version = link.version(DescribeConfigsRequest, _VERSION)
        except RemoteProtocolError:
            self._begin()
            for topic, told in asked.items():
                self._tell(topic, told, None, "upstream does not serve DescribeConfigs", now)
            return

        def answered(answer: DescribeConfigsResponse, now: float) -> None:
            results = {each.resource_name: each for each in answer.results}
            for topic, told in asked.items():
                if (found := results.get(topic)) is None or found.error_code:
                    why = "no answer" if found is None else broker_error(found.error_code).name
                    self._tell(topic, told, None, why, now)
                else:
                    self._tell(topic, told, {each.name: each.value for each in found.configs}, "", now)

        def failed(error: OttlaError, now: float) -> None:
            for topic, told in asked.items():
                if self._is_last(topic, told):
                    self._unsent[topic] = self._in_flight.pop(topic)

        link.ask(
            DescribeConfigsRequest(
                resources=tuple(
                    DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=_KEYS)
                    for topic in asked
                )
            ),
            DescribeConfigsResponse,
            version,
            deadline=deadline,
            answered=answered,
            failed=failed,
        )
        self._begin()  # last: after a bug, the next link sends them

    def _begin(self) -> None:
        self._in_flight |= self._unsent
        self._unsent = {}

    def _is_last(self, topic: str, told: ConfigTold) -> bool:
        return self._in_flight.get(topic) is told

    def _tell(
        self, topic: str, told: ConfigTold, values: Mapping[str, str | None] | None, why: str, now: float
    ) -> None:
        if self._is_last(topic, told):
            del self._in_flight[topic]
            with contained("the configuration of a topic arrives"):
                told(values, why, now)
