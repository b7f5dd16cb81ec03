"""How much is held for whom."""

from collections import Counter

from ottla.errors import NotEnoughReplicas


class Buffered:
    """Bytes of records on their way, about.

    Args:
        most: bytes that may be.

    Attributes:
        of: by client.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self.of: Counter[int] = Counter()

    def count(self, client: int, size: int) -> None:
        """So many more bytes are held for a client."""
        self.total += size
        self.of[client] += size
        if not self.of[client]:
            del self.of[client]

    def check_room(self, client: int, size: int) -> None:
        """Clients are held before this; it bounds what ever new connections bring while upstream is away.

        What leaves a client within its share is let in all the same: it does not pay for what others hold.

        Raises:
            NotEnoughReplicas: far too much is buffered for ``size`` bytes more of this client.
        """
        if self.total > 2 * self.most and self.of[client] + size > self.most // (len(self.of) + 1):
            raise NotEnoughReplicas("the proxy's buffer is full, because upstream takes no records at the moment")
