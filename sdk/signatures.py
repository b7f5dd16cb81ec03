"""Calls whose error for an unknown option names the right option.

Rules:
- The error is Python's own, a `TypeError`, as for every argument that a function does not have.
- Names of Kafka's clients lead to ours: ``group.id``, and ``group_id`` as kafka-python and aiokafka spell it. The
  advice shows the value in our units: ``linger_ms=5`` is ``linger=0.005``.
- Advice never shows a value of TLS or SASL: it could be a password.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ottla.errors import ConfigurationError

R = TypeVar("R")
Given = TypeVar("Given")
P = ParamSpec("P")

_CALLS: dict[str, dict[str, inspect.Parameter]] = {}
"""The options of each call that is decorated here, by its name."""

_OF = {"client": "connect", "producer": "producer", "consumer": "consumer"}
"""The call that takes the options of each part of a configuration."""

_KAFKA_PYTHON = {
    "api_version": "api.version.request",
    "max_batch_size": "batch.size",
}
"""Names of kafka-python and aiokafka that are not Kafka's with underscores, and Kafka's for the same."""

_OTHERS = {
    "topic": "topics come first and without a name, as in client.consumer('orders')",
    "topics": "topics come first and without a name, as in client.consumer('orders', 'payments')",
    "loop": "ottla.aio.connect(…) runs on the loop that runs already",
    "consumer_timeout_ms": "bound the wait where you ask for a batch",
}
"""Advice for names that no client of Kafka's in another language has."""


def declared_by(options: Callable[P, Given]) -> Callable[[Callable[[Given], R]], Callable[P, R]]:
    """A decorator: the function takes what ``options``, a dataclass, is made of, and is given one."""

    signature = inspect.signature(options)

    def decorate(function: Callable[[Given], R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}(): {error}") from None
            return function(options(*args, **kwargs))

        returns = inspect.signature(function).return_annotation
        call.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
        call.__doc__ = f"{function.__doc__}\n\n{inspect.cleandoc(options.__doc__ or '')}"
        return advising(call)

    return decorate


def advising(function: Callable[P, R]) -> Callable[P, R]:
    """A decorator: the error for an unknown option names the right option."""
    parameters = inspect.signature(function).parameters
    known = {name: each for name, each in parameters.items() if name != "self" and each.kind is not each.VAR_POSITIONAL}
    _CALLS[function.__name__] = known

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        unknown = [each for each in kwargs if each not in known]
        wrong = [f"has no option {each}: {_advice(function, each, kwargs[each])}" for each in unknown]
        if any(isinstance(each, Mapping) for each in args):
            wrong.append("takes no dict: `ottla.from_kafka_config` makes options of Kafka's names")
        if wrong:
            raise TypeError(f"{function.__name__}() {'; '.join(wrong)}")
        return function(*args, **kwargs)

    return call


def _advice(function: Callable[..., Any], name: str, value: object) -> str:
    known = _CALLS[function.__name__]
    for other, options in _CALLS.items():
        if name in options:
            return f"it is an option of {other}()"
    return (
        _of_kafkas_name(function, name, value)
        or _OTHERS.get(name)
        or next((f"do you mean {each}?" for each in get_close_matches(name, known, 1)), "")
        or f"there are {', '.join(known)}"
    )


def _in_our_names(text: str) -> str:
    """``text`` with our options in place of Kafka's names."""
    from ottla.sdk.kafka_meanings import UNITED, To, meaning

    def ours(name: re.Match[str]) -> str:
        what = meaning(name[0])
        return UNITED.get(what.option, what.option) if isinstance(what, To) else name[0]

    return re.sub(r"[a-z]+(?:\.[a-z]+)+", ours, text)


def _of_kafkas_name(function: Callable[..., Any], name: str, value: object) -> str:
    """Our option for a name of Kafka's, or why there is none; empty where Kafka's clients do not know the name."""
    # Only an error needs the tables: a program that makes none need not load them.
    from ottla.sdk.kafka_meanings import JVM, UNITED, To, meaning
    from ottla.sdk.kafka_security import is_security

    dotted = _KAFKA_PYTHON.get(name, name.replace("_", "."))
    if is_security(dotted):
        return "say ottla.connect(…, tls=ottla.TLS(…), sasl=ottla.Plain(…)), or what docs/security.md has"
    what = meaning(name) or meaning(dotted)
    if not isinstance(what, To):
        return _in_our_names(what.why.removeprefix(f"{JVM}; ")) if what is not None else ""
    option = UNITED.get(what.option, what.option)
    taker = function.__name__ if option in _CALLS[function.__name__] else _OF[what.part]
    meant = option
    if option == what.option:
        with suppress(ConfigurationError):  # a value that Kafka's clients would refuse, too
            meant = f"{option}={what.convert(value)!r}"
    seconds = ", in seconds" if "float" in str(_CALLS[taker][option].annotation) else ""
    return f"do you mean {meant}{f' of {taker}()' if taker != function.__name__ else ''}{seconds}?"
