"""Sequences of requests to consumer groups that are written by hand.

They are about errors, static members, topics that change, classic members, and groups that change their protocol.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ottla.codec.consumer_protocol import ConsumerProtocolAssignment, build_assignment
from ottla.errors import RebalanceInProgress
from tests.brokerlite.consumer_group_lines import MachineLine, create, delete, grow
from tests.brokerlite.consumer_group_walks import Asking, Said
from tests.patience import HUNG


def invalid(asking: Asking) -> Iterator[Said]:
    cases: dict[str, dict[str, Any]] = {
        "no topics": {"subscribed_topic_names": None},
        "no timeout": {"rebalance_timeout_ms": -1},
        "partitions": {"owned": {"three": [0]}},
        "partitions unknown": {"owned": None},
        "empty instance": {"instance_id": ""},
        "blank rack": {"rack_id": " "},
        "an assignor": {"server_assignor": "sticky"},
        "blank group": {"group": " "},
    }
    for case, told in cases.items():
        yield case, asking.said(asking.join("m1", "three", **told))
    yield "no member id", asking.said(asking.join("", "three"))
    yield "epoch -3", asking.said(asking.heartbeat("m1", -3))
    yield "static leave without instance", asking.said(asking.heartbeat("m1", -2))
    yield "leave without member id", asking.said(asking.heartbeat("", -1, version=0))
    yield "leave of no group", asking.said(asking.heartbeat("m1", -1))
    yield "beat of no group", asking.said(asking.heartbeat("m1", 3))
    yield "described", asking.described()
    yield "deleted", asking.deleted()


def made_ids(asking: Asking) -> Iterator[Said]:
    answer = asking.join("", "three", version=0)
    yield "join", asking.said(answer)
    yield "beat", asking.said(asking.heartbeat(answer.member_id, answer.member_epoch, version=0))
    yield "again", asking.said(asking.join("", "three", version=0))
    yield "leave", asking.said(asking.heartbeat(answer.member_id, -1, version=0))
    yield "described", asking.described()


def empty_subscription(asking: Asking) -> Iterator[Said]:
    yield "join", asking.said(asking.join("m1", subscribed_topic_names=()))
    yield "described", asking.described()
    yield "subscribe", asking.said(asking.heartbeat("m1", 1, subscribed_topic_names=("three",)))
    yield "described", asking.described()
    yield "nothing again", asking.said(asking.heartbeat("m1", 2, owned={"three": [0, 1, 2]}, subscribed_topic_names=()))
    yield "given up", asking.said(asking.heartbeat("m1", 2, owned={}))
    yield "described", asking.described()


def life(asking: Asking) -> Iterator[Said]:
    yield "join", asking.said(asking.join("m1", "three", rack_id="r", server_assignor="range"))
    yield "listed", asking.listed("consumer")
    yield "listed by state", asking.listed(states=("stable",))
    yield "listed as classic", asking.listed("classic")
    yield "described as classic", asking.described_as_classic()
    yield "described as classic, long ago", asking.described_as_classic(5)
    yield "commit", asking.commit("m1", 2, {"three": [0, 1]})
    yield "commit by id", asking.commit("m1", 2, {"three": [2]}, version=10)
    yield "commit, long ago", asking.commit("m1", 2, {"three": [0]}, version=8)
    yield "commit of nobody", asking.commit("", -1, {"three": [0]})
    yield "commit of a stranger", asking.commit("x", 2, {"three": [0]})
    yield "commit too new", asking.commit("m1", 3, {"three": [0]})
    yield "fetch", asking.fetched()
    yield "fetch of the member", asking.fetched("m1", 2)
    yield "fetch too old", asking.fetched("m1", 1)
    yield "fetch of a stranger", asking.fetched("x", 2)
    yield "offsets deleted", asking.offsets_deleted("three")
    yield "others deleted", asking.offsets_deleted("seven")
    yield "deleted", asking.deleted()
    yield "leave", asking.said(asking.heartbeat("m1", -1))
    yield "leave again", asking.said(asking.heartbeat("m1", -1))
    yield "described", asking.described()
    yield "listed", asking.listed()
    yield "commit of nobody", asking.commit("", -1, {"three": [0]}, offset=7)
    yield "commit with an epoch", asking.commit("m1", 2, {"three": [0]})
    yield "offsets deleted", asking.offsets_deleted("three")
    yield "deleted", asking.deleted()
    yield "described", asking.described()
    yield "fetch", asking.fetched("m1", 2)


def moving(asking: Asking) -> Iterator[Said]:
    """Partitions move from one member to another, step by step."""
    yield "m1", asking.said(asking.join("m1", "three"))
    yield "m2", asking.said(asking.join("m2", "three"))
    yield "m1 hears", asking.said(asking.heartbeat("m1", 2))
    yield "m2 waits", asking.said(asking.heartbeat("m2", 3))
    yield "described", asking.described()
    yield "m1 still has", asking.said(asking.heartbeat("m1", 2, owned={"three": [0, 1, 2]}))
    yield "m1 commits what it must give up", asking.commit("m1", 2, {"three": [2]})
    yield "m1 has given up", asking.said(asking.heartbeat("m1", 2, owned={"three": [0, 1]}))
    yield "m1 commits too late", asking.commit("m1", 2, {"three": [2]})
    yield "m1 commits what it has", asking.commit("m1", 2, {"three": [0, 1]})
    yield "m1 commits both", asking.commit("m1", 2, {"three": [0, 2]})
    yield "m1 has lost the answer", asking.said(asking.heartbeat("m1", 2, owned={"three": [0, 1]}))
    yield "m1 has lost too much", asking.said(asking.heartbeat("m1", 2, owned={"three": [0, 2]}))
    yield "m2 gets it", asking.said(asking.heartbeat("m2", 3))
    yield "m2 commits", asking.commit("m2", 3, {"three": [2]})
    yield "m2 commits with an old epoch", asking.commit("m2", 2, {"three": [2]})
    yield "described", asking.described()
    yield "m2 leaves", asking.said(asking.heartbeat("m2", -1))
    yield "m1 gets all", asking.said(asking.heartbeat("m1", 3))
    yield "m1 rejoins", asking.said(asking.join("m1", "three"))
    yield "described", asking.described()


def transactional(asking: Asking) -> Iterator[Said]:
    """Offsets that are part of a transaction: their member and its epoch are checked."""
    commit = partial(asking.commit_in_transaction, asking.producer())
    yield "commit to no group", commit("m1", 2, [0])
    yield "join", asking.said(asking.join("m1", "three"))
    yield "commit", commit("m1", 2, [0, 1])
    yield "commit too old", commit("m1", 1, [0])
    yield "commit too new", commit("m1", 3, [0])
    yield "commit of a stranger", commit("x", 2, [0])
    yield "commit of a stranger without an epoch", commit("x", -1, [0])
    yield "commit of a member without an epoch", commit("m1", -1, [0])
    yield "commit of nobody", commit("", -1, [0])
    yield "commit of nobody with an epoch", commit("", 2, [0])
    yield "m2", asking.said(asking.join("m2", "three"))
    yield "m1 hears", asking.said(asking.heartbeat("m1", 2, owned={"three": [0, 1, 2]}))
    yield "m1 commits what it must give up", commit("m1", 2, [2])
    yield "m1 has given up", asking.said(asking.heartbeat("m1", 2, owned={"three": [0, 1]}))
    yield "m1 commits what it has, under the old epoch", commit("m1", 2, [0, 1])
    yield "m1 commits too late", commit("m1", 2, [2])
    yield "m1 commits both", commit("m1", 2, [0, 2])
    yield "m2 gets it", asking.said(asking.heartbeat("m2", 3))
    yield "m2 commits", commit("m2", 3, [2])
    yield "m1 leaves", asking.said(asking.heartbeat("m1", -1))
    yield "m1 commits after it left", commit("m1", 3, [0])
    yield "m2 leaves", asking.said(asking.heartbeat("m2", -1))
    yield "commit to an empty group with an epoch", commit("m2", 3, [0])
    yield "commit to an empty group", commit("", -1, [0])


def static(asking: Asking) -> Iterator[Said]:
    yield "join", asking.said(asking.join("m1", "three", instance_id="i"))
    yield "another", asking.said(asking.join("m2", "three", instance_id="i"))
    yield "beat of the other", asking.said(asking.heartbeat("m2", 2, instance_id="i"))
    yield "beat of no instance", asking.said(asking.heartbeat("m1", 2, instance_id="j"))
    yield "beat without the instance", asking.said(asking.heartbeat("m1", 2))
    yield "leave of the other", asking.said(asking.heartbeat("m2", -1, instance_id="i"))
    yield "leave of no instance", asking.said(asking.heartbeat("m1", -2, instance_id="j"))
    yield "away", asking.said(asking.heartbeat("m1", -2, instance_id="i"))
    yield "described", asking.described()
    yield "beat while away", asking.said(asking.heartbeat("m1", 2, instance_id="i"))
    yield "commit while away", asking.commit("m1", 2, {"three": [0]})
    yield "back", asking.said(asking.join("m3", "three", instance_id="i"))
    yield "described", asking.described()
    yield "commit", asking.commit("m3", 2, {"three": [0]})
    yield "away again", asking.said(asking.heartbeat("m3", -2, instance_id="i"))
    yield "back with another subscription", asking.said(asking.join("m4", "seven", instance_id="i"))
    yield "given up", asking.said(asking.heartbeat("m4", 3, instance_id="i", owned={}))
    yield "described", asking.described()
    yield "left", asking.said(asking.heartbeat("m4", -1, instance_id="i"))
    yield "described", asking.described()
    yield "new", asking.said(asking.join("m5", "seven", instance_id="i"))


def slow(asking: Asking) -> Iterator[Said]:
    """A member that does not give up its partitions in time is removed."""
    yield "m1", asking.said(asking.join("m1", "three", rebalance_timeout_ms=700))
    yield "m2", asking.said(asking.join("m2", "three"))
    yield "m1 must give up", asking.said(asking.heartbeat("m1", 2, owned={"three": [0, 1, 2]}))
    asking.line.pass_time(1.0)
    yield "m1 is late", asking.said(asking.heartbeat("m1", 2, owned={"three": [0, 1]}))
    yield "m2 gets all", asking.said(asking.heartbeat("m2", 3))
    yield "described", asking.described()


def _until(asking: Asking, member_id: str, epoch: int, owned: Any = None) -> Any:
    """Send heartbeats until the group's epoch has risen: a coordinator learns of topics a little later."""
    deadline = time.monotonic() + HUNG
    while True:
        answer = asking.heartbeat(member_id, epoch, owned=owned)
        if answer.error_code or answer.assignment is not None or isinstance(asking.line, MachineLine):
            return answer
        assert time.monotonic() < deadline
        time.sleep(0.05)


