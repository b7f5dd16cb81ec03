"""Mutations of the client's second group protocol (KIP-848), as in `tests.sim.mutations`."""

from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from ottla.codec.apis.consumer_group_heartbeat import JOIN, Assignment, TopicPartitions
from ottla.errors import ConnectionLost, StaleMemberEpoch
from ottla.sdk.consume.assignment import resuming
from ottla.sdk.consume.assignment.committing import Committing
from ottla.sdk.consume.assignment.notices import Notices
from ottla.sdk.consume.commit_calls import CommitCalls
from ottla.sdk.consume.reading.fetcher import Fetcher
from ottla.sdk.flow import sleep
from ottla.sdk.group import consumer_group_member, offset_commits, protocol_choice
from ottla.sdk.group.consumer_group_member import ConsumerGroupMember
from ottla.sdk.group.consumer_member_states import ConsumerMemberState
from ottla.sdk.group.goodbye import nothing_to_say
from ottla.sdk.group.heartbeat_fields import HeartbeatFields
from ottla.sdk.group.protocol_choice import ChoosingMember
from tests.sim.mutations import Mutations

OF_GROUPS = Mutations("groups", within=300)
MUTATIONS, _mutation = OF_GROUPS.known, OF_GROUPS.add
OF_GROUP_TRANSFORMS = Mutations("group-transforms", within=100)
"""Of transforms in a group of KIP-848."""
TRANSFORM_MUTATIONS, _transform_mutation = OF_GROUP_TRANSFORMS.known, OF_GROUP_TRANSFORMS.add


def _nothing(_: Any) -> Any:
    return lambda *_: None


def _reported_while_it_is_read(ask: Any) -> Any:
    def broken(self: ConsumerGroupMember, node: Any, request: Any) -> Any:
        if request.topic_partitions and request.member_epoch != JOIN:
            kept = (
                TopicPartitions(
                    topic_id=each.topic_id,
                    partitions=tuple(p for p in each.partitions if (each.topic_id, p) in self._assigned),
                )
                for each in request.topic_partitions
            )
            request = replace(request, topic_partitions=tuple(each for each in kept if each.partitions))
        return (yield from ask(self, node, request))

    return broken


def _whatever_was_due(_: Any) -> Any:
    return lambda commits: commits


def _as_long_as_a_call_may_take(settled: Any) -> Any:
    return lambda self, places=None, timeout=0.0: settled(self, places)


def _all_is_kept(_: Any) -> Any:
    def broken(self: ConsumerGroupMember, why: str, now: float) -> None:
        self._stop()
        self.generation, self._assigned = -1, frozenset()

    return broken


def _an_old_epoch_is_good_enough(codes: Any) -> Any:
    def broken(answer: Any) -> Any:
        return {place: 0 if code == StaleMemberEpoch.code else code for place, code in codes(answer).items()}

    return broken


def _no_retry_then(refused: Any) -> Any:
    def broken(self: ConsumerGroupMember, error: Any, identity: Any, now: float) -> bool:
        return bool(refused(self, error, identity, now)) and identity == self.identity

    return broken


def _no_assignment_is_an_empty_one(take: Any) -> Any:
    def broken(self: ConsumerGroupMember, answer: Any, now: float) -> None:
        answer.assignment = answer.assignment or Assignment(topic_partitions=())
        take(self, answer, now)

    return broken


def _not_while_partitions_are_given_up(until: Any) -> Any:
    def broken(self: ConsumerGroupMember, when: float) -> Any:
        if self._partitions.revoking:
            yield self._urgent
        else:
            yield from until(self, when)

    return broken


def _only_if_something_changes(_: Any) -> Any:
    def broken(self: ConsumerGroupMember, when: float) -> Any:
        yield self._urgent

    return broken


def _nobody_waits_for_the_goodbye(say_good_bye: Any) -> Any:
    def broken(self: ConsumerGroupMember, now: float, until: float) -> None:
        say_good_bye(self, now, until)
        self._leaving = nothing_to_say()

    return broken


def _the_first_epoch_lasts(take: Any) -> Any:
    def broken(self: ConsumerGroupMember, answer: Any, now: float) -> None:
        if self.generation > 0:
            answer.member_epoch = self.generation
        take(self, answer, now)

    return broken


def _not_while_another_is_reconciled(take: Any) -> Any:
    def broken(self: ConsumerGroupMember, answer: Any, now: float) -> None:
        if self.state is ConsumerMemberState.RECONCILING:
            answer.assignment = None
        take(self, answer, now)

    return broken


def _to_the_end(reconcile: Any) -> Any:
    unfinished: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
    """The flow of heartbeats -> the assignment that its member reconciles."""

    def broken(self: ConsumerGroupMember) -> Any:
        assigned = unfinished.setdefault(self._living, self._assigned)
        steps = reconcile(self)
        while True:
            newest, self._assigned = self._assigned, assigned
            try:
                wait = next(steps)
            except StopIteration:
                del unfinished[self._living]
                return
            finally:
                self._assigned = newest
            yield wait

    return broken


def _whatever_the_metadata_have(_: Any) -> Any:
    def broken(core: Any, ids: Any, subscribed: Any) -> Any:
        yield from sleep(core, 1.0)

    return broken


