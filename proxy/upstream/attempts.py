"""The proxy's own requests of one kind: how many are in flight, when the next one may be sent, and in which version."""

from ottla.proxy.upstream.link import UpstreamLink

AGAIN = 0.1
"""Seconds between two attempts of a request."""
LONGEST_PAUSE = 1.0
"""The most seconds between two attempts, of requests and of connections."""


class Attempts:
    """Counts the attempts of one kind of request.

    Args:
        newest: the newest version that the proxy uses.

    Attributes:
        version: the version on the current link.
        in_flight: how many of these requests are in flight.
        not_before: when the next one may be sent.
    """

    def __init__(self, kind: type, newest: int) -> None:
        self._kind, self._newest = kind, newest
        self.version = 0
        self.in_flight = 0
        self.not_before = 0.0

    def greeted(self, link: UpstreamLink) -> None:
        """Agree on the version with a new link.

        Raises:
            RemoteProtocolError: there is no common version.
        """
        self.version = link.version(self._kind, self._newest)

    def begin(self) -> None:
        self.in_flight += 1

    def answered(self) -> None:
        self.in_flight -= 1

    def pause(self, now: float, seconds: float = AGAIN) -> None:
        """Wait before the next request, which would ask for the same."""
        self.not_before = now + seconds

    def lost(self) -> None:
        """Take note that the link is lost: no request will be answered any more."""
        self.in_flight = 0
