"""`ottla broker users`: list, add and delete users in the folder of a stopped broker."""

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

app = typer.Typer(no_args_is_help=True, help="List, add and delete users in the folder of a stopped broker.")

Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="The data folder; its broker must not run.")]
NodeId = Annotated[int, typer.Option(min=0, metavar="ID", help="The broker's node id.", show_default=True)]


@app.command("list", epilog="Example: ottla broker users list --data ./kafka-data")
def list_offline(data: Data, node_id: NodeId = 1, as_json: AsJson = False) -> None:
    """Print the users and their mechanisms."""
    from ottla.brokerlite.offline_users import opened_users

    configure(LogFormat.TEXT, LogLevel.WARNING)
    with exits.reported(), opened_users(data, node_id) as users:
        table = users.table
        found = {name: {key: each.iterations for key, each in table.credentials(name).items()} for name in table}
    if as_json:
        tell(json.dumps([{"name": name, "mechanisms": theirs} for name, theirs in found.items()]))
    else:
        tell(*(f"{name}: {', '.join(theirs)}" for name, theirs in found.items()))


@app.command("add", epilog="Example: ottla broker users add admin --data ./kafka-data")
def add_offline(
    user: User, data: Data, password_file: PasswordFile = None, iterations: Iterations = 4096, node_id: NodeId = 1
) -> None:
    """Add a user, or change its password; creates the folder if it does not exist."""
    from ottla.brokerlite.offline_users import opened_users
    from ottla.sasl_server.scram import HASHES, credential_for

    configure(LogFormat.TEXT, LogLevel.WARNING)
    with exits.reported():
        password = read_password(user, password_file)
        with opened_users(data, node_id) as users:
            for mechanism in HASHES:
                users.store(user, credential_for(mechanism, password, secrets.token_bytes(SALT), iterations))
    tell(f"added {user}")


@app.command("delete", epilog="Example: ottla broker users delete alice --data ./kafka-data")
def delete_offline(user: User, data: Data, node_id: NodeId = 1) -> None:
    """Delete a user."""
    from ottla.brokerlite.offline_users import opened_users

    configure(LogFormat.TEXT, LogLevel.WARNING)
    with exits.reported(), opened_users(data, node_id) as users:
        users.delete(user)
    tell(f"deleted {user}")
