"""groups, offsets, and consume as a member, as processes, against a broker for each test."""

import json
from functools import partial
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
import trio

from ottla import connect
from ottla.cli import consume
from ottla.sdk.admin import GroupMember
from ottla.testing import Broker
from tests.cli import program
from tests.cli.test_commands import ottla

pytestmark = pytest.mark.slow  # a process or two for each test


def fill(broker: Broker, count: int = 10) -> None:
    """``count`` records in the only partition of ``t``, a second apart."""
    broker.create_topic("t")
    lines = b"".join(b'{"value":"%d","timestamp":%d}\n' % (n, 1000 * n) for n in range(count))
    assert ottla(broker, "produce", "t", "--json", given=lines)[0] == 0


def test_a_group_goes_on_where_it_has_read_to(ottla_broker: Broker) -> None:
    fill(ottla_broker)
    assert ottla(ottla_broker, "consume", "t", "--group", "g", "--count", "3") == (0, "0\n1\n2\n", "")
    code, out, _ = ottla(ottla_broker, "offsets", "--group", "g", "--json")
    assert (code, json.loads(out)) == (0, [{"topic": "t", "partition": 0, "offset": 3, "metadata": ""}])
    assert ottla(ottla_broker, "consume", "t", "--group", "g", "--until-end")[1] == "3\n4\n5\n6\n7\n8\n9\n"
    assert ottla(ottla_broker, "consume", "t", "--group", "g", "--until-end") == (0, "", "")


