"""Checks the configurations of a topic that Python code gives, where Kafka knows strings only."""

from collections.abc import Mapping

from ottla.errors import ConfigurationError


def of_strings(given: Mapping[str, str]) -> dict[str, str]:
    """Check the type of ``configs``, and of each name and value; return a copy.

    Raises:
        ConfigurationError: one has another type; the message shows the string to write.
    """
    _check_mapping(given)
    for name, value in given.items():
        if not isinstance(name, str):
            raise ConfigurationError(f"configs: the name of a setting must be a str, not {name!r}")
        if not isinstance(value, str):
            raise ConfigurationError(f"configs: {name!r} must be a str, not {value!r}{_instead(value)}")
    return dict(given)


def of_changes(given: Mapping[str, str | None]) -> dict[str, str | None]:
    """Check changes as `of_strings` does; ``None`` stands for the default."""
    _check_mapping(given)
    of_strings({name: "" if value is None else value for name, value in given.items()})
    return dict(given)


def _check_mapping(given: object) -> None:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"configs must be a mapping, as in {{'retention.ms': '60000'}}, not {given!r}")


def _instead(value: object) -> str:
    match value:
        case None:
            return ": leave it out for the broker's default"
        case bool():
            return f": write {str(value).lower()!r}"
        case int() | float():
            return f": write {str(value)!r}"
        case bytes():
            return f": write {value.decode(errors='replace')!r}"
        case list() | tuple():
            return f": write {','.join(map(str, value))!r}"
    return ""
