"""Secured proxies for tests: users, ACLs, and a raw client that logs in."""

import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ottla.acl.acls import Acl
from ottla.codec.apis.create_acls import AclOperation, AclPermissionType, CreateAclsRequest, PatternType, ResourceType
from ottla.codec.apis.delete_acls import DeleteAclsRequest
from ottla.codec.apis.describe_acls import DescribeAclsResponse
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest
from ottla.codec.wire import api
from ottla.proxy.acl_rules import AclRules
from ottla.proxy.clients.offering import Offering
from ottla.proxy.listeners import ProxyListener
from ottla.proxy.user_file import new_users, write_users
from ottla.sasl_server.scram import HASHES, LEAST_ITERATIONS, credential_for
from ottla.sasl_server.settings import SaslSettings
from tests.brokerlite.acl_questions import all_acls
from tests.brokerlite.machine import NEWEST
from tests.brokerlite.peer import Peer
from tests.patience import HUNG
from tests.proxy.running import ProxyThread

NOT_OFFERED = "not offered"
OFFERING = Offering(screened=True)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def user_file(home: Path, passwords: Mapping[str, str]) -> str:
    """Write a file of users; returns its path."""
    users = new_users()
    for name, password in passwords.items():
        for mechanism in HASHES:
            credential = credential_for(mechanism, password, secrets.token_bytes(20), LEAST_ITERATIONS)
            users = users.changed(name, mechanism, credential)
    home.mkdir(exist_ok=True)
    write_users(home / "users.json", users)
    return str(home / "users.json")


def with_passwords(**options: Any) -> ProxyListener:
    """A listener on a free port whose clients log in with a password."""
    given: dict[str, Any] = {"protocol": "SASL_PLAINTEXT", "sasl": SaslSettings(mechanisms=MECHANISMS), "port": 0}
    return ProxyListener(**(given | options))


def acl(text: str) -> Acl:
    """Parse an ACL: ``allow alice Read Topic orders [prefixed] [@host]``."""
    permission, user, operation, kind, name, *more = text.split()
    hosts = [each[1:] for each in more if each.startswith("@")]
    return Acl(
        ResourceType[_code(kind)],
        name,
        PatternType.PREFIXED if "prefixed" in more else PatternType.LITERAL,
        f"User:{user}",
        hosts[0] if hosts else "*",
        AclOperation[_code(operation)],
        AclPermissionType[permission.upper()],
    )


def _code(name: str) -> str:
    return "".join(f"_{each}" if each.isupper() else each for each in name).lstrip("_").upper()


def rules(*texts: str, **options: Any) -> AclRules:
    return AclRules(tuple(map(acl, texts)), **({"super_users": ("User:admin",)} | options))


def logged_in(address: str, user: str, password: str) -> Peer:
    """A raw client that has logged in by PLAIN."""
    host, _, port = address.rpartition(":")
    peer = Peer(int(port), host, timeout=HUNG)
    for message, version in (
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2),
    ):
        answer = peer.ask(message, version)
        assert answer.error_code == 0, answer
    return peer


def on_thread(proxy: ProxyThread, change: Callable[[], None]) -> None:
    """Run a function on the proxy's thread, and wait for it."""
    done = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            change()
        except BaseException as error:
            failed.append(error)
        done.set()

    proxy._token.run_sync_soon(run)
    assert done.wait(HUNG)
    if failed:
        raise failed[0]


class AclsInProxy:
    """A proxy with ACLs in front of a broker; the administrator talks to the broker itself.

    Whoever changes the broker's ACLs changes those of the proxy, too.
    """

    def __init__(self, proxy: ProxyThread, admin: Any, passwords: Mapping[str, str], allow_if_none: bool) -> None:
        self._proxy, self._admin, self._passwords, self._allow_if_none = proxy, admin, passwords, allow_if_none
        self._peers: dict[str, Peer] = {}

    @property
    def timestamp(self) -> int:
        timestamp: int = self._admin.timestamp
        return timestamp

    def ask(self, message: Any, version: int | None = None, user: str | None = None) -> Any:
        if user is None:
            answer = self._admin.ask(message, version)
        else:
            if user not in self._peers:
                self._peers[user] = logged_in(self._proxy.bootstrap, user, self._passwords[user])
            key = api(type(message)).key
            asked = NEWEST[key] if version is None else version
            if OFFERING.why_not(key, asked, with_names=False):
                return NOT_OFFERED
            answer = self._peers[user].ask(message, asked)
        if isinstance(message, CreateAclsRequest | DeleteAclsRequest):
            self._mirror()
        return answer

    def _mirror(self) -> None:
        """Give the proxy the ACLs of the broker, and have users log in again."""
        told: DescribeAclsResponse = self._admin.ask(all_acls(), 3)
        found = tuple(
            Acl.checked(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            for resource in told.resources
            for each in resource.acls
        )
        new = AclRules(found, ("User:admin",), self._allow_if_none)
        on_thread(self._proxy, lambda: self._proxy.running.change_acls(new))
        self.close()

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
