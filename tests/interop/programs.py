"""Peers that need more than this environment: tests build their programs into the cache, and again after a change."""

import contextlib
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.kafka import CACHE, VERSION, classpath, need
from tests.patience import PROGRAM

SOURCES = Path(__file__).parent


def java_classes() -> Path:
    """The folder of the compiled Java programs."""

    def build(sources: Path, target: Path) -> list[str]:
        javac = need("javac", "a JDK, 17 or newer")
        return [javac, "--release", "17", "-cp", classpath(), "-d", str(target), *map(str, sources.glob("*.java"))]

    return _built("java", CACHE / "apache-kafka" / VERSION / "peers", build)


def go_program(name: str) -> str:
    """The Go program in a folder of ``go``."""

    def build(sources: Path, target: Path) -> list[str]:
        return [need("go", "Go, 1.26 or newer"), "build", "-C", str(sources), "-o", f"{target}/", "./..."]

    return str(_built("go", CACHE / "go" / "peers", build) / name)


def kafkajs(program: str, *arguments: str) -> list[str]:
    """The command that runs a Node program with kafkajs."""

    def build(sources: Path, target: Path) -> list[str]:
        npm = need("npm", "Node.js, 18 or newer")
        shutil.copytree(sources, target, dirs_exist_ok=True)
        return [npm, "ci", "--prefix", str(target), "--ignore-scripts", "--no-audit", "--no-fund"]

    folder = _built("kafkajs", CACHE / "kafkajs" / "peers", build)
    return [need("node", "Node.js, 18 or newer"), f"{folder}/{program}.js", *arguments]


def kafka_python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with the version of kafka-python that the requirements here name."""

    def build(sources: Path, target: Path) -> list[str]:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        return [*pip, "install", "--target", str(target), "--requirement", f"{sources}/requirements.txt"]

    folder = _built("kafka_python", CACHE / "kafka-python" / "peers", build)
    return ["env", f"PYTHONPATH={folder}", sys.executable, "-m", module, *arguments]


def build_all() -> None:
    """Build and download missing peers; if a build fails, the tests of that peer report it.

    It happens once on each machine, and takes minutes, which must not count as a test's own time.
    """
    for build in (java_classes, partial(go_program, ""), partial(kafkajs, ""), partial(kafka_python, "")):
        with contextlib.suppress(pytest.skip.Exception, pytest.fail.Exception, subprocess.SubprocessError):
            build()


def _built(name: str, cache: Path, build: Callable[[Path, Path], list[str]]) -> Path:
    """The folder of the programs built from the files below `SOURCES` / ``name``.

    Args:
        build: returns the command, given the folder of the sources and the folder of the result.
    """
    sources = SOURCES / name
    files = sorted(path for path in sources.rglob("*") if path.is_file())
    named = (str(path.relative_to(sources)).encode() + path.read_bytes() for path in files)
    digest = hashlib.sha256(b"".join(named)).hexdigest()[:16]
    result = cache.with_name(f"{cache.name}-{digest}")
    if not result.exists():
        result.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=result.parent) as partial:
            target = Path(partial, "built")
            target.mkdir()
            subprocess.run(build(sources, target), check=True, timeout=PROGRAM, stdout=subprocess.DEVNULL)
            with contextlib.suppress(OSError):  # another process has built it meanwhile
                target.rename(result)
    return result


if __name__ == "__main__":
    build_all()
