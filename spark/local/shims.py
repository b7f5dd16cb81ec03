"""Wrapper scripts for the programs that Spark starts.

They are stored in the cache (`OTTLA_CACHE`, else ~/.cache/ottla).
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from ottla.errors import ConfigurationError


def shim(program: Path, text: str) -> Path:
    """Write a script with this text and the name of ``program`` into its own folder ``bin``; return its path.

    Raises:
        ConfigurationError: the cache is not writable, or its file system does not allow programs to run.
    """
    try:
        cache = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")
    except RuntimeError as error:  # the home directory is unknown
        raise ConfigurationError(f"{error} Set OTTLA_CACHE to a folder for scripts") from None
    content = os.fsencode(text)
    home = cache / f"{program.name}-{hashlib.sha256(content).hexdigest()[:12]}"
    script = home / "bin" / program.name
    with contextlib.suppress(OSError):
        if script.read_bytes() == content and os.access(script, os.X_OK):
            return script
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be about to run the script, so it must appear complete or not at all.
        with tempfile.NamedTemporaryFile(dir=script.parent, prefix=f"{program.name}-", delete=False) as partial:
            partial.write(content)
        os.chmod(partial.name, 0o755)
        os.replace(partial.name, script)
    except OSError as error:
        raise ConfigurationError(f"cannot write to {home} ({error}): set OTTLA_CACHE to another folder") from error
    if not os.access(script, os.X_OK):
        raise ConfigurationError(f"programs in {home} cannot be run: set OTTLA_CACHE to another folder")
    return script
