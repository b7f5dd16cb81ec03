"""Remembers transactions of which records were refused because the proxy does not know their epoch.

Such a transaction must not be committed.

Rules:
- Above `MOST` of them, the host with the most loses its own, and may commit no unknown transaction any more. So a
  client that invents producer ids takes nothing from clients on other hosts.
- Once more than `MOST` hosts have lost theirs, no host may commit an unknown transaction.
"""

from collections import Counter

MOST = 10_000
"""How many are remembered, and how many hosts may have lost theirs."""


class UnknownEpochs:
    """Remembers (producer id, epoch) of transactions that must not be committed."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[int, int], set[str]] = {}
        """(producer id, epoch) -> the hosts of the clients whose records were refused."""
        self._counts: Counter[str] = Counter()
        """Host -> how many are remembered."""
        self._total = 0
        self._dropped: set[str] = set()
        """Hosts whose transactions were dropped."""

    def add(self, producer_id: int, epoch: int, host: str) -> bool:
        """Remember that records from this host were refused; returns whether they are its first of the transaction."""
        hosts = self._hosts.get((producer_id, epoch), set())
        if host in hosts or host in self._dropped or len(self._dropped) > MOST:
            return False
        self._hosts[producer_id, epoch] = hosts | {host}
        self._counts[host] += 1
        self._total += 1
        if self._total > MOST:
            self._drop(self._counts.most_common(1)[0][0])
        return True

    def _drop(self, host: str) -> None:
        self._total -= self._counts.pop(host)
        self._dropped.add(host)
        self._hosts = {each: left for each, hosts in self._hosts.items() if (left := hosts - {host})}

    def may_commit(self, producer_id: int, epoch: int, host: str) -> bool:
        """Whether a client on this host may commit such a transaction: none of its records were refused."""
        if host in self._dropped or len(self._dropped) > MOST:
            return False
        return (producer_id, epoch) not in self._hosts