async def test_a_member_without_a_partition_says_so_and_ends(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")

    async def hold(task_status: trio.TaskStatus[None]) -> None:
        async with client.consumer("t", group="g", instance_id="static members come first") as consumer:
            task_status.started()
            async for _ in consumer:
                pass

    async with connect(ottla_broker.bootstrap) as client, trio.open_nursery() as nursery:
        await nursery.start(hold)
        run = partial(ottla, ottla_broker, "consume", "t", "--group", "g", "--until-end")
        code, out, err = await trio.to_thread.run_sync(run)
        nursery.cancel_scope.cancel()
    assert (code, out) == (0, "")
    assert err == "group g assigns no partition to this member: its 2 members share all partitions\n"


@pytest.mark.parametrize(
    ("assigned", "is_nothing"), [([0, 0], False), ([0, 2], True), ([2], False), ([0], False), ([1, 1], False)]
)
async def test_a_member_has_no_partition_only_if_others_have_them(
    assigned: list[int], is_nothing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single member, or one that has not heard of its partitions yet, waits for them."""
    monkeypatch.setattr(consume, "SETTLED", 0.0)
    members = tuple(
        GroupMember("m", None, "c", "h", tuple(("t", partition) for partition in range(count))) for count in assigned
    )
    client, consumer = AsyncMock(), Mock(assignment=frozenset())
    client.describe_group.return_value = Mock(state="Stable", members=members)
    assert await consume._Share(client, consumer, "g").is_nothing() is is_nothing


def test_groups_are_listed_and_described_with_their_lag(ottla_broker: Broker) -> None:
    fill(ottla_broker)
    with program.running("consume", "t", "--group", "g", "--json", "--bootstrap", ottla_broker.bootstrap) as consume:
        consume.line()
        code, out, _ = ottla(ottla_broker, "groups", "list", "--json")
        [listed] = json.loads(out)
        assert (code, listed["group"], listed["state"], listed["type"]) == (0, "g", "Stable", "consumer")
        code, out, _ = ottla(ottla_broker, "groups", "describe", "g", "--json")
        described = json.loads(out)
        [member] = described["members"]
        assert (described["state"], member["assignment"]) == ("Stable", [{"topic": "t", "partition": 0}])
        [row] = described["partitions"]
        assert (row["topic"], row["end"], row["member_id"]) == ("t", 10, member["member_id"])
        code, out, _ = ottla(ottla_broker, "groups", "describe", "--all", "--members")
        assert (code, "g: consumer group, Stable, uniform, 1 member, " in out, "t:0" in out) == (0, True, True), out
        code, _, err = ottla(ottla_broker, "groups", "reset", "g", "--to-earliest", "--execute")
        assert (code, err.count("\n"), member["member_id"] in err) == (1, 1, True), err
    assert ottla(ottla_broker, "groups", "list", "--names", "--type", "share") == (0, "", "")
    refused = ottla(ottla_broker, "groups", "list", "--state", "Emty")
    assert refused == (2, "", "ottla: 'Emty' is not a known group state: do you mean 'Empty'?\n")


def test_describe_looks_again_until_it_is_stopped(ottla_broker: Broker) -> None:
    fill(ottla_broker)
    ottla(ottla_broker, "groups", "reset", "g", "--to-offset", "4", "--topic", "t", "--execute")
    arguments = ("groups", "describe", "g", "--watch", "0.2", "--json", "--bootstrap", ottla_broker.bootstrap)
    with program.running(*arguments) as watch:
        assert [watch.facts()["lag"] for _ in range(2)] == [6, 6]
        ottla(ottla_broker, "groups", "reset", "g", "--to-latest", "--execute")
        while watch.facts()["lag"] != 0:
            pass


def test_a_reset_shows_its_plan_and_changes_nothing_until_it_is_told_to(ottla_broker: Broker) -> None:
    fill(ottla_broker)
    reset = ("groups", "reset", "g", "--topic", "t")
    code, out, err = ottla(ottla_broker, *reset, "--to-datetime", "1970-01-01T00:00:03Z")
    assert (code, " 3 " in out) == (0, True), out
    assert err == "g is a group that does not exist yet; nothing was changed: add --execute to do it\n"
    assert ottla(ottla_broker, "groups", "list", "--names") == (0, "", "")
    code, out, _ = ottla(ottla_broker, *reset, "--to-offset", "99", "--execute", "--json")
    offset = {"topic": "t", "partition": 0, "old": None, "new": 10, "note": "99 is after the end: the end"}
    assert (code, json.loads(out)) == (0, {"group": "g", "new_group": True, "executed": True, "offsets": [offset]})
    code, out, err = ottla(ottla_broker, "groups", "reset", "g", "--shift-by", "-4", "--execute")
    assert (code, err) == (0, "1 offset of g is reset\n")
    code, out, err = ottla(ottla_broker, "groups", "reset", "nobody", "--to-latest")
    assert (code, out, err) == (1, "", "there is no group nobody: name topics with --topic\n")
    _, _, err = ottla(ottla_broker, "groups", "reset", "typo", "--topic", "t", "--to-latest", "--execute")
    assert err == "1 offset of typo is reset, a new group\n"


def test_a_plan_is_exported_and_read_from_a_file(ottla_broker: Broker, tmp_path: Path) -> None:
    fill(ottla_broker)
    code, out, err = ottla(ottla_broker, "groups", "reset", "g", "--topic", "t:0", "--to-offset", "7", "--export")
    assert (code, out) == (0, "t,0,7\n")
    plan = tmp_path / "plan.csv"
    plan.write_text(out)
    assert ottla(ottla_broker, "groups", "reset", "g", "--from-file", plan, "--execute")[0] == 0
    assert json.loads(ottla(ottla_broker, "groups", "describe", "g", "--json")[1])["lag"] == 3
    plan.write_text("t,0\n")
    code, _, err = ottla(ottla_broker, "groups", "reset", "g", "--from-file", plan)
    assert (code, "line 1" in err) == (2, True), err
    plan.write_text("other,t,0,1\n")
    assert ottla(ottla_broker, "groups", "reset", "g", "--from-file", plan)[0] == 2


def test_groups_and_their_offsets_are_deleted(ottla_broker: Broker) -> None:
    fill(ottla_broker)
    ottla_broker.create_topic("u", partitions=2)
    for topic in ("t", "u"):
        ottla(ottla_broker, "groups", "reset", "g", "--topic", topic, "--to-latest", "--execute")
    code, out, _ = ottla(ottla_broker, "groups", "delete", "g", "--topic", "u")
    assert (code, out) == (0, "deleted the offsets of 2 partitions from g\n")
    assert len(json.loads(ottla(ottla_broker, "offsets", "--group", "g", "--json")[1])) == 1
    code, out, err = ottla(ottla_broker, "groups", "delete", "g", "nobody")
    assert (code, out, "nobody" in err, err.count("\n")) == (1, "deleted g\n", True, 1), err
    for arguments in (["groups", "describe", "g"], ["offsets", "--group", "g"], ["groups", "delete", "g"]):
        code, out, err = ottla(ottla_broker, *arguments)
        assert (code, out, err.count("\n")) == (1, "", 1), err


def test_offsets_are_found_at_both_ends_and_at_times(ottla_broker: Broker) -> None:
    fill(ottla_broker)
    code, out, _ = ottla(ottla_broker, "offsets", "t", "--json")
    assert (code, [(row["at"], row["offset"]) for row in json.loads(out)]) == (0, [("beginning", 0), ("end", 10)])
    code, out, _ = ottla(
        ottla_broker,
        "offsets",
        "t:0",
        "--at",
        "1970-01-01T00:00:04Z",
        "--at",
        "2100-01-01T00:00Z",
        "--at",
        "max-timestamp",
        "--json",
    )
    assert [(row["offset"], row["timestamp"]) for row in json.loads(out)] == [(4, 4000), (None, None), (9, 9000)]
    code, out, _ = ottla(ottla_broker, "offsets", "t", "--at", "max-timestamp")
    assert (code, "1970-01-01T00:00:09.000Z" in out) == (0, True), out


def test_settings_of_a_topic_change(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", configs={"segment.ms": "7", "retention.bytes": "9"})
    change = ("topics", "configure", "t", "retention.ms=5", "--reset", "segment.ms")
    assert ottla(ottla_broker, *change) == (0, "changed retention.ms, segment.ms of t\n", "")
    _, out, _ = ottla(ottla_broker, "topics", "describe", "t", "--json")
    assert json.loads(out)["configs"] == {"retention.bytes": "9", "retention.ms": "5"}
    code, _, err = ottla(ottla_broker, "topics", "configure", "t", "retention.ms=soon")
    assert code == 1 and "retention.ms is 'soon', which is not a number" in err
    code, _, err = ottla(ottla_broker, "topics", "configure", "t")
    assert code == 2 and "name a setting, such as retention.ms=86400000" in err


def test_a_topic_grows(ottla_broker: Broker) -> None:
    fill(ottla_broker)
    assert ottla(ottla_broker, "topics", "grow", "t", "3") == (0, "t has 3 partitions\n", "")
    code, out, _ = ottla(ottla_broker, "topics", "grow", "t", "4", "--json")
    assert (code, json.loads(out)) == (0, {"name": "t", "partitions": 4})
    code, _, err = ottla(ottla_broker, "topics", "grow", "t", "2")
    assert (code, err.count("\n")) == (1, 1)


def test_the_line_that_is_too_large_is_named(ottla_broker: Broker) -> None:
    code, _, err = ottla(ottla_broker, "produce", "t", given=b"first\n" + b"x" * 2_000_000 + b"\nthird\n")
    assert (code, "line 2" in err, err.count("\n")) == (1, True, 1), err
    assert ottla(ottla_broker, "consume", "t", "--until-end")[1] == "first\n"
