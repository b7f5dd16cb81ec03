"""The listener with TLS: clients, their certificates, and peers that do not speak TLS."""

import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trustme
from trio.testing import MockClock

from ottla.brokerlite.storage.disk import FileSystem
from ottla.codec.frames import framed
from ottla.errors import ConfigurationError
from ottla.serve import PendingAnswer
from ottla.serve.traffic import RECEIVED, REFUSED
from ottla.server_metrics import Sample
from ottla.tls import ClientCertificates, ServerTLS
from tests import tls
from tests.pairs import Place, listening, peer
from tests.patience import HUNG
from tests.serving import LIMITS, LOCAL, Desk, closed, echo, received, until
from tests.steps import no_step_holds_the_loop  # noqa: F401 # applies to each test here

MIB = 2**20
ROOMY = replace(LIMITS, max_frame=100 * MIB, max_connections=20)


@pytest.fixture
def clock() -> MockClock:
    return MockClock(autojump_threshold=0)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@asynccontextmanager
async def secured(desk: Desk, its: ServerTLS) -> AsyncIterator[Place]:
    async with listening(desk, ROOMY, its) as (_, place):
        yield place


@asynccontextmanager
async def secure_peer(
    place: Place, ca: trustme.CA, change: Callable[[ssl.SSLContext], object] = id
) -> AsyncIterator[trio.SSLStream[trio.SocketStream]]:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    change(context)
    async with peer(place) as stream:
        yield trio.SSLStream(stream, context, server_hostname=LOCAL, https_compatible=True)


# -- clients that speak TLS


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
async def test_requests_and_answers_of_any_size_come_and_go_in_order(
    clock: MockClock, ca: trustme.CA, version: ssl.TLSVersion
) -> None:
    desk = Desk(echo)
    change = lambda context: setattr(context, "maximum_version", version)  # noqa: E731
    async with secured(desk, tls.serving(ca, LOCAL)) as place, secure_peer(place, ca, change) as stream:
        sent = b"".join(framed(bytes([size % 251]) * size) for size in (1, 0, 100_000, 3 * MIB, 17, 65_536, 70_000))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, sent)
            assert await received(stream, len(sent)) == sent
        session = desk.connections[0].session
        assert (session.listener, session.principal, session.certificate_subject) == ("SSL", "User:ANONYMOUS", None)


async def test_what_lies_in_a_file_is_read_for_tls_in_pieces(clock: MockClock, ca: trustme.CA, tmp_path: Path) -> None:
    disk, content = FileSystem(), os.urandom(MIB + 1)
    disk.write_file(tmp_path / "file", content)

    def answer(frame: bytes, answer: PendingAnswer) -> None:
        answer.send(len(content).to_bytes(4, "big"), disk.range(tmp_path / "file", len(content), 0))

    async with secured(Desk(answer), tls.serving(ca, LOCAL)) as place, secure_peer(place, ca) as stream:
        await stream.send_all(framed(b"much"))
        assert await received(stream, 4 + len(content)) == framed(content)


async def test_the_subject_of_a_clients_certificate_is_known_with_its_first_request(
    clock: MockClock, ca: trustme.CA
) -> None:
    subjects: list[str | None] = []
    desk = Desk(lambda frame, answer: subjects.append(desk.connections[0].session.certificate_subject))
    own = ca.issue_cert("app.example.com", common_name="app, one", organization_name="ottla")
    its = tls.serving(ca, LOCAL, "required")
    async with secured(desk, its) as place, secure_peer(place, ca, own.configure_cert) as stream:
        await stream.send_all(framed(b"a"))
        await until(lambda: subjects)
    [subject] = subjects
    assert subject is not None and subject.startswith(r"CN=app\, one,OU=Testing cert") and subject.endswith(",O=ottla")


@pytest.mark.parametrize("wanted", ["requested", "required"])
async def test_a_client_without_a_certificate_is_refused_where_one_is_required(
    clock: MockClock, ca: trustme.CA, caplog: pytest.LogCaptureFixture, wanted: ClientCertificates
) -> None:
    desk = Desk(echo)
    its = tls.serving(ca, LOCAL, wanted)
    async with secured(desk, its) as place, secure_peer(place, ca) as stream:
        if wanted == "requested":
            await stream.send_all(framed(b"a"))
            assert await received(stream, 5) == framed(b"a")
            return
        with pytest.raises(trio.BrokenResourceError) as raised:
            await stream.send_all(framed(b"a"))
            await stream.receive_some(10)
        assert "CERTIFICATE_REQUIRED" in str(raised.value.__cause__)
    [record] = caplog.records
    assert record.getMessage() == "connection refused: the client sent no certificate, and one is required"


