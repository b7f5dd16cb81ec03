"""`setup.py` without a working compiler, and the metadata that it writes."""

import re
import subprocess
import sys
import sysconfig
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.patience import HUNG

ROOT = Path(__file__).parents[2]
NAMES = ("codec/_machine", "codec/_records", "sdk/produce/_append")


@pytest.mark.slow
def test_a_compiler_that_fails_is_told_in_a_line_and_no_older_extension_stays(tmp_path: Path) -> None:
    script = (ROOT / "setup.py").read_text().replace(".pyx", ".c")  # this is no test of Cython
    (tmp_path / "setup.py").write_text(script)
    (tmp_path / "README.md").write_text("# ottla\n")
    older = [tmp_path / "lib" / "ottla" / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}" for name in NAMES]
    sources = [tmp_path / f"{name}.c" for name in NAMES]
    for path in (*older, *sources):
        path.parent.mkdir(parents=True, exist_ok=True)
    for path, source in zip(older, sources, strict=True):
        path.write_bytes(b"of other sources")
        source.write_text("#error no\n")
    command = [sys.executable, "setup.py", "build_ext", "--build-lib", "lib"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    [said] = [line for line in done.stderr.splitlines() if line.startswith("ottla ")]
    assert said.startswith("ottla runs in Python, slower than C: ottla.codec._machine was not built (")
    assert "; ottla.codec._records was not built (" in said
    assert "; ottla.sdk.produce._append was not built (" in said
    assert not any(path.exists() for path in older)


def test_the_metadata_and_the_sdist_are_right_without_the_tree(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stderr
    [folder] = tmp_path.iterdir()
    told = message_from_bytes((folder / "PKG-INFO").read_bytes())
    assert told["Author"] and told.get_all("Project-URL")
    description = told.get_payload()
    assert isinstance(description, str) and description.startswith("# ottla\n")
    targets = re.findall(r"\]\(([^)]+)\)", description)
    assert targets and all(each.startswith(("https://", "#")) for each in targets), "relative links are dead on PyPI"

    sources = set((folder / "SOURCES.txt").read_text().splitlines())
    named = set(re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / "README.md").read_text()))
    assert named | {"CHANGELOG.md", "SECURITY.md"} <= sources, "the sdist lacks files that README names"
    assert not [each for each in sources if each.startswith("tests/")], "the sdist has a part of the test suite"
