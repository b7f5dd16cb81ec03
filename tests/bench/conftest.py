"""The program of `make bench`, as a fixture: it takes a second to import, and only workers that test it need it."""

import importlib
import warnings
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def bench() -> ModuleType:
    """`tests.bench.__main__`."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # kafka-python uses deprecated parts of Python at its import
        return importlib.import_module("tests.bench.__main__")
