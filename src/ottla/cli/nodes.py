"""Nodes, as commands print them."""

from typing import Any, Protocol

from ottla.addresses import format_address


class AnyNode(Protocol):
    """A node of the cluster."""

    @property
    def id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


def node_as_text(node: AnyNode) -> str:
    return f"{format_address(node.host, node.port)} (node {node.id})"


def node_as_dict(node: AnyNode) -> dict[str, Any]:
    return {"node_id": node.id, "host": node.host, "port": node.port}
