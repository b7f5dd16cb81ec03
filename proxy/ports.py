"""Opens the ports of the proxy: one for each node of upstream on each listener."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ottla.addresses import EVERY_ADDRESS, format_address
from ottla.errors import ConfigurationError
from ottla.proxy.config import ProxyConfig
from ottla.proxy.listeners import ClientMode, ProxyListener
from ottla.proxy.standby import released
from ottla.proxy.user_file import UserFile
from ottla.serve import Listener, PortSecurity, Service, warn_of_exposed_key

log = logging.getLogger("ottla.proxy")


class Ports:
    """Opens the ports, and knows them.

    Args:
        service: returns the service of a node on a listener, which has this number.
        in_use_until: until when another proxy may still have the ports.

    Attributes:
        users: who may log in with a password.
        of_main: node id -> its port on the main listener.

    Raises:
        ConfigurationError: the users or the keys for tokens cannot be read.
    """

    def __init__(
        self, config: ProxyConfig, listener: Listener, service: Callable[[int, int], Service], in_use_until: float
    ) -> None:
        self._listener, self._service, self._in_use_until = listener, service, in_use_until
        self._configs = config.all_listeners
        self._first = config.first_node
        """The id of the node with the first port of each listener."""
        self.of_main: dict[int, int] = {}
        self._bound: dict[tuple[int, int], int] = {}
        """(listener, node) -> the port."""
        self.users = UserFile(None if config.users is None else Path(config.users))
        self._securities = [_security(each, self.users) for each in self._configs]
        for each in self._configs:
            # In the other modes upstream finds out who a client is.
            if each.is_open and each.mode is ClientMode.TERMINATE and not (config.acls and each.authenticates):
                log.warning(
                    "listener without authentication: everyone who reaches it has the rights of the proxy's user",
                    extra={"listener": each.name, "listen": each.address},
                )

    def bootstraps(self) -> dict[str, str]:
        """The address of the first node on each listener, by the name of the listener, for clients on this machine."""
        found = {}
        for number, each in enumerate(self._configs):
            first = min(node for listener, node in self._bound if listener == number)
            port = self._bound[number, first]
            host = each.host if each.host not in EVERY_ADDRESS else each.advertised_host
            found[each.name] = format_address(host, port if host == each.host else self._told(each, first, port))
        return found

    def advertised(self) -> str:
        """The address of the first node that clients of the main listener get."""
        main, first = self._configs[0], min(self.of_main)
        return format_address(main.advertised_host, self._told(main, first, self.of_main[first]))

    def expect(self, node: int) -> None:
        """Notice that the ports of a node are wanted; the first node that is wanted is the lowest."""
        if self._first is None:
            self._first = node

    async def open(self, node: int) -> tuple[int, ...]:
        """Open the ports of a node that are not open yet; return the ports that clients get, for each listener.

        Raises:
            ConfigurationError: one of them cannot be opened; the others stay open.
        """
        assert self._first is not None, "the node is expected"
        above = node - self._first
        if above < 0:
            raise ConfigurationError(f"node {node} is below the first node, {self._first}: set first-node to {node}")
        for number, each in enumerate(self._configs):
            if (number, node) not in self._bound:
                wanted = each.port + above if each.port else 0
                service, security = self._service(node, number), self._securities[number]
                listen = partial(self._listener.open, each.host, wanted, service, security)
                self._bound[number, node] = port = await released(listen, self._in_use_until)
                if number == 0:
                    self.of_main[node] = port
                log.info("listening", extra=_facts(self._configs, number, node, port))
        return tuple(self._told(each, node, self._bound[number, node]) for number, each in enumerate(self._configs))

    def _told(self, listener: ProxyListener, node: int, port: int) -> int:
        assert self._first is not None, "a port is open"
        return listener.advertised_for(node - self._first, port)


def _facts(configs: tuple[ProxyListener, ...], number: int, node: int, port: int) -> dict[str, object]:
    facts: dict[str, object] = {"node": node, "address": format_address(configs[number].host, port)}
    return facts if len(configs) == 1 else facts | {"listener": configs[number].name}


def _security(config: ProxyListener, users: UserFile) -> PortSecurity:
    if config.mode.at_upstream:
        warn_of_exposed_key(config.tls)
        return PortSecurity(name=config.name, tls=config.tls)
    return PortSecurity.of(config, users)
