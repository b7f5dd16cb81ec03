"""Which engine runs, how to choose it, and which message a user gets."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.codec import _engine
from ottla.errors import ConfigurationError
from tests.packaging import extension
from tests.patience import PROGRAM

PRODUCER = "ottla.sdk.produce._append"


def chosen(wanted: str) -> str:
    return _engine.chosen(wanted, "codec", _engine.EXTENSIONS)


@pytest.fixture
def never_built(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_engine.EXTENSIONS, PRODUCER):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "built_for_another.py").write_text("raise ImportError('undefined symbol: _Py_Oops')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_engine, "EXTENSIONS", ("built_for_another",))


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "ottla.codec")
    return caplog


def test_c_runs_where_it_was_built_and_nothing_is_said(log: pytest.LogCaptureFixture) -> None:
    if extension.stale():
        pytest.skip("the extensions are not built")
    assert chosen("") == chosen("c") == "c"
    assert not log.records


@pytest.mark.parametrize("wanted", ["python", ""])
@pytest.mark.usefixtures("never_built")
def test_python_runs_where_it_is_asked_for_or_c_was_never_built_and_the_log_says_so(
    wanted: str, log: pytest.LogCaptureFixture
) -> None:
    assert chosen(wanted) == "python"
    [record] = log.records
    assert record.levelno == logging.INFO
    assert ("OTTLA_ENGINE asks" if wanted else "without a C compiler") in record.getMessage()


@pytest.mark.usefixtures("broken")
def test_extensions_that_do_not_load_are_a_warning_with_the_reason(log: pytest.LogCaptureFixture) -> None:
    assert chosen("") == "python"
    [record] = log.records
    assert record.levelno == logging.WARNING
    assert "_Py_Oops" in record.getMessage()


@pytest.mark.usefixtures("never_built")
def test_c_that_was_never_built_cannot_be_demanded() -> None:
    with pytest.raises(ConfigurationError, match="reinstall it where there is a C compiler"):
        chosen("c")


@pytest.mark.usefixtures("broken")
def test_c_that_does_not_load_cannot_be_demanded() -> None:
    with pytest.raises(ConfigurationError, match="_Py_Oops"):
        chosen("c")


def test_there_are_no_other_engines() -> None:
    with pytest.raises(ConfigurationError, match="choose c or python"):
        chosen("rust")


@pytest.mark.parametrize("missing", [*_engine.EXTENSIONS, PRODUCER])
def test_an_extension_that_is_missing_beside_others_is_a_warning_and_c_cannot_be_demanded(
    missing: str, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if extension.stale():
        pytest.skip("the extensions are not built")
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(_engine, "_WANTED", "")
    assert _engine.engine_of("producer", PRODUCER) == "python"
    [record] = log.records
    assert record.getMessage().startswith("the producer runs in Python") and record.levelno == logging.WARNING
    assert missing in record.getMessage() and "compiler" not in record.getMessage()
    monkeypatch.setattr(_engine, "_WANTED", "c")
    with pytest.raises(ConfigurationError, match=f"do not load: .*{missing}"):
        _engine.engine_of("producer", PRODUCER)


def test_no_part_runs_in_c_if_the_codec_runs_in_python(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_engine, "ENGINE", "python")
    assert _engine.engine_of("producer", "json") == "python"
    assert not log.records, "the codec has said it"


def test_extensions_of_different_versions_do_not_load() -> None:
    if extension.stale():
        pytest.skip("the extensions are not built")
    done = subprocess.run([sys.executable, "-c", MIXED], capture_output=True, text=True, timeout=PROGRAM)
    assert "ImportError" in done.stderr and "of different versions: build both again" in done.stderr


MIXED = """
from ottla.codec import _records
_records.APPEND_RECORD = _records.FIND_HASH
import ottla.sdk.produce._append
"""
PURE = """
import sys
from ottla.codec import build, engine, records
from ottla.codec.apis.metadata import MetadataRequest
from ottla.sdk.produce import append
print(engine, build(MetadataRequest(topics=None), 1).hex(), sys.modules.keys() & {*sys.argv[1:]})
"""


def test_python_runs_without_the_extensions_and_no_warning() -> None:
    command = [sys.executable, "-W", "error", "-c", PURE, *_engine.EXTENSIONS, PRODUCER]
    environment = os.environ | {"OTTLA_ENGINE": "python"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROGRAM)
    assert (done.stdout, done.stderr) == ("python ffffffff set()\n", "")
