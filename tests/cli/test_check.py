"""`ottla broker check` and `ottla proxy check` find what the start would refuse."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trustme
import typer

from ottla.brokerlite.config import BrokerConfig
from ottla.cli import configuration, servers
from ottla.config_file import COMMAND_LINE, OF_LOGS, OF_ONE_SERVER, dashed
from ottla.proxy.config import ProxyConfig
from tests import tls

Check = Callable[[Path], None]
CHECKS: dict[str, tuple[Check, str]] = {
    "broker": (configuration.check_broker, 'listen = "127.0.0.1:1"\n'),
    "proxy": (configuration.check_proxy, 'upstream = "kafka:1"\nlisten = "127.0.0.1:2"\n'),
}
PATHS = {"broker": ("data", "access-log"), "proxy": ("state", "access-log", "upstream-config", "users")}
NO_PATHS = {"host", "listen", "upstream", "advertise", "health", "report", "cluster_id", "sync", "acls"} | {
    "group_consumer_migration_policy"
}
"""Settings that are texts, and name no file."""


def checked(server: str, tmp_path: Path, line: str) -> int:
    check, base = CHECKS[server]
    file = tmp_path / "server.toml"
    file.write_text(base + line)
    try:
        check(file)
    except typer.Exit as end:
        return end.exit_code
    return 0


def of_text(config: Any) -> set[str]:
    return {field.name for field in fields(type(config)) if isinstance(getattr(config, field.name), str | Path | None)}


def test_every_setting_that_is_a_path_is_known_here() -> None:
    found = {"broker": of_text(BrokerConfig()), "proxy": of_text(ProxyConfig(upstream="kafka:1"))}
    for server, names in found.items():
        left = {dashed(each) for each in names - NO_PATHS - {"tls", "sasl", "first_node"}}
        assert left == set(PATHS[server]), f"a new setting of the {server}: is it a path, which `check` has to try?"


@pytest.mark.parametrize(
    ("server", "option"), [(server, each) for server, several in PATHS.items() for each in several]
)
def test_a_path_that_the_start_refuses_is_refused(
    server: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    for path in ("file/below", "/proc/x", "/proc/x/y"):
        assert checked(server, tmp_path, f'{option} = "{(tmp_path / path).as_posix()}"\n') == 2, path
        told = capsys.readouterr().err
        assert told.startswith(f"ottla: {tmp_path / 'server.toml'}: ") and option in told, told


def test_what_is_missing_is_created_by_the_start_and_not_by_the_check(tmp_path: Path) -> None:
    for server, option in (("broker", "data"), ("proxy", "state"), ("proxy", "access-log")):
        assert checked(server, tmp_path, f'{option} = "{tmp_path / "new"}"\n') == 0
    assert checked("proxy", tmp_path, f'state = "{tmp_path / "new" / "below"}"\naccess-log = true\n') == 0
    assert [each.name for each in tmp_path.iterdir()] == ["server.toml"]
    assert checked("proxy", tmp_path, f'access-log = "{tmp_path}"\n') == 2, "it is a folder"
    assert checked("proxy", tmp_path, f'access-log = "{tmp_path}/no/file"\n') == 2, "its folder is missing"


def test_settings_without_effect_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert checked("broker", tmp_path, "num.io.threads = 8\nnum.network.threads = 3\n") == 0
    assert "num.io.threads, num.network.threads" in capsys.readouterr().err
    assert checked("proxy", tmp_path, '[topics]\n"*" = "observe"\norders = "rewrite"\n') == 0
    assert "the rule 'orders=rewrite' never applies: '*=observe'" in capsys.readouterr().err


def test_errors_know_which_settings_are_of_one_server() -> None:
    commands: dict[str, Callable[..., None]] = {"broker": servers.broker, "proxy": servers.proxy}
    renamed = {"topic": "topics", "as_json": "json", "super_user": "super-users"}
    options = {
        server: {dashed(renamed.get(name, name)) for name in inspect.signature(command).parameters}
        for server, command in commands.items()
    }
    assert set(COMMAND_LINE) <= options["broker"] & options["proxy"]
    for server, other in (("broker", "proxy"), ("proxy", "broker")):
        own = options[server] - options[other] - {*COMMAND_LINE, *OF_LOGS}
        assert sorted(own) == sorted(OF_ONE_SERVER[server])


@pytest.mark.parametrize("server", CHECKS)
def test_a_server_whose_key_is_elsewhere_is_sent_to_no_setting_that_it_refuses(
    server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (trustme.CA().issue_cert("localhost") for _ in range(2))
    certificate = "".join(map(tls.text, one.cert_chain_pems))
    pem, file = tmp_path / "server.pem", tmp_path / "server.toml"
    start = 'upstream = "kafka:1"\n' if server == "proxy" else ""
    file.write_text(f'{start}listeners = "SSL://localhost:1"\nssl.keystore.location = "{pem}"\n')
    for contents, said in (
        (certificate, "must have a certificate and its key, in PEM: put both into one file"),
        (certificate + tls.text(other.private_key_pem), "has a key that does not belong to its first certificate"),
    ):
        pem.write_text(contents)
        with pytest.raises(typer.Exit):
            CHECKS[server][0](file)
        told = capsys.readouterr().err
        assert said in told and "ssl.key.location" not in told
