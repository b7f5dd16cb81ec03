"""Records as lines of text or JSON, for `ottla produce`, `consume` and `dump`; pure functions.

In JSON, bytes that are UTF-8 are strings, and others are base64 under a different name: ``"key"`` or ``"key_base64"``,
``"value"`` or ``"value_base64"``. `produce --json` accepts the output of `consume --json`.
"""

import base64
import binascii
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ottla.cli.escapes import escaped, escaped_json
from ottla.cli.exits import BadInput

NO_TIMESTAMP = -1
"""The timestamp that `consume` prints for a record without one."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    """A record to produce."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Headers = ()
    timestamp: int | None = None
    """Milliseconds since 1970; None means now."""


def parse_separator(text: str | None) -> bytes | None:
    """The separator from ``--key-separator``, in which ``\\t`` is a tab; its bytes need not be UTF-8."""
    return None if text is None else os.fsencode(text.replace("\\t", "\t"))


def parse_text(line: bytes, separator: bytes | None) -> InputRecord:
    """Parse a value, or a key, the separator and a value.

    Raises:
        BadInput: the separator is not in the line.
    """
    if separator is None:
        return InputRecord(value=line)
    key, found, value = line.partition(separator)
    if not line:
        raise BadInput(f"it is empty, but must have the separator '{_short(separator)}' between key and value")
    if not found:
        raise BadInput(f"the separator '{_short(separator)}' between key and value is not in: {_short(line)}")
    return InputRecord(key=key, value=value)


_KNOWN = {"key", "key_base64", "value", "value_base64", "partition", "headers", "timestamp", "topic", "offset"}


def parse_json(line: bytes) -> InputRecord:
    """Parse an object with ``value`` and perhaps ``key``, ``headers``, ``partition``, ``timestamp``.

    A value that is neither string nor null is sent as JSON, each number with the digits that were given, and without
    white space. ``topic`` and ``offset``, which `consume` prints, are ignored; other fields are refused.

    Raises:
        BadInput: it is not such an object; says why.
    """
    try:
        text = line.decode("utf-8-sig", "surrogatepass")
        fields = _DECODER.decode(text)
        if "\\u" in text or b"\xed" in line:  # perhaps half a surrogate pair, which UTF-8 cannot encode
            _encode(fields).encode()
    except ValueError as error:
        raise BadInput(f"not JSON ({_why(error)}): {_short(line)}") from None
    except RecursionError:
        raise BadInput(f"nested too deeply: {_short(line)}") from None
    if not isinstance(fields, dict):
        raise BadInput(f'not an object such as {{"value": "…"}}: {_short(line)}')
    if unknown := set(fields) - _KNOWN:
        raise BadInput(f"{_short(min(unknown))} is not a field of a record; those are {', '.join(sorted(_KNOWN))}")
    if "value" not in fields and "value_base64" not in fields:
        raise BadInput(f'has no "value" (null is a tombstone): {_short(line)}')
    if isinstance(fields.get("value"), dict | list | int | float):
        fields["value"] = _STRING_OR_SPACES.sub(r"\1", _as_given(text, "value"))
    if isinstance(fields.get("headers"), dict):
        fields["headers"] = _HEADERS_DECODER.decode(_as_given(text, "headers"))
    return InputRecord(
        value=_bytes(fields, "value"),
        key=_bytes(fields, "key"),
        partition=_number(fields, "partition"),
        timestamp=None if fields.get("timestamp") == NO_TIMESTAMP else _number(fields, "timestamp"),
        headers=_headers(fields.get("headers")),
    )


def as_json(**fields: Any) -> bytes:
    """One line of JSON; bytes in the fields, at any depth, become text or base64 (see the module)."""
    return escaped_json(_encode(_texts(fields))).encode()


def header_fields(headers: Headers) -> list[dict[str, Any]]:
    """Headers as an argument of `as_json`."""
    return [{"key": key, "value": value} for key, value in headers]


