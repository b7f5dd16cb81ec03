"""Assigns producer ids and the leader epoch. `broker.json` keeps both, so that a restart repeats none."""

from ottla.brokerlite.storage.chores import Chores
from ottla.brokerlite.storage.state_file import PRODUCER_IDS, BrokerState, StateFile


class AssignedNumbers:
    """Remembers which numbers the brokers of a data folder have assigned.

    Attributes:
        leader_epoch: in which this broker leads all partitions.
    """

    def __init__(self, file: StateFile, chores: Chores) -> None:
        self.leader_epoch = 0
        self._file = file
        self._chores = chores
        self._state = BrokerState(0, "", 0, 0)
        """The content of the file."""
        self._next_producer_id = 0
        self._reserve_from = 0
        """From this producer id on, the next block is reserved early."""

    def begin(self, node_id: int, cluster_id: str, next_producer_id: int, leader_epoch: int) -> None:
        """Reserve the first producer ids, and begin a leader epoch; both are on disk afterwards."""
        self.leader_epoch = leader_epoch
        self._next_producer_id = next_producer_id
        self._reserve_from = next_producer_id + PRODUCER_IDS // 2
        self._write(BrokerState(node_id, cluster_id, next_producer_id + PRODUCER_IDS, leader_epoch))

    def assign_producer_ids(self, count: int) -> int:
        """Assign ``count`` producer ids, and return the first; may raise an `OSError`."""
        first = self._next_producer_id
        behind = first + count
        if behind > self._state.next_producer_id:  # rare: the next block is reserved early, below
            self._reserve(behind)
        elif behind > self._reserve_from:
            self._reserve_from = behind + PRODUCER_IDS // 2
            self._chores.later(lambda: self._reserve(behind))
        self._next_producer_id = behind
        return first

    def close(self) -> None:
        """Give back the reserved producer ids that were not assigned."""
        self._write(self._state._replace(next_producer_id=self._next_producer_id))

    def _reserve(self, behind: int) -> None:
        """Reserve the producer ids before ``behind``, and one more block behind all that are assigned by then."""
        self._write(self._state._replace(next_producer_id=max(behind, self._next_producer_id) + PRODUCER_IDS))

    def _write(self, state: BrokerState) -> None:
        self._file.write(state)
        self._state = state
