"""The files of docs/deploy: linters accept them, and their command lines, configurations and ports fit together."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from ottla.brokerlite import config_file
from ottla.cli import plain, servers
from ottla.config_file import ConfigFile
from ottla.proxy import config_file as proxy_file
from tests.patience import HUNG

DEPLOY = Path(__file__).parents[2] / "docs/deploy"
TOOLS = Path(sys.executable).parent
SERVERS: dict[str, Callable[..., None]] = {"broker": servers.broker, "proxy": servers.proxy}


def documents(name: str) -> list[dict[str, Any]]:
    return list(YAML(typ="safe").load_all(DEPLOY / name))


def of_kind(name: str, kind: str) -> dict[str, Any]:
    [found] = [each for each in documents(name) if each["kind"] == kind]
    return found


def container(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = of_kind(name, "StatefulSet")["spec"]["template"]["spec"]
    [found] = spec["containers"]
    return dict(found)


def command_lines() -> Iterator[tuple[str, list[str]]]:
    """The arguments of `ottla`, with the file that has them."""
    for unit in sorted((DEPLOY / "systemd").glob("*.service")):
        for line in re.findall(r"^ExecStart(?:Pre)?=/opt/ottla/bin/ottla (.*)$", unit.read_text(), re.MULTILINE):
            yield unit.name, shlex.split(line)
    [command] = re.findall(r"^CMD (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    yield "Dockerfile", json.loads(command)
    yield "compose.yaml", documents("compose/compose.yaml")[0]["services"]["proxy"]["command"]
    for name in ("broker", "proxy"):
        yield f"kubernetes/{name}.yaml", container(f"kubernetes/{name}.yaml")["args"]


def test_command_lines_have_only_options_that_exist() -> None:
    lines = list(command_lines())
    assert len(lines) == 8
    for name, words in lines:
        server, *rest = [part for word in words for part in word.split("=", 1)]
        if rest[0] == "check":
            assert len(rest) == 2, name
        else:
            assert plain.arguments(SERVERS[server], rest), name


def configurations() -> Iterator[tuple[str, str]]:
    yield "proxy.toml", (DEPLOY / "proxy.toml").read_text()
    yield "compose.yaml", documents("compose/compose.yaml")[0]["configs"]["proxy"]["content"]
    yield "kubernetes/proxy.yaml", of_kind("kubernetes/proxy.yaml", "ConfigMap")["data"]["proxy.toml"]


def test_the_configurations_can_be_used() -> None:
    for name, text in configurations():
        assert proxy_file.read_config(ConfigFile(Path(name), {**tomllib.loads(text)}))
    assert config_file.read_config(ConfigFile.read(DEPLOY / "broker.toml"))


def test_the_broker_and_the_proxy_can_run_on_one_machine_as_the_pages_say() -> None:
    """Each listens on ports of its own, in the files and in all examples."""
    told: dict[str, set[str]] = {"broker": set(), "proxy": set()}
    for name, found in told.items():
        found |= set(
            re.findall(r'^(?:listen|health|report) = ".*:([0-9]+)"', (DEPLOY / f"{name}.toml").read_text(), re.M)
        )
        for page in DEPLOY.parent.glob("*.md"):
            for line in re.findall(rf"^ *ottla {name} (--.*)$", page.read_text(), re.M):
                found |= set(re.findall(r"--(?:listen|health|report)[ =]\S+:([0-9]+)", line))
    assert {"9092", "18082"} <= told["broker"] and {"19092", "18080"} <= told["proxy"]
    assert not told["broker"] & told["proxy"]


def ports_of_proxy(text: str) -> list[int]:
    """The ports for the nodes of upstream, which have ids from `first-node` on."""
    found = tomllib.loads(text)
    first = int(found["listen"].rpartition(":")[2])
    return [first + number for number in range(len(found["upstream"].split(",")))]


def test_every_port_of_a_proxy_can_be_reached() -> None:
    compose = documents("compose/compose.yaml")[0]
    [ports] = compose["services"]["proxy"]["ports"]
    text = compose["configs"]["proxy"]["content"]
    first, last = ports_of_proxy(text)[0], ports_of_proxy(text)[-1]
    assert ports == f"127.0.0.1:{first}-{last}:{first}-{last}"
    nodes = [each["environment"] for name, each in compose["services"].items() if name.startswith("kafka")]
    ids = [each["KAFKA_NODE_ID"] for each in nodes]
    assert ids == list(range(tomllib.loads(text)["first-node"], tomllib.loads(text)["first-node"] + len(ids)))

    wanted = ports_of_proxy(of_kind("kubernetes/proxy.yaml", "ConfigMap")["data"]["proxy.toml"])
    served = {each["name"]: each["containerPort"] for each in container("kubernetes/proxy.yaml")["ports"]}
    offered = {
        each["port"]: served[each["targetPort"]]
        for each in of_kind("kubernetes/proxy.yaml", "Service")["spec"]["ports"]
    }
    assert offered == {port: port for port in wanted}


def test_probes_ask_where_the_server_answers_them() -> None:
    for name in ("broker", "proxy"):
        served = {each["name"]: each["containerPort"] for each in container(f"kubernetes/{name}.yaml")["ports"]}
        [told] = {
            int(port)
            for port in re.findall(
                r"health(?:=| = \")0\.0\.0\.0:([0-9]+)", (DEPLOY / f"kubernetes/{name}.yaml").read_text()
            )
        }
        assert served["health"] == told


def linted(*command: str | Path) -> str:
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, timeout=HUNG, cwd=DEPLOY)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_linters_accept_the_files() -> None:
    linted(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", "compose/compose.yaml")
    for name in ("broker", "proxy"):
        linted(TOOLS / "kubernetes-validate", "--strict", f"kubernetes/{name}.yaml")
    if (TOOLS / "hadolint").exists():  # its wheels are for some machines only
        linted(TOOLS / "hadolint", "Dockerfile")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="the machine has no systemd")
@pytest.mark.parametrize("name", ["broker", "proxy"])
def test_systemd_accepts_the_units(name: str, tmp_path: Path) -> None:
    unit = (DEPLOY / f"systemd/ottla-{name}.service").read_text()
    (tmp_path / f"ottla-{name}.service").write_text(unit.replace("/opt/ottla/bin/ottla", sys.executable))
    assert not linted("systemd-analyze", "verify", tmp_path / f"ottla-{name}.service")
