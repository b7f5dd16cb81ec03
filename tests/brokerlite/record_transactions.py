"""Records the responses of Apache Kafka to sequences of steps, for the quick tests.

Run it with ``python -m tests.brokerlite.record_transactions`` after a change of walks or scripts, or for a new Kafka.
"""

import gzip
import json
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ottla.codec.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.codec.apis.init_producer_id import InitProducerIdRequest
from tests import kafka
from tests.brokerlite.brokers import Broker, Remote
from tests.brokerlite.transacting import Conversation, Step
from tests.brokerlite.transaction_scripts import SCRIPTS
from tests.brokerlite.transaction_walks import HeldWalk, OffsetsWalk, Walk

RECORDED = Path(__file__).parents[1] / "wire" / "transactions.jsonl.gz"
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Kind(NamedTuple):
    """A kind of sequences.

    Attributes:
        release: the version of Kafka.
        holds: whether there are two nodes, of which the test pauses one now and then.
    """

    walk: Callable[[int], Walk]
    seeds: int
    release: str = "4.3"
    holds: bool = False


KINDS = {
    "walk": Kind(Walk, 220),
    "walk with offsets": Kind(OffsetsWalk, 60),
    "walk with late markers": Kind(HeldWalk, 60, holds=True),
    "walk of 3.9": Kind(lambda seed: Walk(seed, 1, "3.9"), 60, "3.9"),
    "walk with offsets of 3.9": Kind(lambda seed: OffsetsWalk(seed, 1, "3.9"), 40, "3.9"),
    "walk with late markers of 3.9": Kind(lambda seed: HeldWalk(seed, 1, "3.9"), 30, "3.9", holds=True),
}


def walked(walk: Walk, broker: Broker) -> Iterator[tuple[Step, Any]]:
    """The steps of a walk, each with the broker's response."""
    conversation = Conversation(broker)
    for step, one in walk.steps():
        answer = conversation.perform(step)
        walk.learn(step, one, answer)
        yield step, answer


def said(steps: Iterable[Step], broker: Broker) -> Iterator[tuple[Step, Any]]:
    """Steps that are fixed in advance, each with the broker's response."""
    conversation = Conversation(broker)
    for step in steps:
        yield step, conversation.perform(step)


def recorded_by(release: str, *, holds: bool, folder: Path) -> Iterator[dict[str, Any]]:
    """Start a Kafka, and record its responses."""
    running = kafka.start(folder, 1 + holds, SETTINGS, kafka.NOW if release == "4.3" else kafka.OLD[release])
    try:
        first = running.bootstrap.split(",")[0]
        if holds:
            place_internal_topics(first)
        broker = Remote(first, partial(pause, running) if holds else None)
        if release == "4.3" and not holds:
            for name, steps in SCRIPTS.items():
                yield {"name": name, "release": release, "exchanges": list(said(steps, broker))}
        for name, kind in KINDS.items():
            if (kind.release, kind.holds) == (release, holds):
                for seed in range(kind.seeds):
                    exchanges = list(walked(kind.walk(seed), broker))
                    yield {"name": f"{name} {seed}", "release": release, "exchanges": exchanges}
    finally:
        running.stop()


def pause(running: kafka.ApacheKafka, pauses: bool) -> None:
    """Pause the second node."""
    running.kill(1, signal.SIGSTOP if pauses else signal.SIGCONT)


def place_internal_topics(bootstrap: str) -> None:
    """Place the internal topics on the first node, so that it has all coordinators."""
    broker = Remote.peer(bootstrap)
    for name in ("__transaction_state", "__consumer_offsets"):
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=(CreatableReplicaAssignment(partition_index=0, broker_ids=(0,)),),
            configs=(CreatableTopicConfig(name="cleanup.policy", value="compact"),),
        )
        (created,) = broker.ask(CreateTopicsRequest(topics=(topic,)), 4).topics
        assert created.error_code == 0, created
    broker.close()
    Remote(bootstrap).ask(InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=1000), 4)


def main() -> None:
    lines = []
    for release, holds in dict.fromkeys((kind.release, kind.holds) for kind in KINDS.values()):
        with tempfile.TemporaryDirectory() as folder:
            for each in recorded_by(release, holds=holds, folder=Path(folder)):
                lines.append(json.dumps(each, separators=(",", ":")))
    RECORDED.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode(), mtime=0))


if __name__ == "__main__":
    main()