def _owned_ones_only_with_all_fields(build: Any) -> Any:
    def broken(self: HeartbeatFields, epoch: int, topics: Any, owned: Any) -> Any:
        request = build(self, epoch, topics, owned)
        return request if request.rebalance_timeout_ms >= 0 else replace(request, topic_partitions=None)

    return broken


def _only_changed_ones(build: Any) -> Any:
    def broken(self: HeartbeatFields, epoch: int, topics: Any, owned: Any) -> Any:
        self._owned_too = False
        return build(self, epoch, topics, owned)

    return broken


def _names_only_when_joining(build: Any) -> Any:
    def broken(self: HeartbeatFields, epoch: int, topics: Any, owned: Any) -> Any:
        request = build(self, epoch, topics, owned)
        return request if request.rebalance_timeout_ms >= 0 else replace(request, subscribed_topic_names=None)

    return broken


def _the_epoch_before(identity: Any) -> Any:
    def broken(self: ConsumerGroupMember) -> Any:
        found = identity.fget(self)
        return found._replace(generation=max(found.generation - 1, 1)) if found else None

    return property(broken)


def _none_is_owned(_: Any) -> Any:
    return property(lambda self: self._membership is not None and not self._membership.owned)


def _also_one_with_members(is_free: Any) -> Any:
    def broken(self: ChoosingMember, node: Any) -> Any:
        yield from is_free(self, node)
        return True

    return broken


def _without_asking(_: Any) -> Any:
    def broken(_: ChoosingMember) -> Any:
        return True
        yield

    return broken


_mutation(
    "partitions are reported as given up while they are read", (ConsumerGroupMember, "_ask", _reported_while_it_is_read)
)
_mutation("a commit that is refused in an epoch that is over fails", (ConsumerGroupMember, "refused", _no_retry_then))
_mutation("a member that the group expelled keeps its partitions", (ConsumerGroupMember, "_forget", _all_is_kept))
_mutation("a commit in an old epoch passes for stored", (offset_commits, "_codes", _an_old_epoch_is_good_enough))
_mutation("after a lost response only changes are sent", (HeartbeatFields, "send_all", _nothing))
_mutation(
    "a response without an assignment revokes all", (ConsumerGroupMember, "_take", _no_assignment_is_an_empty_one)
)
_mutation(
    "no heartbeat is sent while partitions are given up",
    (ConsumerGroupMember, "_until", _not_while_partitions_are_given_up),
)
_mutation("heartbeats are sent only after changes", (ConsumerGroupMember, "_until", _only_if_something_changes))
_mutation(
    "a member joins again before its goodbye has ended",
    (ConsumerGroupMember, "_say_good_bye", _nobody_waits_for_the_goodbye),
)
_mutation("the first epoch lasts", (ConsumerGroupMember, "_take", _the_first_epoch_lasts))
_mutation(
    "an assigned topic that the metadata lack is never looked up",
    (consumer_group_member, "look_up", _whatever_the_metadata_have),
)
_mutation(
    "an assignment is dropped that comes before the last one is reconciled",
    (ConsumerGroupMember, "_take", _not_while_another_is_reconciled),
)
_mutation(
    "an assignment is reconciled to its end, and newer ones are not", (ConsumerGroupMember, "_reconcile", _to_the_end)
)
_mutation("losses are forgotten when a classic member takes over", (protocol_choice, "Lose", lambda _: ()))
_mutation("given up partitions are not reported", (HeartbeatFields, "build", _owned_ones_only_with_all_fields))
_mutation("partitions are reported only if they have changed", (HeartbeatFields, "build", _only_changed_ones))
_mutation("a member leaves without a goodbye", (ConsumerGroupMember, "_say_good_bye", _nothing))
_mutation("a changed subscription is not sent", (HeartbeatFields, "build", _names_only_when_joining))
_mutation("an old epoch where offsets are fetched stops the consumer", (resuming, "OF_THE_MEMBER", lambda _: ()))
_mutation("commits have the epoch before", (ConsumerGroupMember, "identity", _the_epoch_before))
_mutation("a group misses the topics of the broker's pattern that are deleted", (Fetcher, "let_go", _nothing))
_mutation("a commit that timed out counts as not stored", (offset_commits, "NO_ANSWER", lambda _: (ConnectionLost,)))
_mutation(
    "a member that has lost partitions, and owns some again, gives them up in order",
    (Notices, "gone", _none_is_owned),
)
_mutation("offsets of a deleted topic are committed for its successor", (Committing, "log_changed", _nothing))
_mutation("a commit that waits is sent as it was made", (offset_commits, "lasting", _whatever_was_due))
_mutation("a revocation waits too long for its commits", (CommitCalls, "settled", _as_long_as_a_call_may_take))
_mutation("a member that may choose converts a classic group", (ChoosingMember, "_is_free", _also_one_with_members))
_mutation("a member that has chosen joins again without asking", (ChoosingMember, "_may_join", _without_asking))
_transform_mutation(
    "a transaction in an old epoch ends the membership",
    (consumer_group_member, "_OLD_EPOCH", lambda _: (StaleMemberEpoch,)),
)
_transform_mutation("offsets of a deleted topic are committed for its successor", (Committing, "log_changed", _nothing))
_transform_mutation("transactions have the epoch before", (ConsumerGroupMember, "identity", _the_epoch_before))
