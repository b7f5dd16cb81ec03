"""Certificates and keys in PEM, given as the path of a file, or as the text itself."""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from ottla.errors import ConfigurationError

Pem = str | os.PathLike[str]


def stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def is_text(pem: Pem) -> bool:
    return isinstance(pem, str) and "-----BEGIN" in pem


def named(option: str, pem: Pem) -> str:
    """The name for messages, which must not show the text of a key, even if its ``-----BEGIN`` line is missing."""
    if is_text(pem):
        return f"the text of {option}"
    if isinstance(pem, str) and not _is_like_a_path(pem):
        return f"the value of {option} (not shown, because it may be a key without its -----BEGIN line)"
    return f"{option} {os.fspath(pem)!r}"


def _is_like_a_path(text: str) -> bool:
    """Whether a text has an extension, which Base64 has not, or is in a folder that exists."""
    folder, name = os.path.split(text)
    if len(text) > 1000 or any(each.isspace() and each != " " for each in text):
        return False
    return "." in name or (folder.strip("/") != "" and os.path.isdir(folder))


def text(option: str, pem: Pem) -> str:
    if is_text(pem):
        return str(pem)
    try:
        return Path(pem).read_text("ascii")
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"tls: {named(option, pem)} is not PEM, which is text; convert JKS and PKCS#12 with openssl"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"tls: {named(option, pem)} cannot be read: {error.strerror}") from None


def file(stack: ExitStack, option: str, pem: Pem) -> str:
    """The path of a file with the PEM; a text is put into a private file, which is deleted with the stack."""
    if not is_text(pem):
        text(option, pem)  # for the error
        return os.fspath(pem)
    try:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-"))
        path = os.path.join(folder, option)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(str(pem))
    except OSError as error:
        what = f"{named(option, pem)} cannot be passed to OpenSSL, which reads files only"
        raise ConfigurationError(f"tls: {what}: {error.strerror}") from None
    except UnicodeEncodeError:  # whose message shows the text
        raise ConfigurationError(f"tls: {named(option, pem)} is not PEM, which is ASCII only") from None
    return path
