"""Log lines have their facts under any formatter, and keep their texts."""

import logging

import pytest

from ottla.cli.logs import JsonFormatter, TextFormatter
from ottla.sdk.logs import logger


def test_a_line_tells_its_facts_in_words_and_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    logger("ottla.sdk.consumer").warning(
        "partition cannot be read, retrying", extra={"topic": "orders", "seconds": 31, "why": None}
    )
    (record,) = caplog.records
    assert (
        logging.Formatter("%(message)s").format(record)
        == "partition cannot be read, retrying (topic=orders, seconds=31)"
    )
    assert record.__dict__["topic"] == "orders"
    assert TextFormatter().format(record).endswith("partition cannot be read, retrying  topic=orders seconds=31")
    assert not hasattr(record, "why")
    assert '"message": "partition cannot be read, retrying", "topic": "orders"' in JsonFormatter().format(record)
