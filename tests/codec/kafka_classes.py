"""The classes that Kafka generates for its messages, called in one JVM (java/KafkaMessages.java)."""

import base64
import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.codec.definitions import CLIENTS
from tests.kafka import VERSION, classpath, jar, need
from tests.patience import HUNG

SOURCE = Path(__file__).parent / "java" / "KafkaMessages.java"
SHARED = ("jackson-annotations-*", "jackson-core-*", "jackson-databind-*", "slf4j-api-*", "slf4j-simple-*")
"""Jars that all releases may share; Kafka's own jars are different for each."""
PARTS = ("clients", "group-coordinator", "share-coordinator", "storage", "transaction-coordinator")
"""The broker's jars that contain messages."""


class KafkaMessages:
    """The JVM as a context manager; every response has a deadline."""

    def __init__(self) -> None:
        libs = Path(classpath()).parent
        shared = [str(path) for name in SHARED for path in libs.glob(f"{name}.jar")]
        releases = {release: [jar(artifact)] for release, artifact in CLIENTS.items()}
        releases[VERSION] = [libs / f"kafka-{part}-{VERSION}.jar" for part in PARTS]
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 closed in __exit__
        self._process = subprocess.Popen(
            [
                need("java", "a JDK, 17 or newer"),
                *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-cp", os.pathsep.join(shared), str(SOURCE)),
                *(f"{release}={os.pathsep.join(map(str, jars))}" for release, jars in releases.items()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
        )
        self._unread = b""

    def read(self, release: str, name: str, version: int, data: bytes) -> tuple[Any, bytes]:
        """The JSON that a release reads from the bytes of a message, and the bytes that it builds from it."""
        read, again = self._ask(release, "read", name, str(version), base64.b64encode(data).decode())
        return json.loads(read), base64.b64decode(again)

    def build(self, release: str, name: str, version: int, value: Any) -> bytes:
        """The bytes that a release builds from JSON."""
        return base64.b64decode(self._ask(release, "build", name, str(version), json.dumps(value))[1])

    def errors(self, release: str) -> list[tuple[int, str, bool, bool]]:
        """The table of errors: code, name, whether it is retriable, and whether the metadata is stale."""
        return [tuple(each) for each in json.loads(self._ask(release, "errors")[0])]

    def _ask(self, *question: str) -> list[str]:
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(question).encode() + b"\n")
        self._process.stdin.flush()
        kind, *answer = self._line().split("\t")
        assert kind == "ok", f"Kafka {question[0]} says {answer[0]} to {question[1:]}"
        return answer

    def _line(self) -> str:
        assert self._process.stdout is not None
        deadline = time.monotonic() + HUNG
        while b"\n" not in self._unread:
            if not select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"no answer of the JVM within {HUNG:g} s")
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                self._said.seek(0)
                raise EOFError(f"the JVM has ended: {self._said.read()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            assert stream is not None
            stream.close()
