r"""Decides whether an error may quote an unknown name of a setting.

Rules:
- In a properties file, a value that continues without ``\`` puts its next lines where names are expected: the lines of
  a private key, or a password. So an unknown name is quoted only if it looks like a setting.
- A name looks like a setting if it consists of words of small letters with a dot between them, or if it is similar to a
  known name. Base64 has no dots.
- For any other name, the error gives its place.
"""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from ottla.properties import Properties

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_DOTTED = re.compile(r"[a-z_]+(?:-[a-z_]+)*(?:\.[a-z_]+(?:-[a-z_]+)*)+")
_SIMILAR = 0.75
_LISTED = 4
"""Places that an error lists; of more it gives the number."""


def is_shown(name: str, known: Collection[str]) -> bool:
    """Whether an error may quote a name: it is one of the known ones, or looks like a setting."""
    if name in known or _DOTTED.fullmatch(name):
        return True
    if not _PLAIN.fullmatch(name):
        return False
    return any(get_close_matches(name.lower().replace("_", each), known, 1, _SIMILAR) for each in ".-")


def not_shown(config: Mapping[str, Any], names: Collection[str]) -> str:
    """The error about unknown names that it must not quote: gives their places in the configuration."""
    if isinstance(config, Properties):
        unit, places = "line", sorted(config.lines[name] for name in names)
        advice = r"a value of several lines needs \ at the end of each line but its last"
    else:
        unit, places = "name", [place for place, name in enumerate(config, 1) if name in names]
        advice = "if it is another program's, leave it out with ignore="
    if len(places) == 1:
        return f"{unit} {places[0]} is not a setting, and is not shown because it may be secret: {advice}"
    listed = list(map(str, places))
    if len(listed) > _LISTED:
        listed[_LISTED - 1 :] = [f"{len(places) - _LISTED + 1} more"]
    *most, last = listed
    where = f"{unit}s {', '.join(most)} and {last}"
    return f"{where} are not settings, and are not shown because they may be secret: {advice}"
