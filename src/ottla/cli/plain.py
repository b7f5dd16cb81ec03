"""Parses the command lines of servers, `ottla consume` and `ottla produce` without Typer.

To parse a command line Typer imports pydantic, which takes 10 MB and a tenth of a second: a fifth of a broker's memory
for as long as it runs, and a quarter of its starting time. It also needs the modules of all other commands. So plain
command lines are parsed here, from the same declarations. Everything else is left to Typer: help, mistakes, and
possible mistakes.
"""

import inspect
import os
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, get_args

from typer.models import ArgumentInfo, OptionInfo

_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]+)?", re.ASCII)


class NotPlain(Exception):
    """Typer has to parse the command line, or explain its error."""


def arguments(command: Callable[..., None], words: Iterable[str]) -> dict[str, Any]:
    """Parse ``words`` into arguments of ``command``: texts, options with a value each, and flags.

    Raises:
        NotPlain: there is anything else, or something is missing.
    """
    parameters = inspect.signature(command, eval_str=True).parameters
    options = dict(flag for each in parameters.values() for flag in _flags(each.name, each.annotation))
    texts = (each.name for each in parameters.values() if isinstance(get_args(each.annotation)[1], ArgumentInfo))
    given: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        name, kind, info = options.get(word, ("", None, None))
        if kind is bool:
            given[name] = not word.startswith("--no-")
        elif isinstance(info, OptionInfo) and (text := next(left, "-")) and not text.startswith("-"):
            value = _value(kind, info, text)
            given[name] = given.get(name, []) + value if isinstance(value, list) else value
        elif info is None and word and not word.startswith("-") and (name := next(texts, "")):
            given[name] = word
        else:
            raise NotPlain(word)
    for name, kind, info in options.values():
        if name not in given and isinstance(info.envvar, str) and (text := os.environ.get(info.envvar, "")):
            given[name] = _value(kind, info, text)
    if missing := [name for name, each in parameters.items() if each.default is each.empty and name not in given]:
        raise NotPlain(missing[0])
    return given


def _flags(name: str, hint: Any) -> Iterable[tuple[str, tuple[str, Any, OptionInfo]]]:
    """The flags of an argument, with its name, its type and its declaration."""
    kind, info = get_args(hint)
    if isinstance(info, ArgumentInfo):
        return
    if NoneType in get_args(kind):
        kind = get_args(kind)[0]
    declared = [each for each in (info.default, *info.param_decls) if isinstance(each, str)]
    plain = name.replace("_", "-")
    for flag in declared or [f"--{plain}", *([f"--no-{plain}"] if kind is bool else [])]:
        yield flag, (name, kind, info)


def _value(kind: Any, info: OptionInfo, text: str) -> Any:
    if kind is str:
        return text
    if kind == list[str]:
        return [text]
    if kind is Path:
        return (info.parser or Path)(text)
    if isinstance(kind, type) and issubclass(kind, StrEnum) and text in list(kind):
        return kind(text)
    if kind in (int, float) and _NUMBER.fullmatch(text) and (kind is float or text.isdigit()):
        value = kind(text)
        if (info.min is None or value >= info.min) and (info.max is None or value <= info.max):
            return value
    raise NotPlain(text)
