"""Zeroconf on the loopback interface: real announcements, no other machine.

Names contain the process's id, because another run of the tests may announce its own at the same time. The tests of
this file run one after another, because some search for every announcement.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
import trio

from ottla.errors import BrokerUnreachable, ConfigurationError
from ottla.sdk import discovery, mdns
from tests.announcing import alone
from tests.patience import FAR, HUNG, longer_and_longer
from tests.serving import until
from tests.zeroconf_threads import loops

LOOPBACK = ["127.0.0.1"]
A, B, C = (f"ottla-test-{letter}-{os.getpid()}" for letter in "abc")


@pytest.fixture(scope="module")
def two() -> Iterator[None]:
    """Two nodes of one cluster."""
    with ExitStack() as stack:
        stack.enter_context(alone())
        for name, port in ((A, 19092), (B, 19093)):
            stack.enter_context(
                mdns.announced(name, port, properties={"cluster": "t"}, interfaces=LOOPBACK),
            )
        yield


async def test_a_name_is_found(two: None) -> None:
    with trio.fail_after(HUNG):  # the search ends as soon as it has the answer
        assert await discovery.find(B, FAR, interfaces=LOOPBACK) == ["127.0.0.1:19093"]


async def test_a_bootstrap_by_zeroconf_is_looked_up_on_all_interfaces(two: None) -> None:
    assert await discovery.resolve(f"zeroconf://{A}", HUNG) == ["127.0.0.1:19092"]
    assert mdns.resolve(f"zeroconf://{B}/", HUNG) == ["127.0.0.1:19093"]


async def test_a_bootstrap_of_addresses_is_left_as_it_is() -> None:
    assert await discovery.resolve("a:1,b:2", 5) == ["a:1", "b:2"]


@pytest.mark.slow
async def test_without_a_name_every_node_is_found(two: None) -> None:
    for seconds in longer_and_longer(5.0):
        found = {a.name: a for a in await discovery.browse(seconds, interfaces=LOOPBACK)}
        if found.keys() >= {A, B}:
            break
    assert found[A].addresses == ("127.0.0.1:19092",)
    assert found[B].addresses == ("127.0.0.1:19093",)
    assert found[B].properties == {"cluster": "t"}
    addresses: list[str] = []
    for seconds in longer_and_longer(5.0):
        with suppress(BrokerUnreachable):
            addresses = await discovery.find(None, seconds, interfaces=LOOPBACK)
        if len(addresses) > 1:
            break
    assert addresses == ["127.0.0.1:19092", "127.0.0.1:19093"]


@pytest.mark.slow
async def test_two_clusters_are_not_mixed(two: None) -> None:
    async with discovery.announced(C, 19094, properties={"cluster": "u"}, interfaces=LOOPBACK):
        with pytest.raises(ConfigurationError, match=f"zeroconf://{A}.*zeroconf://{C}"):
            for seconds in longer_and_longer(5.0):
                with suppress(BrokerUnreachable):
                    await discovery.find(None, seconds, interfaces=LOOPBACK)
        with trio.fail_after(HUNG):
            assert await discovery.find(C, FAR, interfaces=LOOPBACK) == ["127.0.0.1:19094"]


async def test_a_name_that_is_taken_is_refused(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mdns, "_PROBE", HUNG)  # it ends with the answer, which a busy machine delays
    with pytest.raises(ConfigurationError, match=r"announced already, by 127.0.0.1:19092"):
        async with discovery.announced(A, 1, interfaces=LOOPBACK):
            pytest.fail("announced twice")


@pytest.mark.slow
async def test_a_closed_announcement_is_gone() -> None:
    async with discovery.announced(C, 19095, interfaces=LOOPBACK):
        with trio.fail_after(HUNG):
            assert await discovery.find(C, FAR, interfaces=LOOPBACK)
    with pytest.raises(BrokerUnreachable, match=rf"'{C}'.*127.0.0.1 within 0.5 s.*--announce"):
        await discovery.find(C, 0.5, interfaces=LOOPBACK)


async def test_a_cancelled_block_takes_its_announcement_back() -> None:
    with trio.CancelScope() as scope:
        async with discovery.announced(C, 19096, interfaces=LOOPBACK):
            scope.cancel()
            await trio.sleep_forever()
    with pytest.raises(BrokerUnreachable):
        await discovery.find(C, 0.5, interfaces=LOOPBACK)


async def test_a_search_can_be_cancelled() -> None:
    before = loops()
    with trio.move_on_after(0.2) as scope:
        await discovery.find(C, 1, interfaces=LOOPBACK)
    assert scope.cancelled_caught
    # The abandoned thread ends by itself, and closes its sockets, so no ResourceWarning may follow.
    await until(lambda: loops() == before)


async def test_an_interface_that_is_not_there_is_an_error_that_names_it() -> None:
    with pytest.raises(ConfigurationError, match=r"203.0.113.7"):
        await discovery.find(A, 1, interfaces=["203.0.113.7"])


def test_a_wildcard_host_is_announced_on_every_interface_and_a_name_on_its_own() -> None:
    assert mdns.interfaces_of("0.0.0.0") is None
    assert mdns.interfaces_of("localhost") == LOOPBACK
    with pytest.raises(ConfigurationError, match=r"no IPv4 address"):
        mdns.interfaces_of("nowhere.invalid")


def test_a_name_that_dns_does_not_know_is_refused() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"cannot announce the name"),
        mdns.announced("x" * 64, 1, interfaces=LOOPBACK),
    ):
        pytest.fail("announced")


def test_zeroconf_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, ottla.sdk.discovery, ottla.sdk.mdns; sys.exit('zeroconf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
