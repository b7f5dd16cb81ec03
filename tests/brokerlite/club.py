"""A group coordinator driven by hand, and members that keep its responses."""

import uuid
from dataclasses import replace
from typing import Any

from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.groups.group import Group, GroupState, Joined, Protocol, Synced
from ottla.brokerlite.machines.groups.group_directory import GroupDirectory
from ottla.brokerlite.machines.groups.group_settings import GroupSettings
from ottla.brokerlite.machines.groups.groups import Groups, LeavingMember, SyncRequest
from ottla.brokerlite.machines.groups.joins import JoinRequest
from ottla.brokerlite.machines.groups.offset_group import Committer
from ottla.brokerlite.machines.groups.offsets import Committed, Offsets
from ottla.brokerlite.machines.timers import Timers
from ottla.codec.consumer_protocol import ConsumerProtocolSubscription, build_subscription
from ottla.errors import BrokerError
from tests.brokerlite.machine import TODAY

WAITS = -99
"""Stands for the error code while there is no response yet."""
DELAY = 3.0
SESSION = 10.0
REBALANCE = 60.0


def subscription(*topics: str) -> bytes:
    return build_subscription(ConsumerProtocolSubscription(topics=topics or ("t",)), 0)


RANGE = (Protocol("range", subscription()),)
BOTH = (Protocol("range", subscription()), Protocol("sticky", subscription()))


class Person:
    """A possible member of the group ``g``, which keeps its responses."""

    def __init__(self, club: "Club", name: str, instance_id: str | None = None, **settings: Any) -> None:
        self.club = club
        self.name = name
        self.id = ""
        self.generation = -1
        self.instance_id = instance_id
        self.joined: list[Joined] = []
        self.synced: list[Synced] = []
        self.settings: dict[str, Any] = {"requires_id": False, "skips_assignment": True, "protocols": RANGE, **settings}

    def join(self, **changes: Any) -> int:
        """Send JoinGroup; the error code, or `WAITS`."""
        before = len(self.joined)
        asked = JoinRequest(
            group_id="g",
            member_id=self.id,
            instance_id=self.instance_id,
            client_id=self.name,
            client_host="/here",
            session_timeout_ms=int(SESSION * 1000),
            rebalance_timeout_ms=int(REBALANCE * 1000),
            protocol_type="consumer",
            reason="",
            answer=self._take,
            **self.settings,
        )
        self.club.groups.join(replace(asked, **changes), self.club.now)
        self.club.tick()
        return self.joined[before].error if len(self.joined) > before else WAITS

    def _take(self, joined: Joined) -> None:
        self.joined.append(joined)
        if joined.error in (0, 79):
            self.id, self.generation = joined.member_id, joined.generation

    def sync(self, **changes: Any) -> int:
        """Send SyncGroup, as the leader with all assignments; the error code, or `WAITS`."""
        before = len(self.synced)
        members = self.joined[-1].members if self.joined else ()
        asked = SyncRequest(
            group_id="g",
            generation=self.generation,
            member_id=self.id,
            instance_id=self.instance_id,
            protocol_type="consumer",
            protocol="range",
            assignments={each.member_id: f"for {each.member_id}".encode() for each in members},
            answer=self.synced.append,
        )
        self.club.groups.sync(replace(asked, **changes), self.club.now)
        self.club.tick()
        return self.synced[before].error if len(self.synced) > before else WAITS

    def heartbeat(self, generation: int | None = None) -> int:
        generation = self.generation if generation is None else generation
        return self.club.code(
            lambda: self.club.groups.heartbeat("g", self.id, self.instance_id, generation, self.club.now)
        )

    def leave(self) -> int:
        codes = list[int]()
        leaver = LeavingMember(self.id, self.instance_id)
        error = self.club.code(lambda: codes.extend(self.club.groups.leave("g", [leaver], self.club.now)))
        return error or codes[0]

    def commit(self, offset: int = 5, *, generation: int | None = None, version: int = 9) -> int:
        generation = self.generation if generation is None else generation
        return self.club.commit(offset, self.id, self.instance_id, generation, version=version)

    @property
    def leads(self) -> bool:
        return self.joined[-1].leader == self.id

    @property
    def assignment(self) -> bytes:
        return self.synced[-1].assignment


