"""`ottla proxy users`: list, add and delete the users in a proxy's file."""

import json
import secrets
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli import exits
from ottla.cli.escapes import tell
from ottla.cli.logs import LogFormat, LogLevel, configure
from ottla.cli.options import AsJson
from ottla.cli.users import SALT, Iterations, PasswordFile, User, read_password
from ottla.errors import ConfigurationError

app = typer.Typer(no_args_is_help=True, help="List, add and delete the users who log in to a proxy with a password.")

Users = Annotated[
    Path, typer.Option("--users", metavar="FILE", help="The file that the proxy's configuration names as users.")
]


@app.command("list", epilog="Example: ottla proxy users list --users users.json")
def list_users(users: Users, as_json: AsJson = False) -> None:
    """Print the users and their mechanisms."""
    from ottla.proxy.user_file import read_users

    configure(LogFormat.TEXT, LogLevel.WARNING)
    with exits.reported():
        table = read_users(users)
    found = {name: {key: each.iterations for key, each in table.credentials(name).items()} for name in table}
    if as_json:
        tell(json.dumps([{"name": name, "mechanisms": theirs} for name, theirs in found.items()]))
    else:
        tell(*(f"{name}: {', '.join(theirs)}" for name, theirs in found.items()))


@app.command("add", epilog="Example: ottla proxy users add alice --users users.json")
def add_user(user: User, users: Users, password_file: PasswordFile = None, iterations: Iterations = 4096) -> None:
    """Add a user, or change its password; creates the file if it does not exist."""
    from ottla.proxy.user_file import new_users, read_users, write_users
    from ottla.sasl_server.scram import HASHES, credential_for

    configure(LogFormat.TEXT, LogLevel.WARNING)
    with exits.reported():
        password = read_password(user, password_file)
        table = read_users(users) if users.exists() else new_users()
        for mechanism in HASHES:
            credential = credential_for(mechanism, password, secrets.token_bytes(SALT), iterations)
            table = table.changed(user, mechanism, credential)
        write_users(users, table)
    tell(f"added {user}")


@app.command("remove", hidden=True)
@app.command("delete", epilog="Example: ottla proxy users delete alice --users users.json")
def delete_user(user: User, users: Users) -> None:
    """Delete a user; a running proxy closes its connections within seconds."""
    from ottla.proxy.user_file import read_users, write_users

    configure(LogFormat.TEXT, LogLevel.WARNING)
    with exits.reported():
        table = read_users(users)
        if not (theirs := table.credentials(user)):
            raise ConfigurationError(f"{users} has no user {user}: ottla proxy users list shows them")
        for mechanism in list(theirs):
            table = table.changed(user, mechanism, None)
        write_users(users, table)
    tell(f"deleted {user}")
