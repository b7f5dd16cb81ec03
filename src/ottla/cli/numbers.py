"""Numbers as people write them."""


def counted(number: int, one: str, several: str | None = None) -> str:
    """A number and its noun: ``1 producer``, ``3 producers``."""
    return f"{number} {one if number == 1 else several or f'{one}s'}"


def in_units(size: int) -> str:
    """Bytes, in the unit that leaves one to three digits before the point."""
    for unit, most in (("bytes", 2**10), ("KiB", 2**20), ("MiB", 2**30)):
        if size < most:
            return f"{size} bytes" if unit == "bytes" else f"{size / (most / 2**10):.1f} {unit}"
    return f"{size / 2**30:.1f} GiB"