def _why(error: ValueError) -> str:
    """Python's reason, in words for the author of the line."""
    match error:
        case json.JSONDecodeError(msg=msg, pos=at):
            return f"{msg[0].lower()}{msg[1:].removesuffix(' at')} at character {at + 1}"
        case UnicodeDecodeError(start=at):
            return f"byte {at + 1} is not UTF-8"
        case UnicodeEncodeError():
            return "it has half a surrogate pair, which UTF-8 cannot hold"
    return str(error)


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        advice = 'write a repeated header as [{"key": "name", "value": "one"}, {"key": "name", …}]'
        raise BadInput(f"headers have the name {_short(twice)} more than once: {advice}")
    return fields


_DECODER = json.JSONDecoder(parse_constant=_no_json)
_HEADERS_DECODER = json.JSONDecoder(object_pairs_hook=_no_name_twice)
_BETWEEN = re.compile(r"[ \t\n\r]*")
_STRING_OR_SPACES = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\n\r]+')


def _as_given(text: str, field: str) -> str:
    """The source text of a field's value in an object that is known to be valid."""

    def behind(at: int, signs: int = 0) -> int:
        for _ in range(signs):
            at = _BETWEEN.match(text, at).end() + 1  # type: ignore[union-attr] # it matches anywhere
        return _BETWEEN.match(text, at).end()  # type: ignore[union-attr]

    value, at = "", behind(0, signs=1)
    while text[at] == '"':
        name, at = _DECODER.raw_decode(text, at)
        begin = behind(at, signs=1)
        _, end = _DECODER.raw_decode(text, begin)
        if name == field:  # the last one counts, as elsewhere
            value = text[begin:end]
        at = behind(end, signs=1) if text[behind(end)] == "," else behind(end)
    return value


_encode: Callable[[object], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _texts(fields: Mapping[str, Any]) -> dict[str, Any]:
    return dict([_text(name, value) for name, value in fields.items()])


def _text(name: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bytes):
        try:
            return name, value.decode()
        except UnicodeDecodeError:
            return f"{name}_base64", base64.b64encode(value).decode()
    if isinstance(value, dict):
        return name, _texts(value)
    if isinstance(value, list):
        return name, [_texts(each) if isinstance(each, dict) else each for each in value]
    return name, value


def _bytes(fields: Mapping[str, Any], name: str) -> bytes | None:
    """The field ``name`` or ``name_base64``."""
    if name in fields and f"{name}_base64" in fields:
        raise BadInput(f'has both "{name}" and "{name}_base64": {_short(fields)}')
    if (encoded := fields.get(f"{name}_base64")) is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise BadInput(f"{name}_base64 is not base64: {_short(encoded)}") from None
    text = fields.get(name)
    if text is not None and not isinstance(text, str):
        raise BadInput(f"{name} must be a string or null, not {_short(text)}")
    return None if text is None else text.encode()


def _number(fields: Mapping[str, Any], name: str) -> int | None:
    number = fields.get(name)
    if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 0):
        what = "whole milliseconds since 1970" if name == "timestamp" else "a whole number"
        raise BadInput(f"{name} must be {what}, 0 or more, not {_short(number)}")
    return number


def _headers(given: Any) -> Headers:
    if given is None:
        return ()
    if isinstance(given, dict):
        given = [{"key": key, "value": value} for key, value in given.items()]
    if not isinstance(given, list) or not all(isinstance(h, dict) and isinstance(h.get("key"), str) for h in given):
        raise BadInput('headers must be {"name": "value"} or [{"key": "name", "value": "value"}]')
    if unknown := {name for header in given for name in header} - {"key", "value", "value_base64"}:
        raise BadInput(f"a header has key and value, or value_base64, but not {_short(min(unknown))}")
    return tuple((header["key"], _bytes(header, "value")) for header in given)


def _short(what: object) -> str:
    """A line, or a value in it, as written, but shortened and with control characters escaped."""
    text = what.decode(errors="backslashreplace") if isinstance(what, bytes) else _encode(what)
    text = text if len(text) <= 60 else text[:60] + "…"
    return escaped(text)
