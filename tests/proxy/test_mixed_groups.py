"""Groups of several clients through the proxy, which passes or rewrites their topics: they lose and repeat nothing."""

from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.codec.partitioners import murmur2_partition
from ottla.testing import Broker
from tests.interop.coordinator_logs import (
    CONSUMER_OFFSETS,
    SHARE_STATE,
    check_commits,
    check_owners,
    check_share_state,
    stored,
)
from tests.interop.groups import PARTITIONS, Group
from tests.interop.lines import Received
from tests.interop.members import CONSUMER_PROTOCOL
from tests.interop.sharing import ShareMember, until
from tests.interop.test_share_groups import RECORDS, accepted, check, lag, lose_members_and_locks, more, prepare
from tests.proxy.running import proxied

RULES = pytest.mark.parametrize(
    "rules",
    [pytest.param((), id="passed", marks=pytest.mark.deep), pytest.param(("mixed-*=rewrite",), id="rewritten")],
)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """A broker whose members send heartbeats often, and are removed soon after their death."""
    return Broker(
        BrokerConfig(
            port=0,
            data=tmp_path / "data",
            sync=Sync.NEVER,
            group_consumer_heartbeat_interval=0.3,
            group_consumer_session_timeout=15,
            group_share_heartbeat_interval=0.3,
        )
    )


def _partition(record: Received) -> int:
    return murmur2_partition(record.key or b"", PARTITIONS)


@pytest.mark.slow
@RULES
def test_members_of_four_clients_come_leave_and_die(broker: Broker, rules: tuple[str, ...]) -> None:
    ours, java, librdkafka, franz = (CONSUMER_PROTOCOL[name] for name in ("ottla", "java", "librdkafka", "franz-go"))
    with broker, proxied(broker.bootstrap, *rules) as proxy, Group(proxy.bootstrap) as group:
        with group.flow():
            killed, leaver, *_ = group.join(ours, java, librdkafka, franz)
            killed.kill()
            group.await_shared()
            leaver.leave()
            group.await_shared()
            group.join(ours)
        group.leave()
        assert group.committed == group.sent
        assert all(member.records for member in group.members)
        assert group.repeated_only_after(killed)
        elsewhere = [each for member in group.members for each in member.records if each.partition != _partition(each)]
        assert bool(elsewhere) is not bool(rules), "a rewritten topic has each record in the partition of its key"
    records = stored(broker.data / "__consumer_offsets-0", CONSUMER_OFFSETS)
    assert check_owners(records, group.name) >= PARTITIONS // 2
    assert sum(check_commits(records, group.name).values()) == group.sent


@pytest.mark.slow
@RULES
def test_share_members_of_three_clients_accept_every_record_once(broker: Broker, rules: tuple[str, ...]) -> None:
    topic, group = "mixed-jobs", "workers"
    with broker, proxied(broker.bootstrap, *rules) as proxy, ExitStack() as stack:
        trio.run(prepare, proxy.bootstrap, topic, group)
        members = [
            stack.enter_context(ShareMember(name, proxy.bootstrap, topic, group))
            for name in ("java", "librdkafka", "ottla")
        ]
        until(lambda: all(each.delivered for each in members) or len(accepted(members)) == RECORDS, members)
        trio.run(more, proxy.bootstrap, topic)
        until(lambda: len(accepted(members)) == 2 * RECORDS, members)
        for each in members:
            each.close()
        check(members, 2 * RECORDS)
        assert trio.run(lag, proxy.bootstrap, group) == 0
    starts = check_share_state(stored(broker.data / "__share_group_state-0", SHARE_STATE), group)
    assert sum(starts.values()) == 2 * RECORDS


@pytest.mark.deep
@pytest.mark.parametrize("rules", [(), ("jobs-*=rewrite",)], ids=["passed", "rewritten"])
def test_share_members_are_killed_and_hold_records_for_too_long(sharing: str, rules: tuple[str, ...]) -> None:
    with proxied(sharing, *rules) as proxy:
        lose_members_and_locks(proxy.bootstrap, "killed-" + ("rewritten" if rules else "passed"))