def changing_topics(asking: Asking) -> Iterator[Said]:
    name = asking.group.replace(" ", "-").replace("~", "-")
    yield "join", asking.said(asking.join("m1", name))
    asking.topics[name] = create(asking.line, name, 2)
    yield "created", _renamed(asking, name, _until(asking, "m1", 2))
    grow(asking.line, name, 3)
    yield "grown", _renamed(asking, name, _until(asking, "m1", 3))
    delete(asking.line, name)
    owned = {name: [0, 1, 2]}
    yield "deleted", _renamed(asking, name, _until(asking, "m1", 4, owned))
    yield "given up", _renamed(asking, name, asking.heartbeat("m1", 4, owned={}))
    asking.topics[name] = create(asking.line, name, 1)
    yield "created again", _renamed(asking, name, _until(asking, "m1", 5))


def _renamed(asking: Asking, name: str, answer: Any) -> list[Any]:
    said = asking.said(answer)
    if isinstance(said[-1], dict):
        said[-1] = {"own" if key == name else key: value for key, value in said[-1].items()}
    return said


# -- classic members


def empty_classic(asking: Asking) -> Iterator[Said]:
    """An empty group takes the protocol of its first member."""
    yield "commit", asking.commit("", -1, {"three": [0]})
    yield "listed", asking.listed()
    yield "join", asking.said(asking.join("m1", "three"))
    yield "fetch", asking.fetched("m1", 2)
    yield "listed", asking.listed()
    yield "leave", asking.said(asking.heartbeat("m1", -1))
    asked = asking.classic_join(group_instance_id="i")()
    yield "classic join", asking.joined(asked)
    yield "listed", asking.listed()
    yield "fetch", asking.fetched()
    yield "described", asking.described()
    yield "classic leave", asking.classic_leave(("", "i"))
    yield "join", asking.said(asking.join("m1", "three"))
    yield "described", asking.described()


