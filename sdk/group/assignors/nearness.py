"""Exchanges partitions between members, so that more of them have a replica in their reader's rack (KIP-881).

Rules:
- Members exchange one partition for one, of topics with the same subscribers, so a division stays as even as it was.
- An exchange brings at least one partition near to its reader, and moves no other away from its reader's rack.
- Partitions that members had before are exchanged only if there are no others to give, and only if both become nearer:
  a partition that is near is never moved. So a cooperative group needs no more rebalances than without racks.

Source: AbstractStickyAssignor.java, which gives near partitions first, and takes away the others.
"""

from collections.abc import Iterator, Mapping, Sequence

from ottla.sdk.cluster.cluster import TopicPartition

Holdings = list[dict[str, list[int]]]
"""The partitions of each member, by topic."""
Racks = frozenset[str]
_Kind = tuple[int, Racks]
"""A member, and the racks of some of its partitions."""


def bring_near(
    kept: Holdings,
    given: Holdings,
    subscribers: Mapping[str, int],
    racks: Mapping[TopicPartition, Racks],
    members: Sequence[str | None],
) -> None:
    """Exchange partitions to bring them near; exchanged partitions end up in ``given``.

    Args:
        kept: the partitions that members had before and still have.
        given: their other partitions.
        subscribers: a number for each topic; equal for topics with the same subscribers.
        members: the rack of each member; to ``None``, all partitions are near.
    """
    movable, strict = (given, False) if any(given) else (kept, True)
    pools: dict[int, dict[_Kind, list[TopicPartition]]] = {}
    for member, holding in enumerate(movable):
        for topic, partitions in sorted(holding.items()):
            pool = pools.setdefault(subscribers[topic], {})
            for partition in sorted(partitions):
                place = topic, partition
                pool.setdefault((member, racks.get(place, frozenset())), []).append(place)
    for pool in pools.values():
        for ours, theirs in _exchanges(pool, members, strict=strict):
            (one, _), (other, _) = ours, theirs
            mine, yours = pool[ours].pop(), pool[theirs].pop()
            _take(movable, one, mine)
            _take(movable, other, yours)
            for taker, place, kind in ((other, mine, ours[1]), (one, yours, theirs[1])):
                given[taker].setdefault(place[0], []).append(place[1])
                if not strict:  # with strict, both exchanged partitions are near now, and are not moved again
                    pool.setdefault((taker, kind), []).append(place)


def _exchanges(
    pool: dict[_Kind, list[TopicPartition]], members: Sequence[str | None], *, strict: bool
) -> Iterator[tuple[_Kind, _Kind]]:
    """Yield the exchanges one after the other, until no exchange brings a partition nearer.

    Members in one rack are equivalent, so this compares racks, which are few, instead of members.
    """

    def near(rack: str | None, racks: Racks) -> bool:
        return rack is None or rack in racks

    def gains(ours: tuple[str | None, Racks], theirs: tuple[str | None, Racks]) -> bool:
        (one, mine), (other, yours) = ours, theirs
        if not near(other, mine):
            return False
        before, after = near(other, yours), near(one, yours)
        return (after and not before) if strict else after >= before

    gained = True
    while gained:
        gained = False
        alike: dict[tuple[str | None, Racks], list[_Kind]] = {}
        for kind, places in pool.items():
            if places:
                alike.setdefault((members[kind[0]], kind[1]), []).append(kind)
        for ours in [each for each in alike if not near(*each)]:
            # Partitions that are not near to their reader either come first: then both sides may gain.
            for theirs in sorted(alike, key=lambda each: near(*each)):
                if not gains(ours, theirs):
                    continue
                others = alike[theirs][::-1]
                for kind in alike[ours]:
                    while pool[kind] and others:
                        if pool[others[-1]]:  # always of another member: an exchange within one rack gains nothing
                            gained = True
                            yield kind, others[-1]
                        else:
                            others.pop()


def _take(holdings: Holdings, member: int, place: TopicPartition) -> None:
    topic, partition = place
    holdings[member][topic].remove(partition)
    if not holdings[member][topic]:
        del holdings[member][topic]