async def test_a_certificate_of_another_ca_is_refused_with_what_to_do(
    clock: MockClock, ca: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    own = trustme.CA().issue_cert("app.example.com")
    its = tls.serving(ca, LOCAL, "required")
    async with secured(Desk(echo), its) as place, secure_peer(place, ca, own.configure_cert) as stream:
        with pytest.raises(trio.BrokenResourceError):
            await stream.send_all(framed(b"a"))
            await stream.receive_some(10)
    [record] = caplog.records
    assert "the client's certificate is not trusted" in record.getMessage()
    assert "give the CA that signed it as ServerTLS(ca=…)" in record.getMessage()


async def test_a_renewed_certificate_is_shown_to_the_next_client_and_a_bad_one_to_none(
    clock: MockClock, ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def renew() -> None:
        ca.issue_cert(LOCAL).private_key_and_cert_chain_pem.write_to_path(str(path))

    async def shown() -> object:
        async with secure_peer(place, ca) as stream:
            await stream.do_handshake()
            return stream.getpeercert()["serialNumber"]

    path = tmp_path / "server.pem"
    renew()
    async with secured(Desk(echo), ServerTLS(certificate=path)) as place:
        first = await shown()
        assert await shown() == first
        renew()
        second = await shown()
        assert second != first
        path.write_text("half a certificate")
        assert await shown() == second
        assert await shown() == second
        assert [record.levelname for record in caplog.records] == ["ERROR"], "logged once"
        assert "server.pem" in caplog.text
        renew()
        assert await shown() not in (first, second)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
async def test_a_client_that_ends_tls_and_waits_for_the_same_gets_its_answers_and_the_end(
    clock: MockClock, ca: trustme.CA, version: ssl.TLSVersion
) -> None:
    change = lambda context: setattr(context, "maximum_version", version)  # noqa: E731
    async with secured(Desk(echo), tls.serving(ca, LOCAL)) as place, secure_peer(place, ca, change) as stream:
        await stream.do_handshake()
        asked = framed(bytes(100_000)) + framed(b"last")
        await stream.send_all(asked)
        inside, under = stream._ssl_object, stream.transport_stream
        with pytest.raises(ssl.SSLWantReadError):
            inside.unwrap()
        await under.send_all(stream._outgoing.read())
        began, answers = trio.current_time(), bytearray()
        with trio.fail_after(HUNG):
            while data := await under.receive_some(2**16):
                stream._incoming.write(data)
        with pytest.raises(ssl.SSLZeroReturnError):
            while True:
                answers += inside.read(2**16)
        assert bytes(answers) == asked
        assert trio.current_time() - began < LIMITS.idle


# -- peers that do not


@pytest.mark.parametrize(
    ("data", "seems"),
    [
        (framed(b"\0\x12\0\x03\0\0\0\1\xff\xff"), "Kafka's protocol without TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
    ],
)
async def test_who_speaks_no_tls_where_it_is_wanted_gets_an_alert_and_a_line_in_the_log(
    clock: MockClock, ca: trustme.CA, caplog: pytest.LogCaptureFixture, data: bytes, seems: str
) -> None:
    async with secured(Desk(echo), tls.serving(ca, LOCAL)) as place, peer(place) as stream:
        await stream.send_all(data)
        assert await received(stream, 7) == b"\x15\x03\x03\x00\x02\x02\x0a"
        await closed(stream)
    [record] = caplog.records
    advice = "set security.protocol=SSL or SASL_SSL, or use another port"
    assert f"this port needs TLS, but this looks like {seems}: {advice}" in record.getMessage()


async def test_bytes_that_are_no_tls_are_counted_and_peers_that_hang_up_are_not_refused(
    clock: MockClock, ca: trustme.CA
) -> None:
    plain, half = b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"
    async with listening(Desk(echo), ROOMY, tls.serving(ca, LOCAL)) as (listener, place):
        async with peer(place) as stream:
            await stream.send_all(plain)
            await received(stream, 7)
            await closed(stream)
        async with peer(place) as stream:
            await stream.send_all(half)
        await until(lambda: not listener._connections)
        samples = list(listener.samples())
    assert Sample(RECEIVED, len(plain + half)) in samples
    assert Sample(REFUSED, 1, ("tls",)) in samples


async def test_who_does_not_come_to_an_agreement_is_dropped(
    clock: MockClock, ca: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(Desk(echo), tls.serving(ca, LOCAL)) as place, peer(place) as silent, peer(place) as slow:
        began = trio.current_time()
        for byte in b"\x16\x03\x01\x02\x00\x01":
            await slow.send_all(bytes((byte,)))
            await trio.sleep(1)
        assert await closed(silent) + trio.current_time() - began < 2 * ROOMY.handshake
        await closed(slow)
        assert ROOMY.handshake <= trio.current_time() - began < ROOMY.handshake + 2
    assert caplog.records[0].getMessage() == "connection refused: TLS handshake not complete within 10 s"


async def test_silent_peers_of_tls_keep_nobody_out(clock: MockClock, ca: trustme.CA) -> None:
    desk = Desk(echo)
    async with secured(desk, tls.serving(ca, LOCAL)) as place, secure_peer(place, ca) as good:
        await good.send_all(framed(b"a"))
        await received(good, 5)
        silent = []
        for _ in range(ROOMY.max_connections):
            silent.append(place.connect())
            await trio.testing.wait_all_tasks_blocked()
        async with secure_peer(place, ca) as late:
            await late.send_all(framed(b"b"))
            await received(late, 5)
        await good.send_all(framed(b"c"))  # its handshake was done: it is no newcomer any more
        await received(good, 5)
        assert place.open <= ROOMY.max_connections // 4 + 2
        for each in silent:
            await each.aclose()


async def test_an_answer_that_is_none_costs_its_connection_only_within_tls_too(
    clock: MockClock, ca: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    def answering(frame: bytes, answer: PendingAnswer) -> None:
        if frame == b"bad":
            answer.send("text", b"more")  # type: ignore[arg-type] # on purpose
        else:
            echo(frame, answer)

    its = tls.serving(ca, LOCAL)
    async with secured(Desk(answering), its) as place, secure_peer(place, ca) as good, secure_peer(place, ca) as bad:
        await good.do_handshake()
        await bad.send_all(framed(b"bad"))
        assert await bad.receive_some(10) == b""
        await good.send_all(framed(b"a"))
        assert await received(good, 5) == framed(b"a")
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_a_handshake_that_breaks_off_harms_nobody(
    clock: MockClock, ca: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(Desk(echo), tls.serving(ca, LOCAL)) as place:
        async with peer(place) as stream:
            await stream.send_all(b"\x16\x03\x01\x02\x00\x01")
        async with peer(place) as stream:
            await stream.send_all(b"\x16\x03\x01\x00\x10" + bytes(16))
            await received(stream, 7)
        async with secure_peer(place, ca) as good:
            await good.send_all(framed(b"a"))
            assert await received(good, 5) == framed(b"a")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# -- options


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"client_certificates": "required"}, "give the CA that signs the clients' certificates as ca="),
        ({"client_certificates": "perhaps"}, "client_certificates must be none, requested or required, not 'perhaps'"),
        ({"ca": "x.pem"}, "there is a ca, but client certificates are off"),
        ({"certificate": "/no/such.pem"}, "certificate '/no/such.pem' cannot be read"),
        ({"key": "-----BEGIN nothing-----"}, "in PEM"),
    ],
)
def test_options_that_cannot_be_used_say_what_to_do(ca: trustme.CA, options: dict[str, str], said: str) -> None:
    its = ca.issue_cert(LOCAL)
    with pytest.raises(ConfigurationError, match=said):
        ServerTLS(**{"certificate": tls.text(its.private_key_and_cert_chain_pem), **options})  # type: ignore[arg-type]


def test_nothing_shows_a_key(ca: trustme.CA) -> None:
    its = tls.serving(ca, LOCAL)
    assert "PRIVATE" not in repr(its)
