"""The proxy killed again and again under the load of transactional clients of others.

    python -m tests.proxy.transfers --kills 100

They make transfers and copy them (`tests.interop.transfers`), mostly to partitions that are not the keys'. In the end,
each transfer must be whole or absent, as its producer knows, copied once, and in the partitions of its keys.
"""

import argparse
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ottla.codec.partitioners import murmur2_partition
from tests.interop.kills import TRANSACTIONAL, Transactions
from tests.interop.raw_reader import RawReader
from tests.interop.transfers import CREDITS, DEBITS, PARTITIONS
from tests.proxy.kills import ORDERLY
from tests.proxy.storms import ProxyProcess

CLIENTS = tuple(name for name in TRANSACTIONAL if name != "sarama")
"""sarama is missing: after the loss of its only broker it may request metadata for ever, with or without a rewrite."""


class ProxiedTransactions(Transactions):
    """Ends of a proxy in front of a broker that keeps running."""

    def __init__(self, folder: Path, seed: int, clients: Sequence[str] = CLIENTS) -> None:
        super().__init__(folder, seed, clients)

    def _address(self, folder: Path) -> str:
        rules = [part for glob in (DEBITS, CREDITS, "passed-*") for part in ("--topic", f"{glob}=rewrite")]
        self.proxy = ProxyProcess(folder, self.broker.bootstrap, "--state", str(folder / "state"), *rules)
        return self.proxy.bootstrap

    def _kill(self) -> None:
        self.proxy.end(signal.SIGTERM if self._rng.random() < ORDERLY else signal.SIGKILL)
        self.proxy.start()
        self.kills += 1

    def check(self) -> None:
        super().check()
        with RawReader(self.broker.bootstrap) as reader:
            for topic in (DEBITS, CREDITS, *(each.name for each in self._passers)):
                for record in reader.uncommitted(topic):
                    place = murmur2_partition(record.key or b"", PARTITIONS)
                    assert record.partition == place, f"{topic}: {record} belongs to {place}"
        text = self.proxy.log.read_text()
        for complaint in ("Traceback", "please report it", "producer fenced"):
            assert complaint not in text, text[text.index(complaint) :][:3000]

    def end(self) -> None:
        super().end()
        self.proxy.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", default=",".join(CLIENTS), help="names between commas")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        ProxiedTransactions(Path(folder), asked.seed, asked.clients.split(",")) as storm,
    ):
        try:
            storm.run(asked.kills, asked.seconds)
        finally:
            print(storm.said(), flush=True)
        storm.check()
    print("everything is as it was told")


if __name__ == "__main__":
    main()
