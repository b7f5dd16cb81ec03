"""CRC-32C, the checksum of record batches and of brokers' files, computed by the extension of the package crc32c.

The package itself is not imported: to know its own version, it loads 60 modules that read the metadata of packages and
parse e-mail, in a fifth of the time that a program needs to its first record.
"""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

__all__ = ["crc32c"]

if TYPE_CHECKING:
    from crc32c import crc32c
else:
    package = find_spec("crc32c")
    found = PathFinder.find_spec("_crc32c", package and package.submodule_search_locations)
    if found is None:  # another release of the package may be arranged otherwise
        from crc32c import crc32c
    else:
        extension = module_from_spec(found)
        found.loader.exec_module(extension)
        crc32c = extension.crc32c