def _classic_pair(asking: Asking) -> tuple[str, str]:
    """A stable classic group of two static members, which have two partitions and one."""
    first = asking.classic_join(group_instance_id="a")()
    asking.sync(first.member_id, 1, **{first.member_id: {"three": [0, 1, 2]}})
    second = asking.classic_join(group_instance_id="b")
    deadline = time.monotonic() + HUNG
    while asking.classic_beat(first.member_id, 1, "a") != RebalanceInProgress.code:
        assert time.monotonic() < deadline
    again = asking.classic_join(first.member_id, group_instance_id="a")()
    b = second().member_id
    plan = {again.member_id: {"three": [0, 1]}, b: {"three": [2]}}
    asking.sync(again.member_id, 2, **plan)
    asking.sync(b, 2)
    asking.id(again.member_id), asking.id(b)  # in this order, whatever the order of a description
    return again.member_id, b


def upgrade(asking: Asking) -> Iterator[Said]:
    """A classic group becomes a consumer group, member by member."""
    a, b = _classic_pair(asking)
    yield "commit", asking.commit(a, 2, {"three": [0]})
    yield "beat of no member", asking.said(asking.heartbeat("m1", 2))
    yield "described", asking.described()
    yield "join", asking.said(asking.join("m1", "three"))
    yield "listed", asking.listed()
    yield "described", asking.described()
    yield "described as classic", asking.described_as_classic()
    yield "a hears", asking.classic_beat(a, 2, "a")
    yield "a commits", asking.commit(a, 2, {"three": [0]})
    yield "a commits what it has not", asking.commit(a, 2, {"three": [2]})
    yield "a syncs too early", asking.synced(asking.sync(a, 2))
    rejoined = asking.classic_join(a, "three", owned={"three": [0, 1]}, group_instance_id="a")()
    yield "a joins again", asking.joined(rejoined)
    yield "a syncs", asking.synced(asking.sync(a, rejoined.generation_id))
    yield "a beats", asking.classic_beat(a, rejoined.generation_id, "a")
    yield "described", asking.described()
    rejoined = asking.classic_join(a, "three", owned={"three": [0]}, group_instance_id="a")()
    yield "a has given up", asking.joined(rejoined)
    yield "a syncs", asking.synced(asking.sync(a, rejoined.generation_id))
    yield "m1 gets it", asking.said(asking.heartbeat("m1", 3))
    yield "b hears", asking.classic_beat(b, 2, "b")
    yield "b with a wrong generation", asking.classic_beat(b, 9, "b")
    yield "b under another instance", asking.classic_beat(b, 2, "a")
    yield "m1 with the classic protocol", asking.classic_beat("m1", 3)
    joined = asking.said(asking.join("m2", "three", instance_id="b"))
    yield "b is upgraded", joined
    yield "described", asking.described()
    yield "a leaves", asking.classic_leave((a, "a"), ("x", None), ("m1", None))
    yield "described", asking.described()


