"""APIs, or versions of them, that an operator takes away from all clients.

    deny-apis = ["AlterConfigs", "Produce:0-8"]

Rule: ApiVersions offers one range of versions for an API, so the denied versions have to be the oldest or the newest
ones that the proxy carries.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from ottla.errors import ConfigurationError
from ottla.proxy.clients.carried import API_VERSIONS, CARRIED

_DENIED = re.compile(r"([A-Za-z]+)(?::([0-9]{1,3})-([0-9]{1,3}))?")
_NEEDED = (API_VERSIONS,)
"""APIs without which no client can use the proxy."""


@dataclass(frozen=True)
class DeniedApis:
    """Which versions of APIs no client may use.

    Attributes:
        left: API key -> the carried versions that are left; an empty range: none.
    """

    left: Mapping[int, range]

    def versions(self, key: int) -> range:
        """The versions of an API that clients may use."""
        return self.left.get(key, _carried(key))


NONE_DENIED = DeniedApis({})


def _carried(key: int) -> range:
    return range(CARRIED[key].newest + 1) if key in CARRIED else range(0)


def parse_denied_apis(texts: tuple[str, ...]) -> DeniedApis:
    """Read the texts of ``deny-apis``.

    Raises:
        ConfigurationError: a text names no API, or versions in the middle.
    """
    keys = {each.name: key for key, each in CARRIED.items()}
    left: dict[int, range] = {}
    for text in texts:
        if (found := _DENIED.fullmatch(text)) is None:
            raise ConfigurationError(f"deny-apis has {text!r}; write the name of an API, or AlterConfigs:0-1")
        name = found[1]
        if name not in keys:
            near = get_close_matches(name, keys, 1)
            advice = f"do you mean {near[0]}?" if near else "clients do not get it anyway"
            raise ConfigurationError(f"deny-apis has {name!r}, which the proxy does not forward: {advice}")
        key = keys[name]
        if key in _NEEDED:
            raise ConfigurationError(f"deny-apis has {name}: without it no client can use the proxy")
        now = left.get(key, _carried(key))
        left[key] = range(0) if found[2] is None else _without(text, now, int(found[2]), int(found[3]))
    return DeniedApis(left)


def _without(text: str, now: range, first: int, last: int) -> range:
    if first > last:
        raise ConfigurationError(f"deny-apis has {text!r}: {first} is above {last}")
    if first <= now.start:
        return range(max(last + 1, now.start), now.stop)
    if last >= now.stop - 1:
        return range(now.start, min(first, now.stop))
    raise ConfigurationError(
        f"deny-apis has {text!r}: clients are offered one range of versions, so deny the oldest or the newest of "
        f"{now.start}-{now.stop - 1}"
    )
