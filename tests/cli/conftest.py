"""Commands that run in this process change its logging; this restores it, because their stderr is gone afterwards."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    loggers = logging.getLogger(), logging.getLogger("ottla")
    levels = [each.level for each in loggers]
    yield
    for handler in loggers[0].handlers[:]:
        if type(handler) is logging.StreamHandler:
            loggers[0].removeHandler(handler)
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
