"""What Apache Kafka answers to sequences of steps, kept for the quick tests.

Run it with ``python -m tests.brokerlite.record_transactions``, when walks or scripts have changed, or Kafka has.
"""

import gzip
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests import kafka
from tests.brokerlite.brokers import Broker, Remote
from tests.brokerlite.transacting import Conversation, Step
from tests.brokerlite.transaction_scripts import SCRIPTS
from tests.brokerlite.transaction_walks import Walk

RECORDED = Path(__file__).parents[1] / "wire" / "transactions.jsonl.gz"
WALKS = 220
STARTED_SOONER = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}


def walked(seed: int, broker: Broker) -> Iterator[tuple[Step, Any]]:
    """The steps of a walk, each with the broker's answer."""
    walk, conversation = Walk(seed), Conversation(broker)
    for step, one in walk.steps():
        answer = conversation.perform(step)
        walk.learn(step, one, answer)
        yield step, answer


def said(steps: Iterable[Step], broker: Broker) -> Iterator[tuple[Step, Any]]:
    """Steps that are known beforehand, each with the broker's answer."""
    conversation = Conversation(broker)
    for step in steps:
        yield step, conversation.perform(step)


def record(broker: Broker) -> Iterator[dict[str, Any]]:
    """Everything."""
    for name, steps in SCRIPTS.items():
        yield {"name": name, "exchanges": list(said(steps, broker))}
    for seed in range(WALKS):
        yield {"name": f"walk {seed}", "exchanges": list(walked(seed, broker))}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        running = kafka.start(Path(folder), 1, STARTED_SOONER)
        try:
            lines = [json.dumps(each, separators=(",", ":")) for each in record(Remote(running.bootstrap))]
        finally:
            running.stop()
    RECORDED.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


if __name__ == "__main__":
    main()
