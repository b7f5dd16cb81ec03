"""Turns the configuration into the rights and the offers of clients."""

from collections.abc import Callable, Hashable

from ottla.acl.access import Access, AclAccess
from ottla.acl.acls import EVERYONE
from ottla.acl.audit import Audit
from ottla.client_info import ClientInfo
from ottla.proxy.acl_rules import AclRules
from ottla.proxy.clients.offering import OF_LOGINS, RELAYED, Offering
from ottla.proxy.config import ProxyConfig
from ottla.proxy.listeners import ClientMode, ProxyListener
from ottla.sdk.timers import Timers


def access_of(acls: AclRules | None, audit: Audit) -> Access:
    """Decides by these ACLs; without ACLs everyone may do everything."""
    return Access() if acls is None else AclAccess(acls.authorizer(), audit)


def offerings_of(config: ProxyConfig) -> tuple[Offering, ...]:
    """The offer for the clients of each listener."""
    return tuple(_offering(config, each) for each in config.all_listeners)


def _offering(config: ProxyConfig, listener: ProxyListener) -> Offering:
    if listener.mode.at_upstream and listener.sasl is not None:  # upstream applies its own ACLs
        claim = listener.sasl.claim if listener.mode is ClientMode.FORWARD else None
        return Offering(denied=config.deny_apis, logins=RELAYED, relayed=listener.sasl.mechanisms, claim=claim)
    logins = {} if listener.sasl is None else OF_LOGINS
    return Offering(denied=config.deny_apis, screened=config.acls is not None, logins=logins)


def anonymous(peer: str) -> ClientInfo:
    """A client of which only the address ``host:port`` is known."""
    host, _, port = peer.rpartition(":")
    return ClientInfo(local_host="", local_port=0, peer_host=host, peer_port=int(port) if port.isdigit() else 0)


def concerns(old: AclRules | None, new: AclRules | None) -> Callable[[str], bool]:
    """Returns a function that says whether a change of the ACLs may concern a principal."""
    if old == new:
        return lambda principal: False
    if old is None or new is None or old.allow_if_none != new.allow_if_none:
        return lambda principal: True
    principals = {acl.principal for acl in {*old.acls} ^ {*new.acls}} | ({*old.super_users} ^ {*new.super_users})
    if EVERYONE in principals or (new.allow_if_none and principals):  # a resource may have its first ACL now
        return lambda principal: True
    return lambda principal: principal in principals


class NamedTimers:
    """The timers of the proxy, by name."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._set: set[Hashable] = set()

    def set(self, name: Hashable, deadline: float, action: Callable[[float], None]) -> None:
        """Call ``action`` at a time."""

        def due(now: float) -> None:
            self._set.discard(name)
            action(now)

        self._set.add(name)
        self._timers.add(deadline, due)

    def is_set(self, name: Hashable) -> bool:
        """Whether a call is due."""
        return name in self._set