def downgrade(asking: Asking) -> Iterator[Said]:
    """The last member of the new protocol leaves, so the group becomes a classic one."""
    yield "join", asking.said(asking.join("m1", "three"))
    required = asking.classic_join("", "three")()
    yield "a asks", asking.joined(required)
    a = required.member_id
    yield "a of another kind", asking.joined(asking.classic_join(a, "three", protocol_type="connect")())
    joined = asking.classic_join(a, "three")()
    yield "a joins", asking.joined(joined)
    yield "a syncs", asking.synced(asking.sync(a, joined.generation_id))
    yield "a beats", asking.classic_beat(a, joined.generation_id)
    yield "described", asking.described()
    yield "m1 gives up", asking.said(asking.heartbeat("m1", 2, owned={"three": [0, 1]}))
    yield "a beats", asking.classic_beat(a, joined.generation_id)
    joined = asking.classic_join(a, "three")()
    yield "a joins again", asking.joined(joined)
    yield "a syncs", asking.synced(asking.sync(a, joined.generation_id))
    yield "a beats", asking.classic_beat(a, joined.generation_id)
    yield "b has nothing in common", asking.joined(asking.classic_join("b", "three", protocols=("roundrobin",))())
    yield "m1 commits", asking.commit("m1", 3, {"three": [0]})
    yield "m1 leaves", asking.said(asking.heartbeat("m1", -1))
    yield "listed", asking.listed()
    yield "described", asking.described()
    yield "a beats", asking.classic_beat(a, joined.generation_id + 1)
    joined = asking.classic_join(a, "three")()
    yield "a joins the classic group", asking.joined(joined)
    assigned = {a: {"three": [0, 1, 2]}}
    yield "a assigns", asking.synced(asking.sync(a, joined.generation_id, **assigned))
    yield "fetch", asking.fetched()
    yield "described as classic", asking.described_as_classic()
    yield "join", asking.said(asking.join("m1", "three"))
    yield "described", asking.described()


