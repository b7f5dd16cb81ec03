"""`ottla groups` and `ottla share` with a group of the other type, in this process, against a broker for each test."""

from collections.abc import Callable

import pytest
import typer.testing

from ottla.cli.commands import app
from ottla.sync import connect
from ottla.testing import Broker

Ottla = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ottla(ottla_broker: Broker) -> Ottla:
    """Runs a command; returns the exit code, stdout and stderr."""

    def run(line: str) -> tuple[int, str, str]:
        done = typer.testing.CliRunner().invoke(app, [*line.split(), "--bootstrap", ottla_broker.bootstrap])
        return done.exit_code, done.stdout, done.stderr

    ottla_broker.create_topic("t")
    with connect(ottla_broker.bootstrap) as client:
        client.reset_share_offsets("s", "beginning", topics=["t"], execute=True)
        client.reset_offsets("c", "beginning", topics=["t"], execute=True)
    return run


def names(ottla: Ottla) -> list[str]:
    return ottla("groups list --names")[1].split()


def test_groups_lists_groups_of_every_type(ottla: Ottla) -> None:
    assert names(ottla) == ["c", "s"]


@pytest.mark.parametrize("line", ["groups delete s", "groups delete c s", "groups delete s --topic t"])
def test_groups_delete_refuses_a_share_group_and_deletes_nothing(ottla: Ottla, line: str) -> None:
    why = "s is a share group: ottla share delete s deletes it, with the record of which jobs are done"
    assert ottla(line) == (1, "", f"ottla: {why}\n")
    assert names(ottla) == ["c", "s"]


def test_share_delete_deletes_share_groups_only(ottla: Ottla) -> None:
    code, out, err = ottla("share delete s c")
    assert (code, out) == (1, "") and "c is a classic group: ottla groups delete c deletes it" in err
    assert ottla("share delete s") == (0, "deleted s\n", "")
    assert names(ottla) == ["c"]
    code, out, err = ottla("share delete s")
    assert (code, out) == (1, "") and "GROUP_ID_NOT_FOUND" in err


def test_groups_delete_deletes_a_group_and_says_which_does_not_exist(ottla: Ottla) -> None:
    code, out, err = ottla("groups delete c nowhere")
    assert (code, out) == (1, "deleted c\n") and "nowhere" in err


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("groups describe s", "s is a share group: ottla share describe s describes it"),
        ("groups reset s --to-earliest --topic t", "s is a share group: ottla share reset s resets it"),
        ("share describe c", "c is a classic group: ottla groups describe c describes it"),
        ("share reset c --to-earliest --topic t", "c is a classic group: ottla groups reset c resets it"),
    ],
)
def test_a_group_of_the_other_type_is_named_with_the_command_for_it(ottla: Ottla, line: str, why: str) -> None:
    assert ottla(line) == (1, "", f"ottla: {why}\n")


@pytest.mark.parametrize(("line", "found"), [("groups describe c s", "c: "), ("share describe s c", "s: ")])
def test_a_group_of_the_other_type_hides_no_group_beside_it(ottla: Ottla, line: str, found: str) -> None:
    code, out, err = ottla(line)
    assert code == 1 and out.startswith(found) and "is a " in err
