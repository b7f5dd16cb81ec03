"""A missing extra is named with the command that installs it; a broken installation is not taken for a missing one."""

import sys
from importlib import import_module

import pytest

from ottla.errors import ConfigurationError
from ottla.spark.local.session import session


class Absent:
    """An import system without a package."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_the_metrics_of_a_client_need_prometheus_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [Absent("prometheus_client"), *sys.meta_path])
    for name in [each for each in sys.modules if each.startswith("prometheus_client")] + ["ottla.sdk.prometheus"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ImportError, match=r"pip install 'ottla\[prometheus\]'"):
        import_module("ottla.sdk.prometheus")


def test_a_broken_prometheus_client_is_not_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.registry", None)
    monkeypatch.delitem(sys.modules, "ottla.sdk.prometheus", raising=False)
    with pytest.raises(ImportError, match=r"prometheus_client\.registry"):
        import_module("ottla.sdk.prometheus")


def test_a_session_needs_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'ottla\[spark\]'"):
        session()


def test_a_broken_pyspark_is_not_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    with pytest.raises(ModuleNotFoundError, match=r"pyspark\.errors"):
        session()
