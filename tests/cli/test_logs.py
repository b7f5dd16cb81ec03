"""Log lines, for people and for machines."""

import json
import logging
import sys

from ottla.cli.logs import JsonFormatter, TextFormatter


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("ottla.test")
    made = logger.makeRecord(logger.name, logging.WARNING, "file", 1, message, args, None, extra=extra)
    made.created = 1767225600.5
    return made


def failed(why: str) -> logging.LogRecord:
    made = record("failed")
    try:
        raise ValueError(why)
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_a_text_line_ends_with_its_extras() -> None:
    line = TextFormatter().format(record("refused: %s", "no", peer="127.0.0.1:9", why='a "b" c', count=3))
    assert line == (
        '2026-01-01T00:00:00.500Z WARNING ottla.test  refused: no  peer=127.0.0.1:9 why="a \\"b\\" c" count=3'
    )


def test_a_text_line_without_extras_ends_with_its_message() -> None:
    assert TextFormatter().format(record("ready")) == "2026-01-01T00:00:00.500Z WARNING ottla.test  ready"


def test_what_a_client_names_is_no_line_of_its_own_and_nothing_for_the_terminal() -> None:
    evil = "x\n2026-01-01 ERROR forged\r\x1b[31m\x7f\x9b\u2028é"
    escaped = "x\\n2026-01-01 ERROR forged\\r\\x1b[31m\\x7f\\x9b\\u2028é"
    assert (
        TextFormatter().format(record("told: %s", evil))
        == f"2026-01-01T00:00:00.500Z WARNING ottla.test  told: {escaped}"
    )
    assert TextFormatter().format(record("told", reason="a\nb")).endswith("  told  reason=a\\nb")
    assert TextFormatter().format(record("told", reason="a \n b")).endswith('  told  reason="a \\n b"')
    traced = TextFormatter().format(failed(evil)).split("\n")
    assert all(line.startswith("  ") and line.isprintable() for line in traced[1:])


def test_advice_in_a_line_is_for_the_command_line() -> None:
    why = "closed by the broker; listeners with TLS do that (for TLS, give tls=ottla.TLS(…), or security.protocol=SSL)"
    assert 'why="closed by the broker; listeners with TLS do that (for TLS, set security.protocol=SSL)"' in (
        TextFormatter().format(record("connection failed", why=why)).replace("\\", "")
    )
    assert "tls=" not in json.loads(JsonFormatter().format(record("connection failed", why=why)))["why"]


def test_a_json_line_has_everything_as_fields() -> None:
    assert json.loads(JsonFormatter().format(record("refused", peer="p", node=1))) == {
        "time": "2026-01-01T00:00:00.500Z",
        "level": "warning",
        "logger": "ottla.test",
        "message": "refused",
        "peer": "p",
        "node": 1,
    }


def test_what_json_does_not_know_is_printed_as_text() -> None:
    assert json.loads(JsonFormatter().format(record("x", error=ValueError("why"))))["error"] == "why"
    odd = JsonFormatter().format(record("x", client="\x9b2J\u202e"))
    assert odd.isascii() and json.loads(odd)["client"] == "\x9b2J\u202e", "a terminal that shows it obeys nobody"


def test_an_exception_brings_its_traceback_and_stays_on_one_json_line() -> None:
    line = JsonFormatter().format(failed("why"))
    assert "\n" not in line
    assert "ValueError: why" in json.loads(line)["exception"]
    assert TextFormatter().format(failed("why")).endswith("ValueError: why")
