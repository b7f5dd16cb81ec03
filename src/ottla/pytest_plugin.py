"""A pytest plugin: the fixture `ottla_broker` gives a test a fresh Kafka-compatible broker of its own.

    def test_orders(ottla_broker):
        ottla_broker.create_topic("orders", partitions=3)
        my_service = start(bootstrap=ottla_broker.bootstrap)

A marker gives the broker users and certificates, and changes fields of its `BrokerConfig`:

    @pytest.mark.ottla_broker(users={"alice": "secret"}, certificates=True, auto_create=False)
    def test_orders(ottla_broker):
        my_service = start(ottla_broker.bootstrap, **ottla_broker.client_options("alice"))

Rules:
- Importing this module is cheap, because every pytest run imports it: the first test that uses the broker imports the
  broker.
- pytest does not rewrite the assertions of ottla. It does so with all modules of a distribution that has a plugin. In a
  fresh environment that took 1.5 s, and two threads that did it at the same time met a bug of Python's before 3.11.8
  (gh-106905).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing import Broker


def pytest_addoption(pluginmanager: Any) -> None:
    """Take ottla's packages off pytest's list, as soon as the plugin is registered: pytest has no option for that."""
    hook = getattr(pluginmanager, "rewrite_hook", None)
    getattr(hook, "_must_rewrite", set()).difference_update(("ottla", "pyspark_ottla"))
    getattr(hook, "_marked_for_rewrite_cache", {}).clear()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    arguments = "users=…, certificates=True, tls=…, acls=True"
    what = "users and TLS of this test's broker, and fields of its BrokerConfig (ottla)"
    config.addinivalue_line("markers", f"ottla_broker({arguments}): {what}")


@pytest.fixture
def ottla_broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator["Broker"]:
    """A fresh broker: `.bootstrap`, `.create_topic(name, partitions=3)`, `.restart()`, `.kill()`, `.data`.

    Its topics are in pytest's temporary folder, which pytest keeps after a failed test. The marker
    ``@pytest.mark.ottla_broker(users={"alice": "secret"}, certificates=True)`` gives it users and certificates, and
    `.client_options("alice")` are the options of a client. The marker also takes fields of `BrokerConfig`, such as
    ``acls=True``. The markers of a module, of a class and of a test add up.
    """
    from ottla.testing import OPTIONS, Broker, config_for_tests

    given: dict[str, Any] = {"data": tmp_path / "ottla-broker"}
    for marker in reversed(list(request.node.iter_markers("ottla_broker"))):  # the module's first, the test's own last
        given |= _checked(marker)
    options = {name: given.pop(name) for name in OPTIONS if name in given}
    with Broker(config_for_tests(**given), **options) as broker:
        yield broker


def _checked(marker: pytest.Mark) -> Mapping[str, Any]:
    """The arguments of the marker, whose names exist."""
    from ottla.brokerlite.config import BrokerConfig
    from ottla.testing import OPTIONS
    from ottla.unknown_options import nearest

    known = [*OPTIONS, *BrokerConfig.__dataclass_fields__]
    takes = f"{', '.join(OPTIONS)}, and fields of BrokerConfig"
    if marker.args:
        pytest.fail(f"the marker ottla_broker takes arguments by name: {takes}", pytrace=False)
    for name in marker.kwargs:
        if name not in known:
            near = nearest(name, known)
            advice = f"do you mean {near}?" if near else f"it takes {takes}"
            pytest.fail(f"the marker ottla_broker has no argument {name}: {advice}", pytrace=False)
    return marker.kwargs
