"""Memory for what is read, used again when nobody looks at it any more.

Large memory that is new costs more than reading into it: the system hands out each page at its first touch. So a few
blocks are kept. One that somebody still holds a view of, however indirectly, is not used again.
"""

KEPT_BYTES = 16 * 2**20
"""In all blocks together, whether they are in use or not."""
_SMALLEST = 64 * 2**10
"""What is smaller, Python's allocator has at hand."""


class Buffers:
    """Blocks of memory; for one thread, but views may be released in any."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self._room = kept_bytes
        self._blocks: dict[int, list[bytearray]] = {}
        """By their size, a power of two."""

    def take(self, size: int) -> memoryview:
        """``size`` bytes of any content, for as long as somebody holds the view or a part of it."""
        if size < _SMALLEST:
            return memoryview(bytearray(size))
        room = 1 << (size - 1).bit_length()
        blocks = self._blocks.setdefault(room, [])
        for block in blocks:
            if _is_free(block):
                return memoryview(block)[:size]
        if room > self._room:
            return memoryview(bytearray(size))
        self._room -= room
        blocks.append(bytearray(room))
        return memoryview(blocks[-1])[:size]


def _is_free(block: bytearray) -> bool:
    """Whether no view of ``block`` is held: its size cannot be changed otherwise."""
    try:
        block.pop()
    except BufferError:
        return False
    block.append(0)
    return True
