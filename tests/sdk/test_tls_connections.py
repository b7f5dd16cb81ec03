"""A client over TLS, in each loop and without one: everything works as in plaintext, and each error names its cause."""

import ssl
from typing import Any

import pytest
import trustme

from ottla import TLS, Plain
from ottla.errors import AuthenticationFailed, BrokerUnreachable, ConfigurationError
from ottla.sdk.drivers.blocking import BlockingClient
from ottla.testing import Broker
from tests.patience import FAR, longer_and_longer
from tests.sdk.loops import LOOPS, Loop
from tests.sdk.scripted import Manner, at_once, byte_by_byte, scripted


@pytest.fixture(params=list(LOOPS))
def loop(request: pytest.FixtureRequest) -> Loop:
    """Each loop, in the quick tests too: their transports differ."""
    return LOOPS[request.param]


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def listener(ca: trustme.CA) -> ssl.SSLContext:
    """The TLS context of a broker at the loopback address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    return context


def trusting(ca: trustme.CA, **options: Any) -> TLS:
    return TLS(ca=ca.cert_pem.bytes().decode(), **options)


@pytest.mark.parametrize(("manner", "size"), [(at_once, 100), (at_once, 300_000), (byte_by_byte, 100)])
def test_records_go_and_come_as_in_the_clear(
    loop: Loop, ca: trustme.CA, listener: ssl.SSLContext, manner: Manner, size: int
) -> None:
    values = [bytes([each]) * size for each in range(10)]

    async def scenario(address: str) -> list[bytes]:
        async with loop.connect(address, tls=trusting(ca)) as client:
            async with client.producer() as producer:
                for value in values:
                    await producer.send("t", value)
            got: list[bytes] = []
            async with client.consumer("t", start="beginning") as consumer:
                while len(got) < len(values):
                    got += [each.value or b"" for each in await anext(consumer)]
            return got

    with scripted({"t": 1}, manner=manner, tls=listener) as (address, broker):
        assert loop.run(lambda: scenario(address)) == values
        assert broker.seen


def fails(loop: Loop, address: str, **options: Any) -> Exception:
    """The error of connecting, which must not wait for its timeout."""

    async def scenario() -> Exception:
        with pytest.raises(Exception) as raised:
            async with loop.connect(address, **{"connect_timeout": FAR, **options}):
                pass
        return raised.value

    return loop.run(scenario)


def unreachable(loop: Loop, address: str, said: str, **options: Any) -> str:
    """The error of a client that tries until its timeout, which a busy machine may reach before ``said`` happens."""
    for timeout in longer_and_longer(0.5):
        error = fails(loop, address, connect_timeout=timeout, **options)
        assert isinstance(error, BrokerUnreachable)
        if said in str(error):
            break
    return str(error)


def test_a_broker_that_is_not_trusted_is_told_of_at_once(loop: Loop, listener: ssl.SSLContext) -> None:
    with scripted(tls=listener) as (address, broker):
        error = fails(loop, address, tls=trusting(trustme.CA()))
        assert isinstance(error, AuthenticationFailed)
        assert str(error) == (
            f"{address}: the broker's certificate is not trusted: unable to get local issuer certificate; give the CA "
            "that signed it as tls=TLS(ca=…)"
        )
        assert not broker.seen
    assert broker.ended and set(broker.ended) == {"TLSV1_ALERT_UNKNOWN_CA"}, "the client sent the broker no alert"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=lambda each: each.name)
def test_a_broker_that_wants_a_certificate_is_told_of_at_once(
    loop: Loop, ca: trustme.CA, version: ssl.TLSVersion
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, version
    ca.issue_cert("127.0.0.1").configure_cert(context)
    ca.configure_trust(context)
    own = ca.issue_cert("service")
    with scripted(tls=context) as (address, _):
        error = fails(loop, address, tls=trusting(ca))
        assert isinstance(error, AuthenticationFailed)
        assert "TLS(certificate=" in str(error)

        async def scenario() -> list[str]:
            tls = trusting(ca, certificate=own.private_key_and_cert_chain_pem.bytes().decode())
            async with loop.connect(address, tls=tls) as client:
                return await client.list_topics()

        assert loop.run(scenario) == ["t"]


def test_tls_to_a_listener_without_it_is_recognised(loop: Loop, ca: trustme.CA) -> None:
    with scripted() as (address, _):
        said = "during the TLS handshake; listeners without TLS do that"
        assert said in unreachable(loop, address, said, tls=trusting(ca))


def test_a_listener_with_tls_is_recognised_without_it(loop: Loop, listener: ssl.SSLContext) -> None:
    with scripted(tls=listener) as (address, _):
        assert "listeners with TLS" in unreachable(loop, address, "listeners with TLS")


def test_the_blocking_client_does_it_too(ca: trustme.CA, listener: ssl.SSLContext) -> None:
    with scripted(tls=listener) as (address, _):
        with BlockingClient(address, tls=trusting(ca)) as client:
            assert list(client.topic_ids(None)) == ["t"]
        with pytest.raises(AuthenticationFailed):
            BlockingClient(address, tls=trusting(trustme.CA()))


def test_the_option_is_an_object_that_knows_what_to_do(loop: Loop) -> None:
    for wrong in (True, "ca.pem", ssl.create_default_context()):
        with pytest.raises(ConfigurationError, match=r"tls must be ottla.TLS\(ca=…\)"):
            loop.connect("127.0.0.1:1", tls=wrong)


def test_a_broker_that_ends_within_tls_is_connected_to_again(
    loop: Loop, ca: trustme.CA, listener: ssl.SSLContext
) -> None:
    with scripted(tls=listener, torn=[10, 60]) as (address, _):

        async def scenario() -> list[str]:
            async with loop.connect(address, tls=trusting(ca)) as client:
                return await client.list_topics()

        assert loop.run(scenario) == ["t"]


def test_a_password_for_a_listener_without_sasl_is_named_at_once(loop: Loop, ottla_broker: Broker) -> None:
    async def scenario() -> None:
        async with loop.connect(ottla_broker.bootstrap, sasl=Plain("alice", "secret")):
            pass

    with pytest.raises(AuthenticationFailed) as raised:
        loop.run(scenario)
    why = "the listener has no SASL; leave out sasl=, or use another port"
    assert str(raised.value) == f"{ottla_broker.bootstrap}: user 'alice' by PLAIN: {why}"
