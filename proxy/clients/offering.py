"""The APIs and versions that the clients of a listener are offered.

Rules:
- Clients get the versions that both upstream and the table `CARRIED` have, and the operator does not deny.
- Where ACLs apply, an API that the proxy cannot check is not offered.
- A listener with SASL offers the APIs by which its clients log in: the proxy's own, or upstream's in modes `relay` and
  `forward`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ottla.proxy.clients.access.screens import NEWEST_SCREENED, NOT_SCREENED, OLDEST_SCREENED, is_screened
from ottla.proxy.clients.carried import API_VERSIONS, Versions, offered, why_not
from ottla.proxy.denied_apis import NONE_DENIED, DeniedApis

HANDSHAKE, AUTHENTICATE = 17, 36
OF_LOGINS: Versions = MappingProxyType({HANDSHAKE: (0, 1), AUTHENTICATE: (0, 2)})
"""The versions of SASL that the proxy itself speaks with clients."""
RELAYED: Versions = MappingProxyType({HANDSHAKE: (1, 1), AUTHENTICATE: (0, 2)})
"""The versions of SASL that pass: with the older handshake, tokens are no requests."""


@dataclass(frozen=True)
class Offering:
    """The offer for the clients of a listener.

    Attributes:
        denied: the versions that the operator takes away.
        screened: ACLs apply.
        logins: the versions of SASL; empty: the listener has none.
        relayed: the mechanisms by which clients log in to upstream itself; empty: they do not.
        claim: of tokens, with the user's name, in mode `forward`; ``None``: the proxy never acts as the clients' users.
    """

    denied: DeniedApis = NONE_DENIED
    screened: bool = False
    logins: Versions = field(default_factory=lambda: MappingProxyType({}))
    relayed: tuple[str, ...] = ()
    claim: str | None = None

    def of(self, upstream: Versions, *, with_names: bool) -> Versions:
        """The versions that clients are offered if ``upstream`` serves these.

        Args:
            with_names: a rule has mode `fan-out`.
        """
        left = {
            key: (max(low, allowed.start), min(high, allowed.stop - 1))
            for key, (low, high) in offered(upstream, with_names=with_names).items()
            if (allowed := self._allowed(key))
        }
        both = {key: (low, high) for key, (low, high) in left.items() if low <= high}
        return dict(sorted({**both, **self._logins(upstream)}.items()))

    def why_not(self, key: int, version: int, *, with_names: bool) -> str | None:
        """Why a request of an API in a version is not carried; ``None``: it is."""
        if key in self.logins:
            low, high = self.logins[key]
            return None if low <= version <= high else f"the proxy knows versions {low} to {high}"
        if (why := why_not(key, version, with_names=with_names)) is not None:
            return why
        if version in self._allowed(key):
            return None
        if version not in self.denied.versions(key):
            return "the operator of the proxy denies it"
        return NOT_SCREENED.get(key, "the proxy cannot check it")

    def _allowed(self, key: int) -> range:
        versions = self.denied.versions(key)
        if not self.screened or key == API_VERSIONS:
            return versions
        if not is_screened(key):
            return range(0)
        oldest, newest = OLDEST_SCREENED.get(key, 0), NEWEST_SCREENED.get(key, versions.stop - 1)
        return range(max(versions.start, oldest), min(versions.stop, newest + 1))

    def _logins(self, upstream: Versions) -> Mapping[int, tuple[int, int]]:
        if not self.relayed:
            return self.logins
        both = {
            key: (max(low, upstream[key][0]), min(high, upstream[key][1]))
            for key, (low, high) in RELAYED.items()
            if key in upstream
        }
        return {key: (low, high) for key, (low, high) in both.items() if low <= high}
