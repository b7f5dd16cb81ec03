"""Log lines have their facts under any formatter, and keep their texts."""

import logging

import pytest

from ottla.cli.logs import JsonFormatter, TextFormatter
from ottla.sdk.logs import logger


def test_a_line_tells_its_facts_in_words_and_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    logger("ottla.sdk.consumer").warning(
        "a partition is stalled", extra={"topic": "orders", "seconds": 31, "why": None}
    )
    (record,) = caplog.records
    assert logging.Formatter("%(message)s").format(record) == "a partition is stalled (topic=orders, seconds=31)"
    assert record.__dict__["topic"] == "orders"
    assert TextFormatter().format(record).endswith("a partition is stalled  topic=orders seconds=31") and not hasattr(
        record, "why"
    )
    assert '"message": "a partition is stalled", "topic": "orders"' in JsonFormatter().format(record)
