"""`ottla topics configure` and `create --config`, in this process, against a broker for each test."""

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

    def run(*words: str) -> tuple[int, str, str]:
        done = typer.testing.CliRunner().invoke(app, [*words, "--bootstrap", ottla_broker.bootstrap])
        return done.exit_code, done.stdout, done.stderr

    ottla_broker.create_topic("t")
    return run


def test_a_reset_says_what_it_changed(ottla: Ottla) -> None:
    assert ottla("topics", "configure", "t", "retention.ms=5") == (0, "changed retention.ms of t\n", "")
    both = ("topics", "configure", "t", "--reset", "retention.ms", "--reset", "segment.ms")
    assert ottla(*both) == (0, "changed retention.ms of t\nsegment.ms of t had the default already\n", "")
    again = ottla("topics", "configure", "t", "--reset", "retention.ms")
    assert again == (0, "retention.ms of t had the default already\n", "")


def test_a_reset_of_an_unknown_configuration_is_refused(ottla: Ottla) -> None:
    code, out, err = ottla("topics", "configure", "t", "--reset", "retention.mss")
    assert (code, out) == (1, "")
    assert "'retention.mss' is not a topic's configuration: do you mean retention.ms?" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("configure", "t", "retention.ms=1", "retention.ms=2"), "retention.ms has two values"),
        (("create", "u", "--config", "retention.ms=1", "--config", "retention.ms=2"), "retention.ms has two values"),
        (("configure", "t", "partitions=8"), "use ottla topics grow t 8"),
        (("create", "u", "--config", "num.partitions=8"), "use --partitions 8"),
    ],
)
def test_settings_that_contradict_each_other_or_are_none_are_refused(
    ottla: Ottla, words: tuple[str, ...], why: str
) -> None:
    code, out, err = ottla("topics", *words)
    assert (code, out) == (2, "") and why in " ".join(err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("retention.ms = 5", "'retention.ms ' is not a topic's configuration: do you mean retention.ms?"),
        ("cleanup.policy=never", "it must be delete or compact, or both: delete,compact"),
    ],
)
def test_the_broker_says_what_would_be_right(ottla: Ottla, setting: str, why: str) -> None:
    code, out, err = ottla("topics", "configure", "t", setting)
    assert (code, out) == (1, "") and why in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("configure", "__consumer_offsets", "cleanup.policy=delete"), "the broker sets its configuration"),
        (("configure", "__consumer_offsets", "--reset", "cleanup.policy"), "the broker sets its configuration"),
        (("grow", "__consumer_offsets", "99"), "the broker sets its partitions"),
        (("delete", "__consumer_offsets"), "the broker needs it"),
    ],
)
def test_an_internal_topic_is_left_to_the_broker(
    ottla: Ottla, ottla_broker: Broker, words: tuple[str, ...], why: str
) -> None:
    with connect(ottla_broker.bootstrap) as client:  # a commit creates the topic
        client.reset_offsets("g", "beginning", topics=["t"], execute=True)
    why = f"ottla: INVALID_REQUEST (42): __consumer_offsets is internal: {why}\n"
    assert ottla("topics", *words) == (1, "", why)
