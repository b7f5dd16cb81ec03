"""A transaction that hangs."""

from ottla.brokerlite.serve import Running
from ottla.testing import Broker


def lose(broker: Broker, transactional_id: str) -> None:
    """Have the coordinator know nothing of an id any more, as if a power cut had taken it; its partitions still do."""

    def forget(running: Running) -> None:
        core = running._core
        core.timers.cancel(("transaction", transactional_id))
        del core.transactions.by_id[transactional_id]

    broker._call(forget)
