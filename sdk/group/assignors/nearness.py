"""Partitions that members exchange, so that more of them have a replica in their reader's rack (KIP-881).

Rules:
- An exchange is one partition for one, among topics with the same subscribers. So a division stays as even as it was.
- It brings one partition near to its reader, and takes no other out of a rack.
- What members had before is exchanged only where nothing else is to be given, and only if both sides are nearer then:
  what is near stays where it is. So a cooperative group comes to rest as soon as without racks.

Source: AbstractStickyAssignor.java, which gives near partitions first, and takes away what is not near.
"""

from collections.abc import Iterator, Mapping, Sequence

from ottla.sdk.cluster.cluster import TopicPartition

Holdings = list[dict[str, list[int]]]
"""Of each member, by its place: topic -> partitions."""
Racks = frozenset[str]
_Kind = tuple[int, Racks]
"""A member, and the racks of some of the partitions that it has."""


def bring_near(
    kept: Holdings,
    given: Holdings,
    subscribers: Mapping[str, int],
    racks: Mapping[TopicPartition, Racks],
    members: Sequence[str | None],
) -> None:
    """Exchange what brings partitions near; everything changes hands into ``given``.

    Args:
        kept, given: what members had before and still have, and what they have besides.
        subscribers: of each topic the same number for the same ones.
        members: their racks; ``None`` is near to everything.
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
                if not strict:  # else what was exchanged is near, and stays
                    pool.setdefault((taker, kind), []).append(place)


def _exchanges(
    pool: dict[_Kind, list[TopicPartition]], members: Sequence[str | None], *, strict: bool
) -> Iterator[tuple[_Kind, _Kind]]:
    """Who is to exchange a partition of which kind with whom, one after the other, until nothing is gained.

    Members of one rack are alike: what is compared is racks, of which there are few, and not members.
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
            for theirs in sorted(alike, key=lambda each: near(*each)):  # both may gain, where theirs is not near either
                if not gains(ours, theirs):
                    continue
                others = alike[theirs][::-1]
                for kind in alike[ours]:
                    while pool[kind] and others:
                        if pool[others[-1]]:  # of other members: both cannot be in one rack
                            gained = True
                            yield kind, others[-1]
                        else:
                            others.pop()


def _take(holdings: Holdings, member: int, place: TopicPartition) -> None:
    topic, partition = place
    holdings[member][topic].remove(partition)
    if not holdings[member][topic]:
        del holdings[member][topic]
