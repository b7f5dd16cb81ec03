"""Members of share groups, of Java, librdkafka and ottla, as programs that tests start, stop and kill.

A program reads the topic until its standard input ends, and then leaves in good order. It releases records whose offset
is a multiple of 7 at their first delivery, and accepts all others. It prints ``delivered``, ``accepted`` or ``failed``,
and then the partition, the offset and the delivery count: when it gets a record, when the leader has stored its
acknowledgement, and when the acknowledgement has failed. The settings of ottla's member may have ``hold``: it keeps so
many records, the first that it gets, without an acknowledgement until SIGUSR1.

As a program: ``python -m tests.interop.sharing ottla TOPIC key=value…``, or ``librdkafka``.
"""

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import confluent_kafka
import trio

import ottla
from tests.interop.lines import settings
from tests.interop.members import input_ends
from tests.interop.peers import PeerFailed, Running
from tests.interop.programs import java_classes
from tests.kafka import java
from tests.patience import HUNG

WORKERS = 5
"""The number of records that ottla's member works on at a time."""
Delivery = tuple[int, int, int]
"""Partition, offset, delivery count."""


def _python(name: str) -> list[str]:
    return [sys.executable, "-m", "tests.interop.sharing", name]


COMMANDS: dict[str, Callable[[], list[str]]] = {
    "java": lambda: java("ShareJoin", classes=java_classes()),
    "librdkafka": lambda: _python("librdkafka"),
    "ottla": lambda: _python("ottla"),
}
_EXPLICIT = {"share.acknowledgement.mode": "explicit", "max.poll.records": "20"}
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "java": _EXPLICIT,
    "librdkafka": {"share.acknowledgement.mode": "explicit"},
    "ottla": {},
}


class ShareMember(Running):
    """A running member.

    Args:
        more: settings, in the client's own names.
        progressed: called in a thread for each record that it has accepted.

    Attributes:
        delivered, accepted, failed: the deliveries in its lines of this kind.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        group: str,
        more: Mapping[str, str] | None = None,
        progressed: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._progressed = progressed
        self.delivered: list[Delivery] = []
        self.accepted: list[Delivery] = []
        self.failed: list[Delivery] = []
        given = {"bootstrap.servers": bootstrap, "group.id": group, **SETTINGS[name], **(more or {})}
        super().__init__([*COMMANDS[name](), topic, *(f"{key}={value}" for key, value in given.items())])

    def release(self) -> None:
        """Let a member with ``hold`` acknowledge the records that it keeps."""
        self._process.send_signal(signal.SIGUSR1)

    def heard(self, line: str) -> None:
        kind, *numbers = line.split("\t")
        partition, offset, count = map(int, numbers)
        {"delivered": self.delivered, "accepted": self.accepted, "failed": self.failed}[kind].append(
            (partition, offset, count)
        )
        if kind == "accepted":
            self._progressed()

    def __str__(self) -> str:
        return f"{self.name}, {len(self.delivered)} delivered, {len(self.accepted)} accepted, {len(self.failed)} failed"


def until(condition: Callable[[], bool], members: Sequence[ShareMember], timeout: float = HUNG) -> None:
    """Wait until ``condition`` holds.

    Raises:
        PeerFailed: it did not hold in time, or a member has ended.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if ended := [each for each in members if not each.runs]:
            raise PeerFailed(f"{ended[0]} has ended:\n{ended[0].said()}")
        if time.monotonic() > deadline:
            raise PeerFailed("\n".join(f"{each}; it wrote: {each.said() or 'nothing'}" for each in members))
        time.sleep(0.05)


# -- the programs


def _say(kind: str, delivery: Delivery) -> None:
    print(kind, *delivery, sep="\t", flush=True)


async def _ottla(topic: str, config: dict[str, str]) -> None:
    over, hold, released = input_ends(), int(config.get("hold", 0)), trio.Event()
    async with (
        ottla.connect(config["bootstrap.servers"]) as client,
        client.share_consumer(topic, group=config["group.id"], max_records=20) as jobs,
    ):

        async def work() -> None:
            nonlocal hold
            while not over.is_set():
                record = await jobs.poll(0.2)
                if record is None:
                    continue
                delivery = (record.partition, record.offset, record.delivery_count)
                _say("delivered", delivery)
                if hold:
                    hold -= 1
                    await released.wait()
                try:
                    if record.delivery_count == 1 and record.offset % 7 == 0:
                        await record.release()
                    else:
                        await record.accept()
                        _say("accepted", delivery)
                except ottla.AcknowledgementFailed:
                    _say("failed", delivery)

        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            async with trio.open_nursery() as nursery:
                for _ in range(WORKERS):
                    nursery.start_soon(work)
                if hold:
                    await anext(signals)
                    released.set()


def _librdkafka(topic: str, config: dict[str, str]) -> None:
    over = input_ends()
    consumer = confluent_kafka.ShareConsumer(config)
    consumer.subscribe([topic])
    while not over.is_set():
        accepted: list[Delivery] = []
        for message in consumer.poll(0.2):
            assert message.error() is None, message.error()
            partition, offset, count = message.partition(), message.offset(), message.delivery_count()
            delivery = (partition or 0, offset or 0, count or 0)
            _say("delivered", delivery)
            if delivery[2] == 1 and delivery[1] % 7 == 0:
                consumer.acknowledge(message, confluent_kafka.AcknowledgeType.RELEASE)
            else:
                consumer.acknowledge(message)
                accepted.append(delivery)
        results = consumer.commit_sync()
        failed = {each.partition for each, error in results.items() if error is not None}
        for delivery in accepted:
            _say("failed" if delivery[0] in failed else "accepted", delivery)
    consumer.close()


def main(name: str, topic: str, *given: str) -> None:
    config = settings(given)
    if name == "ottla":
        trio.run(_ottla, topic, config)
    else:
        _librdkafka(topic, config)


if __name__ == "__main__":
    main(*sys.argv[1:])
