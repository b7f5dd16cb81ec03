"""When the proxy may send a request of a kind again, and which version it uses on the current link."""

from ottla.proxy.upstream.link import UpstreamLink

AGAIN = 0.1
"""Seconds between two attempts of a request."""
LONGEST_BACKOFF = 1.0


class RequestBackoff:
    """Tracks the attempts of one kind of request.

    Args:
        newest: the newest version that the proxy uses.

    Attributes:
        in_flight: how many of these requests are in flight.
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
        """Wait before the next request: the next one would ask for the same."""
        self.not_before = now + seconds

    def lost(self) -> None:
        """Take note that no request will be answered any more."""
        self.in_flight = 0