class Club:
    """A coordinator with one group, ``g``.

    Attributes:
        now: the time in seconds; `tick` advances it.
        stored: everything that the coordinator has stored, in its order.
        refuses: the error that storing raises, if any.
    """

    def __init__(self, **settings: Any) -> None:
        self.now = 100.0
        self.stored: list[Any] = []
        self.refuses: BrokerError | None = None
        numbers = iter(range(1, 10**9))
        known = GroupSettings(**{"initial_rebalance_delay": DELAY} | settings)
        self.clock = Clock.at(self.now, TODAY)
        self.groups = Groups(known, self._store_group, lambda: uuid.UUID(int=next(numbers)), self.clock, Timers())
        self.offsets = Offsets(GroupDirectory(self.groups), self._store_offsets)

    def _store_group(self, group: Group, gone: bool) -> None:
        if self.refuses:
            raise self.refuses
        members = {member.member_id: member.assignment for member in group.members.values()}
        self.stored.append(None if gone else (group.state, group.generation, members))

    def _store_offsets(self, group_id: str, offsets: Any, transactional: Any) -> int:
        if self.refuses:
            raise self.refuses
        self.stored.append(dict(offsets))
        return len(self.stored)

    @property
    def group(self) -> Group:
        return self.groups.by_id["g"]

    @property
    def state(self) -> GroupState | None:
        group = self.groups.by_id.get("g")
        return group.state if group else None

    def tick(self, seconds: float = 0.0) -> None:
        """Let time pass as a driver does, from deadline to deadline."""
        end = self.now + seconds
        while (deadline := self.groups.timers.deadline) is not None and deadline <= end:
            self._at(max(deadline, self.now))
        self._at(end)

    def _at(self, now: float) -> None:
        self.now = self.clock.now = now
        self.groups.timers.expire(now)

    def wait(self, seconds: float) -> int:
        """Like `tick`, but returns the error code 0."""
        self.tick(seconds)
        return 0

    def code(self, call: Any) -> int:
        """The error that ``call`` raises, or 0."""
        try:
            call()
        except BrokerError as error:
            return error.code
        finally:
            self.tick()
        return 0

    def commit(
        self,
        offset: int,
        member_id: str = "",
        instance_id: str | None = None,
        generation: int = -1,
        *,
        version: int = 9,
        place: tuple[str, int] = ("t", 0),
        expires: int = -1,
    ) -> int:
        def call() -> None:
            committer = Committer(member_id, instance_id, generation)
            group = self.offsets.begin_commit("g", committer, self.now, names_groups=version >= 9)
            self.offsets.commit(group, {place: Committed(offset, -1, "", self.groups.timestamp, expires)})

        return self.code(call)

    def person(self, name: str, instance_id: str | None = None, **settings: Any) -> Person:
        return Person(self, name, instance_id, **settings)

    def pair(
        self, state: GroupState = GroupState.STABLE, *, static: bool = False, **settings: Any
    ) -> tuple[Person, Person]:
        """Two members, the first of whom leads, and the group in a state of which they have heard.

        In PREPARING a third member has joined and waits for the others. In EMPTY both have left.
        """
        a = self.person("a", "instance-a" if static else None, **settings)
        b = self.person("b", "instance-b" if static else None, **settings)
        assert a.join() == b.join() == WAITS
        self.tick(2 * DELAY)
        assert a.leads and a.generation == b.generation == 1
        if state is GroupState.COMPLETING:
            return a, b
        assert b.sync() == WAITS and a.sync() == 0
        if state is GroupState.PREPARING:
            assert self.person("c").join() == WAITS
        elif state is GroupState.EMPTY:
            assert a.leave() == b.leave() == 0
        assert self.state is state
        return a, b
