"""Checks the paths in a configuration, and changes nothing: a server would find the same when it starts.

Rule: permissions tell too little (root may write anywhere, and yet not in /proc), so a check creates a nameless file.
"""

import os
import stat
import tempfile
from pathlib import Path

from ottla.errors import ConfigurationError, reason


def check_folder(path: Path, option: str) -> None:
    """Check that a folder can be written to, or created.

    Raises:
        ConfigurationError: it cannot; the message begins with the option.
    """
    there = path.absolute()
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise ConfigurationError(f"{option}: {path} cannot be a folder: {there} is a file")
    _check_writable(there, path, option)


def check_appendable(path: Path, option: str) -> None:
    """Check that a file can be opened for appending, or created.

    Raises:
        ConfigurationError: it cannot; the message begins with the option.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        _check_writable(path.absolute().parent, path, option)
        return
    except OSError as error:
        raise _unusable(path, option, error) from None
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # a pipe would wait for its reader
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
        except OSError as error:
            raise _unusable(path, option, error) from None


def is_exposed(path: "str | os.PathLike[str]") -> bool:
    """Whether every user of the machine may read a file with a secret; ``False`` if that is unknown, as on Windows."""
    try:
        return os.name != "nt" and bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False


def _check_writable(folder: Path, path: Path, option: str) -> None:
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unusable(path, option, error) from None


def _unusable(path: Path, option: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{option}: cannot write to {path}: {reason(error)}")
