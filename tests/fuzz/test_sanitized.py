"""The extensions pass their tests under the address and the undefined-behaviour sanitizers.

All extensions are built in a temporary folder, beside a copy of the rest of ottla. Python itself is not instrumented,
so the sanitizers are loaded before it. Python also must allocate with `malloc`: with its own allocator, a read past the
end of an object would hit another of Python's objects, unnoticed. A report ends the process, and the test shows it.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXTENSIONS = ("codec/_machine", "codec/_records", "sdk/produce/_append")
TESTS = ("codec/test_engines.py", "codec/test_engine_edges.py", "codec/test_records.py", "sdk/test_append.py")
FLAGS = ["-O0", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
pytestmark = pytest.mark.deep


def gcc() -> str:
    """The path of gcc. Without it the tests are skipped, except in CI, where they fail."""
    found = shutil.which("gcc")
    if found is None:
        missing = "there is no gcc to build the extensions with sanitizers"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def library(name: str) -> str:
    """The path of one of gcc's libraries."""
    path = subprocess.run(
        [gcc(), f"-print-file-name={name}"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(path).is_absolute(), f"gcc has no {name}: on Debian and Ubuntu it comes with libgcc-<version>-dev"
    return path


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import ottla from, with extensions that are built with the sanitizers."""
    compiler = gcc()
    folder = tmp_path_factory.mktemp("sanitized")
    shutil.copytree(
        ROOT / "src" / "ottla", folder / "ottla", ignore=shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    )
    for name in EXTENSIONS:
        source, c = (folder / "ottla" / f"{name}{suffix}" for suffix in (".pyx", ".c"))
        run([sys.executable, "-m", "cython", "-3", str(source), "-o", str(c)])
        extension = folder / "ottla" / f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
        include = f"-I{sysconfig.get_path('include')}"
        run([compiler, "-shared", "-fPIC", *FLAGS, include, str(c), "-o", str(extension)])
    return folder


def run(command: list[str], **environment: str) -> str:
    """The standard output of a command, which must succeed."""
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    return done.stdout


def run_sanitized(folder: Path, *arguments: str) -> str:
    """Run Python with the sanitized extensions."""
    return run(
        [sys.executable, *arguments],
        LD_PRELOAD=f"{library('libasan.so')} {library('libubsan.so')}",
        PYTHONMALLOC="malloc",
        PYTHONPATH=str(folder),
        ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1",  # Python does not free all of its memory
        UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1",
        OTTLA_ENGINE="c",
    )


def test_the_extensions_are_built_with_the_sanitizers(sanitized: Path) -> None:
    names = ", ".join("ottla." + name.replace("/", ".") for name in EXTENSIONS)
    where = f"import sys, {names}; print(*(sys.modules[name].__file__ for name in '{names}'.split(', ')))"
    for path in run_sanitized(sanitized, "-c", where).split():
        assert path.startswith(str(sanitized))
        assert b"__asan_report_load" in Path(path).read_bytes()


def test_the_whole_corpus_of_the_fuzzer_passes(sanitized: Path) -> None:
    assert ", 0 failed" in run_sanitized(sanitized, "-m", "tests.fuzz", "replay")


@pytest.mark.parametrize("tests", TESTS)
def test_their_tests_pass(sanitized: Path, tests: str) -> None:
    options = ("-q", "-m", "not slow", "-p", "no:cacheprovider")
    assert " passed" in run_sanitized(sanitized, "-m", "pytest", "-s", *options, f"tests/{tests}")
