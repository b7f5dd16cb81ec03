"""Sessions of Spark and brokers of each kind, shared by all tests because they take seconds to start."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla.spark
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.testing import Broker
from tests.kafka import OLD, ApacheKafka, start
from tests.packaging import wheels
from tests.spark.both_formats import Formats, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    session = ottla.spark.session(app_name="ottla's tests")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def python_with_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which ottla was installed as a wheel; it takes half a minute to make."""
    return wheels.python_with_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Formats]:
    """A process with another Spark, which has the JVM connector too."""
    with running(tmp_path_factory.mktemp("formats") / "log") as formats:
        yield formats


@pytest.fixture(autouse=True)
def _unsaid() -> None:
    """Forget which warnings were given: a process gives each only once, and each test expects them."""
    from ottla.spark import kafka_options

    kafka_options._said.clear()


@pytest.fixture(params=["brokerlite", "apache", pytest.param("apache-3.9", marks=pytest.mark.deep)], scope="session")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The address of a broker: brokerlite, the current Apache Kafka, or an older one."""
    if request.param == "brokerlite":
        broker = Broker(BrokerConfig(port=0, data=tmp_path_factory.mktemp("broker"), sync=Sync.NEVER))
        yield broker.bootstrap
        broker.stop()
    elif request.param == "apache":
        kafka: ApacheKafka = request.getfixturevalue("kafka")
        yield kafka.bootstrap
    else:
        old = start(tmp_path_factory.mktemp("old") / "kafka", 1, release=OLD["3.9"])
        yield old.bootstrap
        old.stop()
