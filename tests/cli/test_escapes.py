"""No name that a client or a broker has chosen forges a line of a command's output, or controls the terminal."""

import json
from functools import partial

import pytest
import trio

from ottla.cli import stdio, tables
from ottla.cli.escapes import escaped, tell
from ottla.cli.lines import as_json
from ottla.cli.report import lines as lines_of_report
from ottla.codec.dump import text
from ottla.codec.dump.items import Item

EVIL = "shop\n  audit: all 9 keys\r\x1b[2J\x1b]0;owned\x07\x9b31m\u2028\u202eend"


def controls(out: str) -> list[str]:
    return [each for each in out if each != "\n" and not each.isprintable()]


def test_a_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    tell(f"group {EVIL} is gone")
    trio.run(partial(stdio.say, f"group {EVIL} is gone", "another"))
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == second and third == "another" and not controls(first)
    assert r"shop\n  audit" in first and r"\x1b[2J" in first


def test_a_cell_and_a_title_of_a_table_stay_in_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    trio.run(tables.show, ("group", "lag"), [(EVIL, 1), ("plain", 2)], EVIL)
    out = capsys.readouterr().out
    assert not controls(out)
    assert not any(line.strip("│┃ ").startswith("audit") for line in out.splitlines())


def test_the_report_has_no_line_that_a_client_wrote() -> None:
    client = {
        "client_id": EVIL,
        "software": EVIL,
        "records": 1,
        "records_with_key": 1,
        "modes": ["observe", "rewrite"],
        "misplaced": 1,
        "partitioner": None,
        "samples": [{"key": EVIL, "partition": 1, "partition_of_key": 2}],
        "keys_in_several_partitions": {"keys": 1, "samples": [{"key": EVIL, "partitions": [1, 2]}]},
    }
    topic = {
        "topic": "t",
        "mode": "observe",
        "partitioner": "murmur2",
        "partitions": 6,
        "partitions_of_topic": 6,
        "looked_at": 100,
        "hot_keys": [{"key": EVIL, "share": 0.5}],
        "clients": [client],
    }
    found = {"seconds": 1.0, "keys": "shown", "observe_sample": 1, "topics": [topic]}
    printed = [escaped(line) for line in lines_of_report(found)]
    assert not controls("\n".join(printed))
    assert sum(line.lstrip().startswith("audit") for line in printed) == 0


def test_json_keeps_the_value_and_has_no_control_character() -> None:
    line = as_json(key=EVIL.encode()).decode()
    assert json.loads(line) == {"key": EVIL}
    assert not [each for each in line if "\x80" <= each <= "\x9f" or each in "\x1b\u2028"]


def test_a_dump_shows_names_on_one_line() -> None:
    fields = {
        "offset": 1,
        "timestamp": 1,
        "key": EVIL.encode(),
        "value": None,
        "headers": [{"key": EVIL, "value": b""}],
    }
    assert "\n" not in text(Item("record", fields)) and not controls(text(Item("record", fields)))
