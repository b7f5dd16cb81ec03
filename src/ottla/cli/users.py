"""`ottla users`: list, add and delete users of a broker.

Rules:
- Passwords come from a prompt, from stdin or from a file, never from an argument: every user of the machine can see the
  arguments of a command.
- A user gets the same password for both mechanisms of SCRAM; PLAIN is checked against them, too.
"""

import getpass
import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli import stdio, tables
from ottla.cli.escapes import escaped
from ottla.cli.exits import BadInput
from ottla.cli.options import AsJson, Connect, at_cluster

if TYPE_CHECKING:
    from ottla.sdk.admin import UserDescription

app = typer.Typer(no_args_is_help=True, help="List, add and delete users that log in with a password.")

SALT = 20
"""Bytes."""
_LONGEST = 1024
"""Characters of a password."""

User = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the password from the first line of this file; default: from a prompt, or from stdin.",
    ),
]
Iterations = Annotated[
    int, typer.Option(min=4096, max=16384, metavar="N", help="How often the password is hashed.", show_default=True)
]


@app.command("list", epilog="Example: ottla users list --command-config admin.properties")
@at_cluster
async def list_(connect: Connect, as_json: AsJson = False) -> None:
    """Print the users and their mechanisms."""
    async with connect() as client:
        users = await client.describe_users()
    await _show(users, as_json)


@app.command("add", epilog="Example: ottla users add alice --password-file alice.txt")
@at_cluster
async def add(connect: Connect, user: User, password_file: PasswordFile = None, iterations: Iterations = 4096) -> None:
    """Add a user, or change its password."""
    import trio

    from ottla.sasl_server.scram import HASHES, salted_password
    from ottla.sdk.admin import ScramCredentialHash

    password = await trio.to_thread.run_sync(read_password, user, password_file, abandon_on_cancel=True)
    async with connect() as client:
        for mechanism in HASHES:
            salt = secrets.token_bytes(SALT)
            salted = salted_password(mechanism, password, salt, iterations)
            await client.set_scram_credential(user, ScramCredentialHash(mechanism, salt, iterations, salted))
    await stdio.say(f"added {user}")


@app.command("delete", epilog="Example: ottla users delete alice")
@at_cluster
async def delete(connect: Connect, user: User) -> None:
    """Delete a user; its open connections continue."""
    async with connect() as client:
        [known] = await client.describe_users([user])
        for mechanism in known.iterations:
            await client.delete_scram_credential(user, mechanism)
    await stdio.say(f"deleted {user}")


def read_password(user: str, file: Path | None) -> str:
    """The password of a file, or of a prompt, or of stdin."""
    if file is not None:
        return _checked(file.read_bytes().partition(b"\n")[0], str(file))
    if not sys.stdin.isatty():
        return _checked(sys.stdin.buffer.readline().rstrip(b"\n"), "stdin")
    first = getpass.getpass(f"Password of {escaped(user)}: ")
    if getpass.getpass("Again: ") != first:
        raise BadInput("the passwords differ")
    return _checked(first.encode(), "the prompt")


def _checked(given: bytes, source: str) -> str:
    try:
        password = given.rstrip(b"\r").decode()
    except UnicodeDecodeError:
        raise BadInput(f"the password of {source} is not UTF-8") from None
    if not password or len(password) > _LONGEST or "\0" in password:
        raise BadInput(f"the password of {source} must have 1 to {_LONGEST} characters, and no zero character")
    return password


async def _show(users: "tuple[UserDescription, ...]", as_json: bool) -> None:
    if as_json:
        await stdio.say(json.dumps([{"name": each.name, "mechanisms": each.iterations} for each in users]))
    else:
        await tables.show(("user", "mechanisms"), [(each.name, _listed(each.iterations)) for each in users])


def _listed(iterations: Mapping[str, int]) -> str:
    return ", ".join(iterations)
