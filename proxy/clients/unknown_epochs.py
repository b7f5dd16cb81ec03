"""Remembers transactions of which records were refused because the proxy does not know their epoch.

Such a transaction must not be committed.

Rules:
- If there are too many, those of the host with the most are dropped, and that host may commit no unknown transaction
  any more. So a client that invents producer ids takes nothing from clients on other hosts.
- If that has happened to too many hosts, no host may commit one.
"""

from collections import Counter

MOST = 10_000
"""How many are remembered, and how many hosts may have lost theirs."""


class UnknownEpochs:
    def __init__(self) -> None:
        self._hosts: dict[tuple[int, int], set[str]] = {}
        """(producer id, epoch) -> the hosts of the clients whose records were refused."""
        self._counts: Counter[str] = Counter()
        """Host -> how many are remembered."""
        self._dropped: set[str] = set()
        """Hosts whose transactions were dropped."""

    def add(self, producer_id: int, epoch: int, host: str) -> bool:
        """Remember that records of a client on this host were refused; returns whether these are its first."""
        hosts = self._hosts.get((producer_id, epoch), set())
        if host in hosts or host in self._dropped or len(self._dropped) > MOST:
            return False
        self._hosts[producer_id, epoch] = hosts | {host}
        self._counts[host] += 1
        if self._counts.total() > MOST:
            self._drop(self._counts.most_common(1)[0][0])
        return True

    def _drop(self, host: str) -> None:
        del self._counts[host]
        self._dropped.add(host)
        self._hosts = {each: left for each, hosts in self._hosts.items() if (left := hosts - {host})}

    def may_commit(self, producer_id: int, epoch: int, host: str) -> bool:
        """Whether a client on this host may commit such a transaction: none of its records were refused."""
        if host in self._dropped or len(self._dropped) > MOST:
            return False
        return (producer_id, epoch) not in self._hosts
