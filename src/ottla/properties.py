"""Parses properties files as Java does.

Source: Properties.java (load).
"""

import re

_ENTRY = re.compile(r"((?:[^\\=:\s]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Properties(dict[str, str]):
    """The names and values of a properties file.

    Attributes:
        lines: the number of the line in which each name, with its value, begins.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}


def decode_properties(data: bytes) -> str:
    """Decode a properties file: UTF-8 or, as in Java, Latin-1."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> Properties:
    """The names and values of a properties file; if a name is repeated, the last value counts.

    Raises:
        ValueError: an escape is invalid; names the line.
    """
    names = Properties()
    natural = iter(enumerate(re.split(r"\r\n|[\r\n]", text), 1))
    for number, line in natural:
        line = line.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while (len(line) - len(line.rstrip("\\"))) % 2:  # continued in the next line
            _, following = next(natural, (0, ""))
            line = line[:-1] + following.lstrip(" \t\f")
        entry = _ENTRY.fullmatch(line)
        assert entry is not None, "it matches anything"
        try:
            name, value = (_ESCAPE.sub(_unescaped, part) for part in entry.groups())
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        try:  # Java writes a character beyond 16 bits as two escapes
            names[name] = value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise ValueError(f"line {number}: half of a surrogate pair of \\u escapes") from None
        names.lines[name] = number
    return names


def _unescaped(escape: re.Match[str]) -> str:
    what = escape[1]
    if len(what) > 1:
        return chr(int(what[1:], 16))
    if what == "u":
        raise ValueError(r"\u is not followed by four hexadecimal digits")
    return _CONTROLS.get(what, what)
