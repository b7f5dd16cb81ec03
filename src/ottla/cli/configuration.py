"""Commands about the configuration files of servers: ``check`` of a file, and ``reload`` of a running server."""

import http.client
import json
from http import HTTPStatus
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli import exits
from ottla.cli.exits import BadInput
from ottla.cli.options import AsJson
from ottla.cli.reloading import server_logs
from ottla.config_file import ConfigFile

BROKER_CHECK_EXAMPLE = "Example: ottla broker check server.properties"
PROXY_CHECK_EXAMPLE = "Example: ottla proxy check proxy.toml"
RELOAD_EXAMPLE = "Example: ottla proxy reload 127.0.0.1:18080"
_TIMEOUT = 10.0
"""Seconds for the answer of a server."""

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file of --config.")]
Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="The address of --health, on this machine.")]


def check_broker(file: File) -> None:
    """Check whether a broker can use a configuration file, without starting it."""
    from ottla.brokerlite.config_file import read_config

    with exits.reported():
        read = ConfigFile.read(file)
        server_logs(read)
        read_config(read)
    typer.echo(f"{file} can be used")


def check_proxy(file: File) -> None:
    """Check whether a proxy can use a configuration file and the files that it names, without starting it."""
    from ottla.cli.servers import proxy_config

    with exits.reported():
        read = ConfigFile.read(file)
        server_logs(read)
        proxy_config(read)
    typer.echo(f"{file} can be used")


def reload(address: Address, as_json: AsJson = False) -> None:
    """Have a running server read its configuration file again, and print the changes."""
    from ottla.addresses import parse_address
    from ottla.errors import BrokerUnreachable, ConfigurationError

    with exits.reported():
        host, port = parse_address(address, "HOST:PORT")
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
        try:
            connection.request("POST", "/reload")
            answer = connection.getresponse()
            body = answer.read().decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            raise BrokerUnreachable(f"no server answers at {address}: {error or type(error).__name__}") from None
        finally:
            connection.close()
        if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise ConfigurationError(f"not reloaded, the server continues as before: {body}")
        if answer.status != HTTPStatus.OK:
            raise BadInput(f"{address} answers {answer.status}: {body}")
    if as_json:
        typer.echo(body)
        return
    told = json.loads(body)
    typer.echo(f"applied: {', '.join(told['applied']) or 'nothing has changed'}")
    if told["needs_restart"]:
        typer.echo(f"needs a restart: {', '.join(told['needs_restart'])}")
