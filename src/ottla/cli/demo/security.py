"""`ottla demo --secured`: who may connect, and who may do what, at the broker and at the proxy.

The demo writes the files that an operator writes (docs/broker-security.md, docs/proxy-security.md) into its own folder:
certificates of a CA that lasts a day, users with random passwords, and rights. Only the user who runs the demo can read
them, and they go with the folder.
"""

import json
import secrets
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import trio

from ottla.cli.demo.children import DemoFailed, write_private, write_settings
from ottla.throwaway_ca import ThrowawayCA

HOST = "127.0.0.1"
MECHANISM = "SCRAM-SHA-512"
CLIENT, PROXY = "flights", "proxy"
"""The users: of both services and PySpark, and of the proxy at the broker."""


@dataclass(frozen=True, kw_only=True)
class DemoAccess:
    """How clients connect, and how the servers listen.

    Attributes:
        client: the settings of clients, with Kafka's names, without their address.
        broker, proxy: arguments of these commands.
    """

    client: Mapping[str, str]
    broker: tuple[str, ...]
    proxy: tuple[str, ...]


OPEN = DemoAccess(client={}, broker=("--listen", f"{HOST}:0"), proxy=("--listen", f"{HOST}:0"))
"""Without TLS, users and rights."""


async def secure(folder: Path, data: Path, rewritten: str) -> DemoAccess:
    """Write the files, and add the users.

    Args:
        data: the folder of the broker.
        rewritten: the topic to which clients of the proxy may write.

    Raises:
        DemoFailed: a command failed.
    """
    ca = ThrowawayCA()
    tls = ca.server(HOST, certificates=False)
    write_private(folder / "ca.pem", ca.pem)
    write_private(folder / "server.pem", f"{tls.key}{tls.certificate}")
    passwords = {name: secrets.token_urlsafe() for name in (CLIENT, PROXY)}
    users = folder / "users.json"
    for name, password in passwords.items():
        await _ottla(password, "broker", "users", "add", name, "--data", data)
    await _ottla(passwords[CLIENT], "proxy", "users", "add", CLIENT, "--users", users)

    def client(name: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(folder / "ca.pem"),
            "sasl.mechanism": MECHANISM,
            "sasl.username": name,
            "sasl.password": passwords[name],
        }

    listener = {
        "listeners": f"SASL_SSL://{HOST}:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "sasl.enabled.mechanisms": MECHANISM,
    }
    write_private(folder / "broker.toml", _toml(listener))
    write_settings(folder / "upstream.properties", client(PROXY))
    rights = (
        {"allow": ["Write"], "topic": rewritten},
        {"allow": ["IdempotentWrite"], "cluster": True},
    )
    acls = "".join(f"\n[[acls]]\n{_toml({'principal': f'User:{CLIENT}', **right})}" for right in rights)
    options = listener | {"upstream-config": str(folder / "upstream.properties"), "users": str(users)}
    write_private(folder / "proxy.toml", _toml(options) + acls)
    return DemoAccess(
        client=client(CLIENT),
        broker=("--config", str(folder / "broker.toml")),
        proxy=("--config", str(folder / "proxy.toml")),
    )


def _toml(settings: Mapping[str, object]) -> str:
    """Settings as TOML: JSON's texts, lists and booleans are TOML's, too."""
    lines = (f"{json.dumps(name)} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in settings.items())
    return "".join(lines)


async def _ottla(password: str, *arguments: object) -> None:
    """Run a command that reads a password from stdin."""
    done = await trio.run_process(
        [sys.executable, "-m", "ottla.cli", *map(str, arguments)],
        stdin=f"{password}\n".encode(),
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        raise DemoFailed(f"ottla {' '.join(map(str, arguments[:3]))}: {done.stdout.decode(errors='replace').strip()}")
