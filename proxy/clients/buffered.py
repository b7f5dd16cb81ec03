"""Counts the bytes of records that the proxy holds for each client."""

from collections import Counter

from ottla.errors import NotEnoughReplicas


class Buffered:
    """Counts the approximate bytes of unsettled records.

    Args:
        most: the limit in bytes.

    Attributes:
        of: client -> bytes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = 0
        self.of: Counter[int] = Counter()

    def count(self, client: int, size: int) -> None:
        """Add ``size`` bytes to a client's; a negative size subtracts."""
        self.total += size
        self.of[client] += size
        if not self.of[client]:
            del self.of[client]

    def check_room(self, client: int, size: int) -> None:
        """Refuse records if twice the limit is buffered and the client would exceed its fair share.

        Long before this the proxy stops reading from clients; this bounds what new connections bring while upstream
        is unavailable. A client within its share does not suffer from what others send.

        Raises:
            NotEnoughReplicas: there is no room for ``size`` more bytes of this client.
        """
        if self.total > 2 * self.most and self.of[client] + size > self.most // (len(self.of) + 1):
            raise NotEnoughReplicas("the proxy's buffer is full, because upstream accepts no records at the moment")
