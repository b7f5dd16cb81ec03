"""Scripts in front of the programs that Spark starts.

They are kept in the cache (`OTTLA_CACHE`, else ~/.cache/ottla).
"""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from ottla.errors import ConfigurationError


def shim(program: Path, text: str) -> Path:
    """A script with this text in front of ``program``, of the same name, in a folder ``bin`` of its own.

    Raises:
        ConfigurationError: the cache cannot be written, or nothing in it can be run.
    """
    try:
        cache = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")
    except RuntimeError as error:  # nobody knows where home is
        raise ConfigurationError(f"{error} Name a folder for scripts in OTTLA_CACHE") from None
    content = os.fsencode(text)
    home = cache / f"{program.name}-{hashlib.sha256(content).hexdigest()[:12]}"
    script = home / "bin" / program.name
    with contextlib.suppress(OSError):
        if script.read_bytes() == content and os.access(script, os.X_OK):
            return script
    try:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Another process may be about to run it: the script appears whole, or not at all.
        with tempfile.NamedTemporaryFile(dir=script.parent, prefix=f"{program.name}-", delete=False) as partial:
            partial.write(content)
        os.chmod(partial.name, 0o755)
        os.replace(partial.name, script)
    except OSError as error:
        raise ConfigurationError(f"{home} cannot be written ({error}): name another folder in OTTLA_CACHE") from error
    if not os.access(script, os.X_OK):
        raise ConfigurationError(f"programs in {home} cannot be run: name another folder in OTTLA_CACHE")
    return script
