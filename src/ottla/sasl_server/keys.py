"""The keys that sign tokens: a JWKS, read from a file or a URL; blocks.

Rules:
- A token with an unknown ``kid`` causes one attempt to load the keys again, at most every `_PAUSE` seconds: providers
  add a key before they use it, and strangers may send any ``kid``.
- After `OAuthSettings.refresh` seconds the keys are loaded again, so that a withdrawn key ends.
- While the keys cannot be loaded, the old ones stay; one warning says so, and one line that they load again.
- One thread loads at a time, within a deadline; the others continue with the old keys.

Source: RefreshingHttpsJwks.java; RFC 7517.
"""

import json
import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ottla.bounded_http import fetch
from ottla.errors import ConfigurationError
from ottla.sasl_server.settings import OAuthSettings
from ottla.tls import TLS

log = logging.getLogger("ottla.serve")

_PAUSE = 10.0
"""Seconds between two attempts that unknown keys cause, and after a failure."""
_DEADLINE = 5.0
"""Seconds for one attempt."""
_PUBLIC = ("RSA", "EC", "OKP")


class UnknownKey(LookupError):
    """No key has this id; the text is for the log."""


class SigningKeys:
    """Loads and keeps the keys.

    Args:
        jwk: the module `joserfc.jwk`.

    Raises:
        ConfigurationError: the file cannot be read. (A URL may be down; then tokens are refused until it is up.)
    """

    def __init__(self, settings: OAuthSettings, jwk: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._jwk, self._clock = jwk, clock
        self._refresh = settings.refresh
        self._tls = TLS(ca=settings.ca) if settings.ca is not None else None
        parts = urlsplit(settings.jwks)
        self._url = settings.jwks if parts.scheme in ("http", "https") else None
        self._file = Path(unquote(parts.path) if parts.scheme == "file" else settings.jwks)
        self._where = self._url or str(self._file)
        self._loading = threading.Lock()
        self._keys: dict[str | None, Any] = {}
        self._loaded_at: float | None = None
        self._tried_at: float | None = None
        self._failed = False
        if self._url is None:
            try:
                self._keys, self._loaded_at = self._load(), clock()
            except (OSError, ValueError) as error:
                raise ConfigurationError(f"sasl: the keys of {self._where} cannot be read: {error}") from None

    def key(self, kid: object) -> Any:
        """The key of a token; ``None`` as its id: the only key.

        Raises:
            UnknownKey: there is no such key.
        """
        if self._is_due(self._refresh if self._keys else 0.0):
            self._load_again()
        if (found := self._find(kid)) is None and self._is_due(_PAUSE):
            self._load_again()
            found = self._find(kid)
        if found is None:
            if kid is None:
                raise UnknownKey(f"the token names no key, and there are {len(self._keys)}")
            raise UnknownKey(f"there is no key {kid!r:.80}" + ("" if self._keys else ": no keys could be loaded"))
        return found

    def _find(self, kid: object) -> Any:
        keys = self._keys
        if kid is None:
            return next(iter(keys.values())) if len(keys) == 1 else None
        return keys.get(kid) if isinstance(kid, str) else None

    def _is_due(self, after: float) -> bool:
        now = self._clock()
        if self._tried_at is not None and now < self._tried_at + _PAUSE:
            return False
        return self._loaded_at is None or now >= self._loaded_at + after

    def _load_again(self) -> None:
        if not self._loading.acquire(blocking=False):
            return
        try:
            self._tried_at = self._clock()
            self._keys = self._load()
            self._loaded_at = self._clock()
            if self._failed:
                log.info("keys of OAUTHBEARER load again", extra={"from": self._where})
            self._failed = False
        except (OSError, ValueError, ssl.SSLError) as error:
            if not self._failed:
                log.warning("keys of OAUTHBEARER cannot be loaded, keeping the previous ones: %s", error)
            self._failed = True
        finally:
            self._loading.release()

    def _load(self) -> dict[str | None, Any]:
        data = self._file.read_bytes() if self._url is None else fetch(self._url, self._tls, _DEADLINE)
        try:
            entries = json.loads(data)["keys"]
            keys = {}
            for entry in entries:
                if entry.get("kty") in _PUBLIC and entry.get("use", "sig") == "sig":
                    keys[entry.get("kid")] = self._jwk.import_key(entry)
        except Exception as error:  # of the library, or of data that is not a JWKS at all
            raise ValueError(f"not a JWKS ({type(error).__name__})") from None
        if not keys:
            raise ValueError("a JWKS without keys that sign")
        return keys