def replaced_downgrade(asking: Asking) -> Iterator[Said]:
    """A static member comes back with the classic protocol, and was the last one of the new protocol."""
    yield "join", asking.said(asking.join("m1", "three", instance_id="i"))
    classic = asking.classic_join("", "three", group_instance_id="j")()
    yield "j joins", asking.joined(classic)
    yield "j syncs", asking.synced(asking.sync(classic.member_id, classic.generation_id))
    yield "m1 gives up", asking.said(asking.heartbeat("m1", 2, instance_id="i", owned={"three": [0, 1]}))
    answer = asking.classic_join(classic.member_id, "three", group_instance_id="j")()
    yield "j joins again", asking.joined(answer)
    yield "j syncs", asking.synced(asking.sync(answer.member_id, answer.generation_id))
    yield "away", asking.said(asking.heartbeat("m1", -2, instance_id="i"))
    answer = asking.classic_join("", "three", group_instance_id="i")()
    yield "back as classic", asking.joined(answer)
    yield "listed", asking.listed()
    yield "i syncs", asking.synced(asking.sync(answer.member_id, answer.generation_id))
    yield "described as classic", asking.described_as_classic()
    yield "j beats", asking.classic_beat(classic.member_id, answer.generation_id, "j")


def stubborn(asking: Asking) -> Iterator[Said]:
    """Groups that stay classic."""
    joined = asking.classic_join("", group_instance_id="a", protocol_type="connect")()
    yield "connect", asking.joined(joined)
    yield "join", asking.said(asking.join("m1", "three"))
    yield "leave", asking.classic_leave(("", "a"))
    joined = asking.classic_join("", group_instance_id="a")()
    own = build_assignment(ConsumerProtocolAssignment(assigned_partitions=(), user_data=b"own"), 1)
    asking.sync(joined.member_id, joined.generation_id)
    yield "own data", len(own)
    # With `uniform` the id that the broker has made would decide which of the two gets one partition more.
    yield "join without an assignment", asking.said(asking.join("m1", "three", server_assignor="range"))
    yield "described", asking.described()


SCENES: dict[str, Callable[[Asking], Iterator[Said]]] = {
    scene.__name__.replace("_", " "): scene
    for scene in (
        invalid,
        made_ids,
        empty_subscription,
        life,
        moving,
        transactional,
        static,
        slow,
        changing_topics,
        empty_classic,
        upgrade,
        downgrade,
        replaced_downgrade,
        stubborn,
    )
}
