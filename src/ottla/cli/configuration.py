"""Commands about the configuration files of servers: ``check`` of a file, and ``reload`` of a running server."""

import json
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.cli import exits
from ottla.cli.escapes import tell
from ottla.cli.exits import BadInput
from ottla.cli.http_answer import http_answer
from ottla.cli.options import AsJson
from ottla.cli.reloading import server_logs
from ottla.config_file import ConfigFile
from ottla.errors import ConfigurationError
from ottla.path_checks import check_appendable, check_folder

BROKER_CHECK_EXAMPLE = "Example: ottla broker check server.properties"
PROXY_CHECK_EXAMPLE = "Example: ottla proxy check proxy.toml"
RELOAD_EXAMPLE = "Example: ottla proxy reload 127.0.0.1:18080"

FOLDERS = {"data": "data", "state": "state"}
"""Fields of configurations that are folders, and their options."""
STDERR = "true"
"""The `access-log` that is no file."""

File = Annotated[Path, typer.Argument(metavar="FILE", help="The file of --config.")]
Address = Annotated[str, typer.Argument(metavar="HOST:PORT", help="The address of --health, on this machine.")]


def check_broker(file: File) -> None:
    """Check whether a broker can use a configuration file, without starting it."""
    from ottla.brokerlite.config_file import read_config

    with exits.reported():
        read = ConfigFile.read(file)
        server_logs(read).apply()  # settings without effect are logged
        config = read_config(read)
        _check_paths(read, config)
        if config.acls and not config.super_users and not config.allow_if_no_acl:
            tell("acls without super-users: only ACLs that are in the data folder already grant rights", err=True)
    tell(f"{file} can be used")


def check_proxy(file: File) -> None:
    """Check whether a proxy can use a configuration file and the files that it names, without starting it."""
    from ottla.cli.servers import proxy_config
    from ottla.proxy.topic_rule import never_applied

    with exits.reported():
        read = ConfigFile.read(file)
        server_logs(read).apply()
        config = proxy_config(read)
        _check_paths(read, config)
        for each in never_applied(config.topics):
            tell(f"setting without effect: {each}", err=True)
    tell(f"{file} can be used")


def _check_paths(file: ConfigFile, config: Any) -> None:
    """Check the paths that the server would write to.

    Raises:
        ConfigurationError: one cannot be used; the message names the file and the option.
    """
    try:
        for name, folder in FOLDERS.items():
            if (path := getattr(config, name, None)) is not None:
                check_folder(Path(path), folder)
        if config.access_log not in (None, STDERR):
            check_appendable(Path(config.access_log), "access-log")
    except ConfigurationError as error:
        raise file.error(str(error)) from None


def reload(address: Address, as_json: AsJson = False) -> None:
    """Make a running server reread its configuration file, and print the changes."""
    with exits.reported():
        status, body = http_answer(address, "POST", "/reload", "health")
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise ConfigurationError(f"not reloaded, the server continues as before: {body}")
        if status != HTTPStatus.OK:
            raise BadInput(f"{address} answers {status}: {body}")
    if as_json:
        tell(body)
        return
    told = json.loads(body)
    tell(f"applied: {', '.join(told['applied']) or 'nothing has changed'}")
    if told["needs_restart"]:
        tell(f"needs a restart: {', '.join(told['needs_restart'])}")
    tell(*(f"setting without effect: {each}" for each in told["warnings"]), err=True)
