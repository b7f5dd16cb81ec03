"""`ottla acls`: list, add and delete ACLs."""

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli import stdio, tables
from ottla.cli.options import AsJson, Connect, at_cluster

if TYPE_CHECKING:
    from ottla.sdk.acls import AclBinding, AclBindingFilter

app = typer.Typer(no_args_is_help=True, help="List, add and delete ACLs, which say who may do what.")

Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="A topic; may be repeated.")]
Groups = Annotated[list[str] | None, typer.Option("--group", metavar="NAME", help="A group; may be repeated.")]
TransactionalIds = Annotated[
    list[str] | None, typer.Option("--transactional-id", metavar="ID", help="A transactional id; may be repeated.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Principal = Annotated[str | None, typer.Option(metavar="User:NAME", help="Only ACLs of this principal.")]
Matching = Annotated[
    bool, typer.Option("--matching", help="All ACLs that apply to the names, prefixes and * included.")
]


@app.command("list", epilog="Example: ottla acls list --topic orders --matching")
@at_cluster
async def list_(
    connect: Connect,
    principal: Principal = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: Cluster = False,
    matching: Matching = False,
    as_json: AsJson = False,
) -> None:
    """Print ACLs; default: all."""
    resources = list(_resources(topic, group, transactional_id, cluster))
    found: dict[AclBinding, None] = {}
    async with connect() as client:
        for wanted in _filters(principal, resources, matching):
            found.update(dict.fromkeys(await client.describe_acls(wanted)))
    await _print(found, as_json)


@app.command("add", epilog="Example: ottla acls add User:alice --operation Read --topic orders --group billing")
@at_cluster
async def add(
    connect: Connect,
    principals: Annotated[
        list[str], typer.Argument(metavar="PRINCIPAL...", help="User:NAME; User:* is everyone.", show_default=False)
    ],
    operation: Annotated[
        list[str], typer.Option(metavar="NAME", help="Read, Write, Describe, All and so on; may be repeated.")
    ],
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: Cluster = False,
    prefixed: Annotated[bool, typer.Option("--prefixed", help="For all names that begin with the given ones.")] = False,
    host: Annotated[str, typer.Option(metavar="IP", help="Only from this IP address; * is every one.")] = "*",
    deny: Annotated[bool, typer.Option("--deny", help="Deny instead of allow; this wins over all that allow.")] = False,
    as_json: AsJson = False,
) -> None:
    """Add ACLs: one for each principal, operation and resource. To add an existing ACL changes nothing."""
    from ottla.sdk.acls import AclBinding

    resources = list(_resources(topic, group, transactional_id, cluster))
    if not resources:
        raise typer.BadParameter("give --topic, --group, --transactional-id or --cluster")
    added = [
        AclBinding(principal, each, kind, name, prefixed=prefixed, host=host, deny=deny)
        for principal in principals
        for kind, name in resources
        for each in operation
    ]
    async with connect() as client:
        await client.create_acls(added)
    await _print(added, as_json)


@app.command("delete", epilog="Example: ottla acls delete --principal User:alice --topic orders")
@at_cluster
async def delete(
    connect: Connect,
    principal: Principal = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    cluster: Cluster = False,
    everything: Annotated[bool, typer.Option("--all", help="Delete all ACLs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete ACLs, and print them; does not ask for confirmation."""
    resources = list(_resources(topic, group, transactional_id, cluster))
    if everything == bool(principal or resources):
        raise typer.BadParameter("give --principal, resources, or --all alone")
    async with connect() as client:
        deleted = await client.delete_acls(_filters(principal, resources, False))
    if not deleted:
        await stdio.say("no ACL matches: ottla acls list shows all", err=True)
    if deleted or as_json:
        await _print(deleted, as_json)


def _resources(
    topics: list[str] | None, groups: list[str] | None, transactional_ids: list[str] | None, cluster: bool
) -> Iterator[tuple[str, str]]:
    """The type and the name of each resource in the options."""
    from ottla.sdk.acls import CLUSTER

    for kind, names in (
        ("Topic", topics),
        ("Group", groups),
        ("TransactionalId", transactional_ids),
        ("Cluster", [CLUSTER] if cluster else None),
    ):
        for name in names or ():
            yield kind, name


def _filters(principal: str | None, resources: list[tuple[str, str]], matching: bool) -> "list[AclBindingFilter]":
    from ottla.sdk.acls import AclBindingFilter

    if not resources:
        return [AclBindingFilter(principal)]
    pattern = "match" if matching else None
    return [AclBindingFilter(principal, resource_type=kind, name=name, pattern=pattern) for kind, name in resources]


async def _print(acls: "Iterable[AclBinding]", as_json: bool) -> None:
    if as_json:
        await stdio.say(json.dumps([_as_dict(acl) for acl in acls]))
        return
    columns = ("principal", "may", "operation", "type", "name", "host")
    rows = [
        (
            acl.principal,
            "not" if acl.deny else "yes",
            acl.operation,
            acl.resource_type,
            f"{acl.name}…" if acl.prefixed else acl.name,
            acl.host,
        )
        for acl in acls
    ]
    await tables.show(columns, rows)


def _as_dict(acl: "AclBinding") -> dict[str, Any]:
    fields = ("principal", "operation", "resource_type", "name", "prefixed", "host", "deny")
    return {field: getattr(acl, field) for field in fields}
