"""The reference: construct interprets the trees of the declarations (`trees.py`), slowly.

The machines of `program.py` are tested against it. At run time, it only explains why bytes or a value were refused.
Everybody else uses `ottla.codec.messages`.
"""

import io
from typing import Any, cast

from ottla.codec.trees import message_tree
from ottla.codec.wire import Buffer, Declared, M
from ottla.errors import DecodeError, EncodeError


def parse(cls: type[M], version: int, data: Buffer, offset: int = 0) -> tuple[M, int]:
    """Parse a message of ``cls`` from ``data[offset:]``; return it and the offset of its end.

    Bytes may be left over; the caller decides whether that is an error (a broker must accept them).

    Raises:
        DecodeError: the bytes are not a message of this class and version.
        UnknownVersion: the class has no such version.
    """
    node = message_tree(cast(Any, cls), version)
    stream = io.BytesIO(data)
    if not 0 <= offset <= memoryview(data).nbytes:
        raise ValueError(f"offset {offset} lies outside of the {memoryview(data).nbytes} bytes")
    stream.seek(offset)
    try:
        return cast(M, node._parse(stream, None, "")), stream.tell()
    except DecodeError as error:
        found = DecodeError(error.reason, cls.__name__ + error.path, error.offset)
    raise found  # not the original error, whose traceback would keep everything parsed so far alive


def build(value: Declared, version: int) -> bytes:
    """Build ``value`` (an instance of a message class) at ``version``; return its bytes.

    Raises:
        EncodeError: a field does not fit; ``.path`` says which.
        UnknownVersion: the class has no such version.
    """
    node = message_tree(cast(Any, type(value)), version)
    stream = io.BytesIO()
    try:
        node._build(value, stream, None, "")
        return stream.getvalue()
    except EncodeError as error:
        found = EncodeError(error.reason, type(value).__name__ + error.path)
    raise found


def misfit(value: Any, version: int) -> EncodeError:
    """Return the error that says why ``value``, which a machine could not build, does not fit."""
    try:
        build(value, version)
    except EncodeError as error:
        return error
    return EncodeError("it was changed while it was built", type(value).__name__)
