from typing import Any, TypeVar

from ottla.codec.wire import Buffer

T = TypeVar("T")

def parse(cls: type[T], version: int, data: Buffer, offset: int = 0) -> tuple[T, int]: ...
def build(value: Any, version: int) -> bytes: ...
