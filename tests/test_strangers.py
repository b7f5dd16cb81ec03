"""2,000 connections that never authenticate: other clients do not notice, and the memory they took comes back."""

import contextlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

import ottla.sync
from ottla import TLS, ScramSha512
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest
from ottla.codec.frames import build_request
from tests.brokerlite.peer import Peer
from tests.kafka import HOST, free_ports
from tests.patience import HUNG, PROGRAM
from tests.proxy.secured import logged_in, user_file
from tests.tls import text

pytestmark = [pytest.mark.deep, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

CROWD = 2000
PASSWORD = "of-alice"
HELLO = b"\x16\x03\x01\x02\x00\x01\x00"
"""The beginning of a TLS handshake."""
VERSIONS = build_request(ApiVersionsRequest(), 3, 1, "stranger")
HALF = build_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "stranger")[:-2]
KINDS: dict[str, tuple[tuple[str, bytes], ...]] = {
    "no handshake": (("SSL", b""), ("SASL_SSL", b""), ("SSL", HELLO)),
    "no login": (("SASL_PLAINTEXT", b""), ("SASL_PLAINTEXT", VERSIONS), ("SASL_PLAINTEXT", HALF)),
    "mixed": (("SSL", b""), ("SASL_SSL", HELLO), ("SASL_PLAINTEXT", VERSIONS), ("SASL_PLAINTEXT", HALF)),
}
"""What strangers send to which listener, before they say no more."""


class Server:
    """A process with a listener of each kind.

    Attributes:
        ports: by the name of the listener.
    """

    def __init__(self, folder: Path, command: list[str], ports: dict[str, int]) -> None:
        self.ports, self.log = ports, folder / "server.log"
        with self.log.open("wb") as log:
            arguments = [sys.executable, "-m", "ottla", *command, "--json"]
            self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), self.log.read_text()[-2000:]

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=HUNG)

    @property
    def memory(self) -> int:
        """Its private memory in MiB."""
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{self._process.pid}/status").read_text())
        assert found
        return int(found[1]) // 1024

    @property
    def files(self) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module", autouse=True)
def many_files() -> Iterator[None]:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * CROWD:
        pytest.skip(f"only {hard} open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * CROWD), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def config(folder: Path, ca: trustme.CA, **options: object) -> tuple[Path, dict[str, int]]:
    """Write a configuration with a listener of each kind; returns its path and the ports."""
    own = ca.issue_cert(HOST)
    pem = folder / "server.pem"
    pem.write_text(text(own.private_key_pem) + "".join(map(text, own.cert_chain_pems)))
    pem.chmod(0o600)
    ports = dict(zip(("SSL", "SASL_SSL", "SASL_PLAINTEXT"), free_ports(3), strict=True))
    given = {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "ssl.keystore.location": str(pem),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        **options,
    }
    file = folder / "server.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()))
    return file, ports


@contextlib.contextmanager
def secured_broker(folder: Path, ca: trustme.CA) -> Iterator[Server]:
    data = str(folder / "data")
    adding = [sys.executable, "-m", "ottla", "broker", "users", "add", "alice", "--data", data]
    subprocess.run(adding, input=PASSWORD, text=True, check=True, capture_output=True, timeout=PROGRAM)
    file, ports = config(folder, ca, **{"log.dirs": data})
    server = Server(folder, ["broker", "--config", str(file)], ports)
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def secured_proxy(folder: Path, ca: trustme.CA) -> Iterator[Server]:
    [port] = free_ports(1)
    (folder / "upstream").mkdir()
    listening = ["broker", "--listen", f"{HOST}:{port}", "--data", str(folder / "data")]
    upstream = Server(folder / "upstream", listening, {})
    users = user_file(folder, {"alice": PASSWORD})
    options = {"upstream": f"{HOST}:{port}", "users": users, "super-users": ["User:alice"]}
    file, ports = config(folder, ca, **options)
    server = Server(folder, ["proxy", "--config", str(file)], ports)
    try:
        yield server
    finally:
        server.stop()
        upstream.stop()


SERVERS: dict[str, Callable[[Path, trustme.CA], contextlib.AbstractContextManager[Server]]] = {
    "broker": secured_broker,
    "proxy": secured_proxy,
}


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA
) -> Iterator[Server]:
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param), ca) as running:
        yield running
        assert "please report it" not in running.log.read_text()


def answers(peer: Peer) -> float:
    """Ask for metadata; returns the seconds that the response took."""
    began = time.monotonic()
    assert peer.ask(MetadataRequest(topics=None), 9).brokers
    return time.monotonic() - began


def logs_in(server: Server, ca: trustme.CA) -> float:
    """Connect with TLS and a password, as a real client; returns the seconds until it has its first response."""
    began = time.monotonic()
    tls, sasl = TLS(ca=text(ca.cert_pem)), ScramSha512("alice", PASSWORD)
    with ottla.sync.connect(f"{HOST}:{server.ports['SASL_SSL']}", tls=tls, sasl=sasl, connect_timeout=HUNG) as client:
        client.list_topics()
    return time.monotonic() - began


def flood(server: Server, kind: str, crowd: contextlib.ExitStack) -> Iterator[socket.socket]:
    """Open `CROWD` connections that never authenticate."""
    for name, data in itertools.islice(itertools.cycle(KINDS[kind]), CROWD):
        stranger = crowd.enter_context(socket.create_connection((HOST, server.ports[name]), HUNG))
        with contextlib.suppress(OSError):  # it is closed already, because another one has come
            stranger.sendall(data)
        yield stranger


@pytest.mark.parametrize("kind", KINDS)
def test_two_thousand_strangers_are_not_noticed_and_leave_nothing(server: Server, ca: trustme.CA, kind: str) -> None:
    before, memory = server.files, list[int]()
    with contextlib.closing(logged_in(f"{HOST}:{server.ports['SASL_PLAINTEXT']}", "alice", PASSWORD)) as alice:
        usual = max(answers(alice) for _ in range(20))
        slowest = 0.0
        for _ in range(3):
            with contextlib.ExitStack() as crowd:
                for number, _ in enumerate(flood(server, kind, crowd)):
                    if number % 100 == 0:
                        slowest = max(slowest, answers(alice))
                    assert number % 500 or logs_in(server, ca) < HUNG
                assert server.files < before + 600, "a quarter of 2,000 connections may be without a login"
                slowest = max(slowest, answers(alice))
            while server.files > before + 10:  # a process gives the test no other event to wait on
                answers(alice)
            memory.append(server.memory)
    print(f"{kind}: {memory} MiB, slowest response {slowest * 1000:.1f} ms, usual {usual * 1000:.1f} ms")
    assert slowest < HUNG / 10
    assert memory[-1] < memory[0] + 10, "later connections use the freed memory"
