"""An option of the SDK is declared once, and everything else follows from the declaration."""

import inspect
import shutil
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from ottla.sdk.client import Client
from ottla.sdk.consume.options import ConsumerOptions
from ottla.sdk.consumer import ConsumerHooks
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.producer import ProducerHooks
from ottla.sdk.transaction.options import TransformOptions
from tools import faces, options

pytestmark = pytest.mark.skipif(not faces.RUFF.exists(), reason="ruff lays out what is made")

OF_CALLS = {
    "producer": (ProducerOptions, ProducerHooks),
    "consumer": (ConsumerOptions, ConsumerHooks, MemberOptions),
    "transform": (TransformOptions, ConsumerOptions, ConsumerHooks, MemberOptions, ProducerOptions, ProducerHooks),
}


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the SDK, from which the calls are generated."""
    shutil.copytree(faces.ROOT / "sdk", tmp_path / "sdk", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(options, "ROOT", tmp_path)
    return tmp_path / "sdk"


def test_the_calls_of_a_client_are_made_of_the_declarations() -> None:
    assert options.PATH.read_text() == options.written(), "the options have changed: make faces"


@pytest.mark.parametrize("call", OF_CALLS)
def test_each_argument_has_the_default_of_its_declaration(call: str) -> None:
    declared: dict[str, object] = {}
    for declaring in OF_CALLS[call]:
        left_out = options.LEFT_OUT.get(call, {}).get(declaring.__name__, ())
        for each in fields(declaring):
            if each.name not in left_out:
                declared.setdefault(each.name, inspect.Parameter.empty if each.default is MISSING else each.default)
    parameters = inspect.signature(getattr(Client, call)).parameters.values()
    assert {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY} == declared


def test_a_new_option_of_a_consumer_takes_one_edit(copy: Path) -> None:
    path = copy / "consume" / "options.py"
    declared = '    longest: float = option(5.0, {"max.longest.ms": kafka.milliseconds})\n    """Seconds for this."""\n'
    before = "    pattern: str | Sequence[str] = ()\n"
    path.write_text(path.read_text().replace(before, declared + before, 1))
    made = options.written()
    assert made.count("        longest: float = 5.0,\n") == 2, "the signatures of consumer and transform have it"
    assert made.count("            longest: seconds for this.\n") == 1
    assert "            longest, pattern, deny, pattern_re2, start, reset" in made, "and transform refers to consumer"
    assert made.count("longest=longest") == 2


def test_an_option_that_nothing_explains_is_refused(copy: Path) -> None:
    path = copy / "consume" / "options.py"
    method = "    def __post_init__"
    path.write_text(path.read_text().replace(method, f"    longest: float = 5.0\n\n{method}", 1))
    with pytest.raises(options.Undocumented, match=r"ConsumerOptions\.longest"):
        options.written()
