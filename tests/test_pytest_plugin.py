"""The pytest plugin takes ottla off the list of packages whose assertions pytest rewrites.

`tests/packaging/test_install.py` has a run with an installed ottla: an editable one is not on the list.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.assertion import AssertionState
from _pytest.assertion.rewrite import AssertionRewritingHook

from ottla.pytest_plugin import pytest_addoption


def test_pytest_rewrites_the_modules_of_others_only(pytestconfig: pytest.Config) -> None:
    hook = AssertionRewritingHook(pytestconfig)
    state = AssertionState(pytestconfig, "rewrite")

    def rewritten(name: str) -> Any:
        return hook._is_marked_for_rewrite(name, state)

    hook._must_rewrite.update(
        ("ottla", "pyspark_ottla", "theirs")
    )  # as `mark_rewrite` does, which warns about imported ones
    assert rewritten("ottla.errors") and rewritten("theirs.plugin")
    pytest_addoption(SimpleNamespace(rewrite_hook=hook))
    assert not rewritten("ottla.errors") and not rewritten("pyspark_ottla") and rewritten("theirs.plugin")
    pytest_addoption(SimpleNamespace())
