"""The assignors that a member offers to its group: their subscriptions, and the leader's assignment.

Rules:
- The group chooses an assignor that all members offer. Another member may still send something that this one cannot
  work with; no further attempt can help then (`Incompatible`).
- An eager member owns nothing when it joins, but the sticky assignor's user data contains its last assignment.

Source: ConsumerCoordinator.java, AbstractStickyAssignor.java.
"""

from collections.abc import Sequence

from ottla.codec.apis.join_group import JoinGroupRequestProtocol, JoinGroupResponse
from ottla.errors import DecodeError, OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.group.assignors import Assignor, Member, build_subscription, parse_assigned, parse_member
from ottla.sdk.group.leader import run_assignor
from ottla.sdk.steps import Steps


class Incompatible(OttlaError):
    """Another member sent something that this one cannot work with: no further attempt can help."""


class OfferedAssignors:
    """Builds the subscriptions of one member of ``group``, and reads the bytes of other members."""

    def __init__(self, group: str, assignors: Sequence[Assignor], rack: str | None) -> None:
        self._group, self._assignors, self._rack = group, assignors, rack
        self.cooperative = all(each.cooperative for each in assignors)
        """The member keeps its partitions while it joins again (KIP-429)."""
        self._had: tuple[TopicPartition, ...] = ()
        """The last assignment; with its generation, it is passed to eager assignors."""
        self._had_in = -1

    def subscriptions(
        self, topics: Sequence[str], owned: tuple[TopicPartition, ...], generation: int
    ) -> Steps[Sequence[JoinGroupRequestProtocol]]:
        """The member's subscription, for each of its assignors."""
        assignors, rack, keeps = self._assignors, self._rack, self.cooperative
        if not keeps:
            owned, generation = self._had, self._had_in

        def build() -> list[JoinGroupRequestProtocol]:
            return [
                JoinGroupRequestProtocol(
                    name=each.name,
                    metadata=build_subscription(
                        each, topics, owned=owned, generation=generation, cooperative=keeps, rack=rack
                    ),
                )
                for each in assignors
            ]

        return run_assignor("', '".join(each.name for each in assignors), build)  # it may have user data of its own

    def chosen(self, protocol: str | None) -> Assignor:
        """The assignor that the group has chosen."""
        for each in self._assignors:
            if each.name == protocol:
                return each
        raise Incompatible(f"group {self._group!r} chose {protocol!r}, which this member did not offer")

    def members(self, joined: JoinGroupResponse) -> list[Member]:
        """The members as the leader gets them."""
        try:
            return [parse_member(each.member_id, each.group_instance_id, each.metadata) for each in joined.members]
        except DecodeError as error:
            wrong = f"a member of group {self._group!r} sent a subscription that cannot be parsed: {error}"
            raise Incompatible(wrong) from None

    def assigned(self, assignment: bytes, generation: int) -> tuple[TopicPartition, ...]:
        """The partitions in the leader's answer; eager assignors get them with the next subscription."""
        try:
            self._had, self._had_in = parse_assigned(assignment), generation
        except DecodeError as error:
            wrong = f"the leader of {self._group!r} sent an assignment that cannot be parsed: {error}"
            raise Incompatible(wrong) from None
        return self._had
