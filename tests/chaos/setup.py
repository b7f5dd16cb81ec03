"""What a worker of a chaos run is given, as JSON on its command line."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

Role = Literal["producer", "consumer", "teller", "transformer"]


@dataclasses.dataclass(frozen=True)
class Setup:
    """Durations in seconds; what a role has no use for is left as it is."""

    role: Role
    name: str
    bootstrap: str
    topic: str
    journal: str
    seed: int
    rate: float = 100.0
    """Records a second, of a producer; transactions, of a teller."""
    delivery_timeout: float = 90.0
    group: str = ""
    assignors: Sequence[str] = ()
    session_timeout: float = 10.0
    heartbeat_interval: float = 1.0
    max_poll_interval: float = 15.0
    output: str = ""
    """The other topic of a teller, or the one that a transformer writes to."""
    partitions: int = 0
    """Of each topic."""
    transactional_id: str = ""
    transaction_timeout: float = 60.0

    @property
    def slowness(self) -> float:
        """How long the handler takes that SIGUSR1 asks for."""
        return self.max_poll_interval + 5.0
