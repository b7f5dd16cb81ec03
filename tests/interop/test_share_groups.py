"""Share groups with members of Java, librdkafka and ottla, some of which are killed, or hold records for too long.

tests/proxy/test_mixed_groups.py does the same through the proxy.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

import pytest
import trio

import ottla
from tests.interop.sharing import WORKERS, ShareMember, until
from tests.kafka import ApacheKafka
from tests.sdk.shared_topics import filled, share_from_the_beginning

RECORDS = 600
STEP = 100
HELD = WORKERS - 1
"""The records that a member holds for too long."""


async def prepare(bootstrap: str, topic: str, group: str) -> None:
    async with ottla.connect(bootstrap) as client:
        await share_from_the_beginning(client, group, share_record_lock_duration_ms="15000")
        await filled(client, topic, RECORDS)


async def more(bootstrap: str, topic: str, count: int = RECORDS) -> None:
    async with ottla.connect(bootstrap) as client, client.producer() as producer:
        for index in range(count):
            await producer.send_soon(topic, b"more %d" % index)


async def lag(bootstrap: str, group: str) -> int:
    async with ottla.connect(bootstrap) as client:
        return sum(each.lag or 0 for each in (await client.share_offsets(group)).values())


Places = Mapping[tuple[int, int], list[int]]
"""Partition and offset -> the delivery counts that members were told."""


def places(members: list[ShareMember]) -> tuple[Places, Places]:
    """The records that were delivered, and the ones that were accepted."""
    delivered: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    accepted: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for member in members:
        for partition, offset, number in member.delivered:
            delivered[partition, offset].append(number)
        for partition, offset, number in member.accepted:
            accepted[partition, offset].append(number)
    return delivered, accepted


def check_deliveries(delivered: Places, accepted: Places) -> None:
    """Check what the members were told about the same records."""
    assert [each for each in accepted.values() if len(each) > 1] == [], "a record is accepted once"
    assert [each for each in delivered.values() if len(each) != len(set(each))] == [], "a delivery has one member"
    for place, [number] in accepted.items():
        assert number == max(delivered[place]), f"{place} was delivered again after it was accepted"
        assert number > 1 or place[1] % 7, f"{place} was released at its first delivery"


def check(members: list[ShareMember], count: int) -> None:
    """Check that every record is accepted, and that the members agree about the deliveries."""
    delivered, accepted = places(members)
    assert len(accepted) == count
    check_deliveries(delivered, accepted)


def accepted(members: list[ShareMember]) -> set[tuple[int, int]]:
    return {each[:2] for member in members for each in member.accepted}


@pytest.mark.slow
def test_members_of_three_clients_accept_every_record_once(kafka: ApacheKafka) -> None:
    topic, group = "shared-by-three", "three"
    trio.run(prepare, kafka.bootstrap, topic, group)
    with ExitStack() as stack:
        members = [
            stack.enter_context(ShareMember(name, kafka.bootstrap, topic, group))
            for name in ("java", "librdkafka", "ottla")
        ]
        until(lambda: all(each.delivered for each in members) or len(accepted(members)) == RECORDS, members)
        trio.run(more, kafka.bootstrap, topic)
        until(lambda: len(accepted(members)) == 2 * RECORDS, members)
        for each in members:
            each.close()
    check(members, 2 * RECORDS)
    assert trio.run(lag, kafka.bootstrap, group) == 0


@pytest.mark.deep
def test_no_record_is_lost_when_members_are_killed_and_locks_expire(sharing: str) -> None:
    lose_members_and_locks(sharing, "killed")


def lose_members_and_locks(bootstrap: str, group: str) -> None:
    """Kill members of Java and ottla, and let the locks of a member that runs expire."""
    topic = f"jobs-of-{group}"
    trio.run(prepare, bootstrap, topic, group)
    with ExitStack() as stack:

        def join(name: str, **settings: str) -> ShareMember:
            members.append(stack.enter_context(ShareMember(name, bootstrap, topic, group, settings)))
            return members[-1]

        members: list[ShareMember] = []
        # One worker goes on: the group may give a partition to this member alone.
        holder = join("ottla", hold=str(HELD))
        until(lambda: len(holder.delivered) >= HELD, members)
        held = holder.delivered[:HELD]
        ours, theirs, stays = join("ottla"), join("java"), join("librdkafka")

        def enough(count: int) -> bool:
            return bool(ours.accepted and theirs.accepted) or len(accepted(members)) > count

        sent = RECORDS
        while not (ours.accepted and theirs.accepted):  # until both have a share
            trio.run(more, bootstrap, topic, STEP)
            sent += STEP
            until(partial(enough, sent - STEP), members)
        ours.kill()
        theirs.kill()
        trio.run(more, bootstrap, topic)
        sent += RECORDS
        others = [join("ottla"), join("java"), stays, holder]
        until(lambda: trio.run(lag, bootstrap, group) == 0, others)  # so the locks have expired
        holder.release()
        until(lambda: len(holder.failed) == HELD, [holder])
        for each in others:
            each.close()
    assert set(holder.failed) == set(held), "only locks of records that it held have expired"
    check_killed(members, {ours, theirs}, sent)
    told = {each[:2]: each[2] for member in members for each in member.accepted}
    assert all(told[partition, offset] > number for partition, offset, number in held), "an expired lock is a delivery"


def check_killed(members: list[ShareMember], killed: set[ShareMember], count: int) -> None:
    """Like `check`; a killed member may have accepted what was delivered to it, without a line about it."""
    delivered, accepted = places(members)
    check_deliveries(delivered, accepted)
    last = {each for member in killed for each in member.delivered if each[2] == max(delivered[each[:2]])}
    silent = {each for each in last if each[:2] not in accepted}
    assert len(accepted) + len(silent) == count, "every record is accepted"
    kept = [each for each in silent if each[2] == 1 and each[1] % 7 == 0]  # no member accepts these
    assert not kept, "what a killed member had in hand is delivered again"
