"""Kills of the broker under members of several clients that read a topic together, as a consumer or a share group.

A producer sends numbers. Before some kills a member is killed, or leaves, and another one of its client joins. In the
end:

- The members have read or accepted every record.
- Kafka's DumpLogSegments reads the coordinators' logs, and at every moment in them a partition had one owner, and no
  offset went backwards (`tests.interop.coordinator_logs`).
- A share group told no two members that their acknowledgement of a record counts.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.brokerlite.peer import Peer
from tests.brokerlite.sharing import configure, describe, progress
from tests.interop.coordinator_logs import (
    CONSUMER_OFFSETS,
    SHARE_STATE,
    check_commits,
    check_owners,
    check_share_state,
    stored,
)
from tests.interop.members import CONSUMER_PROTOCOL, Member
from tests.interop.peers import LIBRDKAFKA, PeerFailed
from tests.interop.raw_reader import RawReader
from tests.interop.sharing import ShareMember
from tests.interop.storm import Storm, await_ends
from tests.interop.streams import Streamer
from tests.interop.transfers import Steps, until

GROUP = "g"
PARTITIONS = 8
PAUSE = 0.25
"""Seconds between a hundred records: members of five clients read that on two busy cores."""
REPLACED, KILLED = 0.5, 0.7
"""The share of kills before which a member is replaced, and of these the ones that do not leave."""
SOON_BACK = {"librdkafka": LIBRDKAFKA.soon_back}

M = TypeVar("M", Member, ShareMember)


class MemberStorm(Storm, Generic[M]):
    """A storm under members of a group, which read the records of a producer.

    Attributes:
        members: all members, also the ones that have ended.
    """

    before_a_kill = 1500
    topic: ClassVar[str]

    def __init__(self, folder: Path, seed: int, clients: Sequence[str], settings: dict[str, str]) -> None:
        super().__init__(folder, seed, Steps(), [self.topic], PARTITIONS, settings)
        self._stack = ExitStack()
        self._streamer = Streamer(
            LIBRDKAFKA, self.broker.bootstrap, self.topic, self._steps, partitions=PARTITIONS, pause=PAUSE
        )
        self._prepare()
        self.members: list[M] = []
        self._working: dict[str, M] = {}
        self._killed: list[M] = []
        for client in clients:
            self._join(client)

    def _prepare(self) -> None:
        """Called before the first member joins."""

    @abstractmethod
    def _start(self, client: str, progressed: Callable[[], None]) -> M: ...

    def _join(self, client: str) -> None:
        name = f"{client}-{len(self.members)}"
        member = self._stack.enter_context(self._start(client, partial(self._steps.step, name)))
        self.members.append(member)
        self._working[name] = member

    def _peer(self) -> Peer:
        host, _, port = self.broker.bootstrap.rpartition(":")
        return Peer(int(port), host)

    @property
    def clients(self) -> Sequence[Streamer]:
        return [self._streamer]

    @property
    def names(self) -> list[str]:
        return [self.topic, *self._working]

    def kill(self) -> None:
        self._check_running()
        if self._rng.random() < REPLACED:
            name = self._rng.choice(list(self._working))
            member = self._working.pop(name)
            if self._rng.random() < KILLED:
                member.kill()
                self._killed.append(member)
            else:
                member.close()
            self._join(name.rpartition("-")[0])
        super().kill()

    def _check_running(self) -> None:
        for name, member in self._working.items():
            if not member.runs:
                raise PeerFailed(f"{name} has ended:\n{member.said()}")

    def finish(self) -> None:
        await_ends(self.clients)
        until(self._is_complete, f"the end of {self.topic}")
        for member in self._working.values():
            member.close()

    def _is_complete(self) -> bool:
        self._check_running()
        return self._has_ended()

    @abstractmethod
    def _has_ended(self) -> bool:
        """Whether the group has nothing left to do."""

    def check(self) -> None:
        with RawReader(self.broker.bootstrap) as reader:
            self._streamer.check(reader.committed(self.topic))
        places = {(each.partition, each.offset) for each in self._streamer.outcomes}
        self._check_members(places)

    @abstractmethod
    def _check_members(self, places: set[tuple[int, int]]) -> None:
        """Check that the group has read or accepted the records at ``places``."""

    @property
    def _ends(self) -> dict[int, int]:
        counts = Counter(each.partition for each in self._streamer.outcomes)
        return {partition: counts[partition] for partition in range(PARTITIONS)}

    def said(self) -> str:
        return f"{self.kills} kills; records: {dict(self._steps.steps)}; members killed: {len(self._killed)}"

    def end(self) -> None:
        self._stack.close()
        super().end()


class Groups(MemberStorm[Member]):
    """A storm under a consumer group of KIP-848."""

    topic = "grouped"

    def __init__(
        self, folder: Path, seed: int, clients: Sequence[str] = ("ottla", "ottla", "java", "librdkafka", "franz-go")
    ) -> None:
        settings = {"group.consumer.heartbeat.interval.ms": "300", "group.consumer.session.timeout.ms": "8000"}
        super().__init__(folder, seed, clients, settings)

    def _start(self, client: str, progressed: Callable[[], None]) -> Member:
        return CONSUMER_PROTOCOL[client].join(
            self.broker.bootstrap, self.topic, GROUP, config=SOON_BACK.get(client), progressed=progressed
        )

    def _has_ended(self) -> bool:
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=GROUP, topics=None),), require_stable=False
        )
        with self._peer() as peer:
            (answer,) = peer.ask(request).groups
        committed = sum(int(each.committed_offset) for topic in answer.topics for each in topic.partitions)
        return committed == len(self._streamer.outcomes)

    def _check_members(self, places: set[tuple[int, int]]) -> None:
        read = {(record.partition, record.offset) for member in self.members for record in member.records}
        assert read == places, f"not read: {sorted(places - read)[:9]}, not sent: {sorted(read - places)[:9]}"
        records = stored(self.broker.data / "__consumer_offsets-0", CONSUMER_OFFSETS)
        check_owners(records, GROUP)
        assert check_commits(records, GROUP) == self._ends


class Shares(MemberStorm[ShareMember]):
    """A storm under a share group."""

    topic = "shared"

    def __init__(
        self, folder: Path, seed: int, clients: Sequence[str] = ("ottla", "ottla", "java", "librdkafka")
    ) -> None:
        settings = {
            "group.share.heartbeat.interval.ms": "300",
            "group.share.session.timeout.ms": "8000",
            "group.share.record.lock.duration.ms": "8000",
            "group.share.delivery.count.limit": "100",  # each record is accepted in the end, none archived
        }
        super().__init__(folder, seed, clients, settings)

    def _prepare(self) -> None:
        with self._peer() as peer:
            (answer,) = peer.ask(configure(auto_offset_reset="earliest")).responses
            assert answer.error_code == 0, answer

    def _start(self, client: str, progressed: Callable[[], None]) -> ShareMember:
        more = SOON_BACK.get(client)
        return ShareMember(client, self.broker.bootstrap, self.topic, GROUP, more, progressed)

    def _has_ended(self) -> bool:
        with self._peer() as peer:
            partitions = progress(peer.ask(describe()))
        starts = {partition: start for (_, partition), (start, _) in partitions.items()}
        return starts == self._ends

    def _check_members(self, places: set[tuple[int, int]]) -> None:
        accepted = Counter(each[:2] for member in self.members for each in member.accepted)
        twice = [place for place, count in accepted.items() if count > 1]
        assert not twice, f"accepted twice: {twice[:9]}"
        assert accepted.keys() <= places
        # A killed member may have accepted records silently, and a killed broker may have stored results silently.
        untold = {each[:2] for member in self._killed for each in member.delivered}
        untold |= {each[:2] for member in self.members for each in member.failed}
        lost = places - accepted.keys() - untold
        assert not lost, f"not accepted: {sorted(lost)[:9]}"
        records = stored(self.broker.data / "__share_group_state-0", SHARE_STATE)
        assert check_share_state(records, GROUP) == self._ends
        stored(self.broker.data / "__consumer_offsets-0", CONSUMER_OFFSETS)
