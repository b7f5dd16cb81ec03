"""One Spark for the whole session: it takes seconds to start."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import ottla.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    session = ottla.spark.session(app_name="ottla's tests")
    yield session
    session.stop()
