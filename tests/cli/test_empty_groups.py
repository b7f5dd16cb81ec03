"""`ottla groups` with consumer groups (KIP-848) whose members have left, on brokerlite and on Apache Kafka."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import typer.testing

from ottla.cli.commands import app
from ottla.sync import connect
from tests.cli import program

RECORDS, READ = 10, 4


Ottla = Callable[[str], tuple[int, str, str]]


@pytest.fixture(params=["ottla_broker", pytest.param("kafka", marks=pytest.mark.slow)])
def bootstrap(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue(request.param).bootstrap
    return address


@pytest.fixture
def ottla(bootstrap: str) -> Iterator[Ottla]:
    """Runs a command; returns the exit code, stdout and stderr. The members of two groups have left."""

    def run(line: str) -> tuple[int, str, str]:
        done = typer.testing.CliRunner().invoke(app, [*line.split(), "--bootstrap", bootstrap])
        return done.exit_code, done.stdout, done.stderr

    for group, topic in (("left", "left-t"), ("left-too", "left-u")):
        assert run(f"topics create {topic} --partitions 1")[0] == 0
        lines = b"".join(b"%d\n" % n for n in range(RECORDS))
        made = program.run("produce", topic, "--bootstrap", bootstrap, given=lines)
        assert made.returncode == 0, made
        assert read(bootstrap, group, topic, READ) == list(range(READ))
    yield run
    for topic in ("left-t", "left-u"):
        assert run(f"topics delete {topic}")[0] == 0


def read(bootstrap: str, group: str, topic: str, count: int) -> list[int]:
    """Read and commit as the only member of a consumer group, which then leaves."""
    with connect(bootstrap) as client, client.consumer(topic, group=group, group_protocol="consumer") as consumer:
        values = []
        for batch in consumer:
            for record in batch:
                values.append(int(record.value or b""))
                if len(values) == count:
                    consumer.commit({(topic, 0): record.offset + 1})
                    return values
    raise AssertionError(values)


def listed(ottla: Ottla, *options: str) -> list[tuple[str, str, str, str]]:
    """Group, state, type and type of protocol of the fixture's groups, if `ottla groups list` shows them."""
    code, out, err = ottla(" ".join(("groups list --json", *options)))
    assert code == 0, err
    fields = ("group", "state", "type", "protocol_type")
    rows = [(each["group"], each["state"], each["type"], each["protocol_type"]) for each in json.loads(out)]
    assert all(len(row) == len(fields) for row in rows)
    return sorted(row for row in rows if row[0].startswith("left"))


def described(ottla: Ottla, group: str) -> dict[str, Any]:
    code, out, err = ottla(f"groups describe {group} --json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def offsets(ottla: Ottla, group: str) -> list[tuple[str, int, int]]:
    """Topic, committed offset and lag of each partition."""
    return [(row["topic"], row["committed"], row["lag"]) for row in described(ottla, group)["partitions"]]


def test_an_empty_consumer_group_is_listed_described_reset_and_deleted(ottla: Ottla, bootstrap: str) -> None:
    both = [("left", "Empty", "consumer", "consumer"), ("left-too", "Empty", "consumer", "consumer")]
    assert listed(ottla) == both
    assert listed(ottla, "--state empty --type consumer") == both
    assert listed(ottla, "--type classic") == listed(ottla, "--state stable") == []
    group = described(ottla, "left")
    assert (group["state"], group["type"], group["protocol_type"], group["members"]) == (*both[0][1:], [])
    assert offsets(ottla, "left") == [("left-t", READ, RECORDS - READ)]
    code, out, _ = ottla("groups describe left left-too --members")
    assert code == 0 and out.count(": consumer group, Empty") == out.count("0 members") == 2 and "lag 6" in out

    code, out, err = ottla("groups reset left --to-earliest")
    assert (code, err) == (0, "nothing was changed: add --execute to do it\n") and "left-t" in out
    assert offsets(ottla, "left") == [("left-t", READ, RECORDS - READ)]
    assert ottla("groups reset left --shift-by -1 --execute")[::2] == (0, "1 offset of left is reset\n")
    assert offsets(ottla, "left") == [("left-t", READ - 1, RECORDS - READ + 1)]
    assert ottla("groups reset left --to-latest --topic left-u --execute")[::2] == (0, "1 offset of left is reset\n")
    assert offsets(ottla, "left") == [("left-t", READ - 1, RECORDS - READ + 1), ("left-u", RECORDS, 0)]
    assert listed(ottla) == both, "a reset by an administrator does not make it a classic group"
    assert read(bootstrap, "left", "left-t", 1) == [READ - 1]

    assert ottla("groups delete left --topic left-u") == (0, "deleted the offsets of 1 partition from left\n", "")
    assert offsets(ottla, "left") == [("left-t", READ, RECORDS - READ)]
    assert ottla("groups delete left left-too") == (0, "deleted left\ndeleted left-too\n", "")
    assert listed(ottla) == []
    for line in ("groups describe left", "groups delete left", "groups reset left --to-latest"):
        code, out, err = ottla(line)
        assert (code, out) == (1, "") and "left" in err and err.count("\n") == 1, err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("share describe left", "left is a consumer group: ottla groups describe left describes it"),
        (
            "share reset left --to-earliest --topic left-t",
            "left is a consumer group: ottla groups reset left resets it",
        ),
        ("share delete left", "left is a consumer group: ottla groups delete left deletes it, with its offsets"),
    ],
)
def test_the_commands_for_share_groups_name_the_one_for_an_empty_consumer_group(
    ottla: Ottla, line: str, why: str
) -> None:
    assert ottla(line) == (1, "", f"ottla: {why}\n")
    assert ottla("groups delete left left-too")[0] == 0
