"""Remembers why addresses gave no metadata, for errors and for `explain`."""

from ottla.addresses import format_address
from ottla.errors import ConnectionLost, OttlaError, TimeoutExpired
from ottla.sdk.events import Node


class FailedAddresses:
    """Keeps the last error of each address, and the number of attempts, until any node gives metadata."""

    def __init__(self) -> None:
        self._errors: dict[str, tuple[str, int]] = {}
        self.answered = False
        """Something has answered at one of them, if only by closing the connection."""

    def __bool__(self) -> bool:
        return bool(self._errors)

    def __contains__(self, node: Node) -> bool:
        return address(node) in self._errors

    def add(self, node: Node, error: OttlaError) -> None:
        where = address(node)
        _, times = self._errors.get(where, ("", 0))
        why = str(error).removeprefix(where).removeprefix(f" (node {node.id})").lstrip(": ")
        self._errors[where] = (why, times + 1)
        silent = isinstance(error, TimeoutExpired) or (isinstance(error, ConnectionLost) and not error.accepted)
        self.answered = self.answered or not silent

    def clear(self) -> None:
        self._errors.clear()
        self.answered = False

    @property
    def reasons(self) -> dict[str, str]:
        """Why each address failed, and the number of attempts."""
        return {
            where: f"{why} (tried {f'{times} times' if times > 1 else 'once'})"
            for where, (why, times) in self._errors.items()
        }


def address(node: Node) -> str:
    return format_address(node.host, node.port)
