"""Reads the configuration file of a proxy: options and topic rules in TOML.

A file has the options of `ProxyConfig` by name, with dashes or underscores, and the rules as a table:

    upstream = "kafka-1:9092"
    listen = "0.0.0.0:19092"
    advertise = "proxy.example"

    [topics]
    flights = "rewrite"
    "audit-*" = "observe:crc32"

Listeners with TLS or SASL have the names of Kafka's `server.properties`, as in a broker's file.
"""

from collections.abc import Container, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ottla.config_file import ConfigFile, dashed, one_of
from ottla.errors import ConfigurationError
from ottla.listener_settings import LISTENERS, Elsewhere, ServerSettings, as_text, read_listeners
from ottla.listeners import ListenerConfig
from ottla.proxy.acl_rules import read_acl_rules
from ottla.proxy.config import LEAST_BUFFERED, ProxyConfig
from ottla.proxy.denied_apis import DeniedApis, parse_denied_apis
from ottla.proxy.listeners import MODE, ClientMode, ProxyListener
from ottla.proxy.topic_rule import TopicRule, rule_of
from ottla.proxy.user_file import read_users

SETTINGS = ServerSettings("proxy", "ottla proxy users add", own=(MODE,))
_NOT_IN_A_FILE = ("tls", "sasl", "listeners")
_READ_APART = ("topics", "acls", "deny_apis")
_OF_ACLS = ("acls", "super_users", "allow_if_no_acl")
"""The names of a file for `ProxyConfig.acls`."""
_BYTES = ("max-batch", "max-buffered", "max-request-bytes")


def read_config(file: ConfigFile, **options: Any) -> ProxyConfig:
    """The configuration in a file; ``options`` that are not ``None`` override it, and rules stand before its own.

    Raises:
        ConfigurationError: the file has an unknown option or an invalid value.
    """
    kinds = {field.name: field.type for field in fields(ProxyConfig) if field.name not in _NOT_IN_A_FILE}
    kafkas = {key: value for key, value in file.others() if key in LISTENERS or SETTINGS.is_security(key)}
    own = {key.replace("-", "_"): (key, value) for key, value in file.others() if key not in kafkas}
    for name, (key, _) in own.items():
        if name not in kinds and name not in _OF_ACLS:
            raise file.unknown(key, (*map(dashed, (*kinds, *_OF_ACLS)), *LISTENERS), "proxy")
    values = _listeners(file, kafkas)
    for name in values:
        if name in own:
            raise file.error(f"{name} and listeners say the same: leave one of them out")
    values |= {
        name: _typed(file, key, value, kinds[name])
        for name, (key, value) in own.items()
        if name not in (*_READ_APART, *_OF_ACLS)
    }
    given = {name: value for name, (_, value) in own.items()}
    if "topics" in given:
        values["topics"] = _rules(file, given["topics"], kinds)
    values["acls"] = read_acl_rules(file, *(given.get(name) for name in _OF_ACLS))
    values["deny_apis"] = _denied(file, given.get("deny_apis", []))
    rules = (*options.pop("topics", ()), *values.pop("topics", ()))
    values |= {name: value for name, value in options.items() if value is not None}
    if "upstream" not in values:
        raise ConfigurationError(f'{file.path} has no upstream: add it, as in upstream = "localhost:9092"')
    try:
        config = ProxyConfig(topics=rules, **values)
        if config.max_buffered < LEAST_BUFFERED:
            raise ConfigurationError(
                f"max-buffered is {config.max_buffered}; it must be at least {LEAST_BUFFERED}, which is 1 MiB"
            )
        if config.users is not None:
            read_users(Path(config.users))
    except ConfigurationError as error:
        raise file.error(str(error)) from None
    return config


def _denied(file: ConfigFile, names: Any) -> DeniedApis:
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise file.error('deny-apis is a list such as ["AlterConfigs", "Produce:0-8"]')
    try:
        return parse_denied_apis(tuple(names))
    except ConfigurationError as error:
        raise file.error(str(error)) from None


def _rules(file: ConfigFile, table: Any, options: Container[str]) -> tuple[TopicRule, ...]:
    if not isinstance(table, dict):
        raise file.error('[topics] is a table such as flights = "rewrite"')
    rules = []
    for glob, treatment in table.items():
        try:
            if not isinstance(treatment, str):
                raise ConfigurationError(_no_rule(glob, treatment))
            rules.append(rule_of(glob, treatment))
        except ConfigurationError as error:
            moved = f"; {glob} is an option: put it above [topics]" if glob.replace("-", "_") in options else ""
            raise file.error(f"{error}{moved}") from None
    return tuple(rules)


def _no_rule(glob: str, value: Any) -> str:
    if isinstance(value, dict):
        return f"{glob} is a table in [topics]; a name with dots stands in quotation marks"
    said = str(value).lower() if isinstance(value, bool) else value
    return f'{glob} is {said}; it must be a text such as "rewrite"'


def _typed(file: ConfigFile, key: str, value: Any, kind: Any) -> Any:
    if key.replace("_", "-") == "access-log" and isinstance(value, bool):
        return "true" if value else None
    if kind is bool:
        if not isinstance(value, bool):
            raise file.error(f"{key} is {value!r}; it must be true or false")
        return value
    wanted = {int: int, int | None: int, float: int | float}.get(kind, str)
    if not isinstance(value, wanted) or isinstance(value, bool):
        form = "a text" if wanted is str else "an integer" if wanted is int else "a number of seconds"
        if dashed(key) in _BYTES:
            form = "a number of bytes, such as 67108864"
        raise file.error(f"{key} is {value!r}; it must be {form}")
    return value


def _listeners(file: ConfigFile, kafkas: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `ProxyConfig` about listeners: ``listen`` and ``advertise``, or ``listeners``.

    Raises:
        ConfigurationError: a setting cannot be used.
    """
    modes = {name: _mode(file, name, value) for name, value in kafkas.items() if name.endswith(MODE)}

    def mode_of(listener: str) -> ClientMode:
        return modes.get(f"listener.name.{listener.lower()}.{MODE}", modes.get(MODE, ClientMode.TERMINATE))

    def elsewhere(listener: str) -> Elsewhere | None:
        mode = mode_of(listener)
        return Elsewhere(reads_tokens=mode is ClientMode.FORWARD) if mode.at_upstream else None

    values = read_listeners(file, kafkas, SETTINGS, elsewhere)
    if "listeners" not in values:
        if modes:
            raise file.error(
                f"{next(iter(modes))} is given, but no listener has SASL: write listeners=SASL_SSL://:9093"
            )
        return values
    listeners = []
    for each in values["listeners"]:
        given = {field.name: getattr(each, field.name) for field in fields(ListenerConfig)}
        # The mode for all listeners means those with SASL; a mode of one listener has to fit it.
        own = f"listener.name.{each.name.lower()}.{MODE}" in modes or each.sasl is not None
        try:
            listeners.append(ProxyListener(**given, mode=mode_of(each.name) if own else ClientMode.TERMINATE))
        except ConfigurationError as error:
            raise file.error(str(error)) from None
    return {"listeners": tuple(listeners)}


def _mode(file: ConfigFile, name: str, value: Any) -> ClientMode:
    try:
        return ClientMode(as_text(value))
    except ValueError:
        raise file.error(f"{name} is {value!r}; it must be {one_of(ClientMode)}") from None
