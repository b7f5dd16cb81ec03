"""The settings of a chaos run's worker, as JSON on its command line."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

Role = Literal["producer", "consumer", "teller", "transformer"]


@dataclasses.dataclass(frozen=True)
class Setup:
    """Settings of a worker, durations in seconds; a role ignores the settings that it does not use."""

    role: Role
    name: str
    bootstrap: str
    topic: str
    journal: str
    seed: int
    rate: float = 100.0
    """Records a second, for a producer; transactions a second, for a teller."""
    delivery_timeout: float = 90.0
    group: str = ""
    assignors: Sequence[str] = ()
    session_timeout: float = 10.0
    heartbeat_interval: float = 1.0
    max_poll_interval: float = 15.0
    output: str = ""
    """The second topic of a teller, or the topic that a transformer writes to."""
    partitions: int = 0
    """Partitions of each topic."""
    transactional_id: str = ""
    transaction_timeout: float = 60.0
    ca: str = ""
    """The file of the CA in a secured run: the client uses TLS, and logs in as the user with the name of its role."""
    password: str = ""

    @property
    def slowness(self) -> float:
        """The duration of the handler after SIGUSR1."""
        return self.max_poll_interval + 5.0
