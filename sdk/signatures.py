"""Decorators for calls whose error about an unknown option suggests the right one.

Rules:
- The error is Python's own, a `TypeError`, as for every argument that a function does not have.
- Names of Kafka's clients lead to ottla's: ``group.id``, and ``group_id`` as kafka-python and aiokafka spell it. The
  advice shows the value in ottla's units: ``linger_ms=5`` is ``linger=0.005``.
- Advice never shows a value of TLS or SASL: it could be a password.
"""

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from ottla.errors import ConfigurationError
from ottla.unknown_options import nearest

R = TypeVar("R")
Given = TypeVar("Given")
P = ParamSpec("P")

_CALLS: dict[str, dict[str, inspect.Parameter]] = {}
"""The options of each decorated call, by its name."""

_OF = {"client": "connect", "producer": "producer", "consumer": "consumer", "share_consumer": "share_consumer"}
"""The call that accepts the options of each part of a configuration."""

_KAFKA_PYTHON = {
    "api_version": "api.version.request",
    "max_batch_size": "batch.size",
}
"""Names of kafka-python and aiokafka that differ from Kafka's in more than underscores, and Kafka's names for them."""

_OTHERS = {
    "topic": "topics are the first, positional arguments, as in client.consumer('orders')",
    "topics": "topics are the first, positional arguments, as in client.consumer('orders', 'payments')",
    "loop": "ottla.aio.connect(…) uses the running loop",
    "consumer_timeout_ms": "put a timeout around the call that asks for a batch",
}
"""Advice for names that no Kafka client in another language has."""

_OF_CALLS = {
    "num_partitions": "do you mean partitions?",
    "timeout": "api_timeout and delivery_timeout of connect() bound it; to wait less, use your loop's own timeout",
}
"""Advice for arguments of single calls."""


def declared_by(options: Callable[P, Given]) -> Callable[[Callable[[Given], R]], Callable[P, R]]:
    """A decorator: callers pass the fields of ``options``, a dataclass, and the function gets an instance."""

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
    """A decorator: the error about an unknown option suggests the right one."""
    signature = inspect.signature(function)
    parameters = signature.parameters
    known = {name: each for name, each in parameters.items() if name != "self" and each.kind is not each.VAR_POSITIONAL}
    _CALLS[function.__name__] = known

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        unknown = [each for each in kwargs if each not in known]
        wrong = [f"has no option {each}: {_advice(function, each, kwargs[each])}" for each in unknown]
        if any(isinstance(each, Mapping) for each in args):
            wrong.append("takes no dict: use `ottla.from_kafka_config` for Kafka's names")
        if wrong:
            raise TypeError(f"{function.__name__}() {'; '.join(wrong)}")
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:  # Python's text would name the generated class in which the function is
            raise TypeError(f"{function.__name__}(): {error}") from None
        return function(*args, **kwargs)

    return call


def advising_call(function: Callable[P, R]) -> Callable[P, R]:
    """Like `advising`, for the frequent calls of a client or producer, whose options no Kafka client shares."""
    known = dict.fromkeys(list(inspect.signature(function).parameters)[1:])

    def check(given: Mapping[str, object]) -> None:
        if not given.keys() <= known.keys():
            unknown = next(each for each in given if each not in known)
            near = nearest(unknown, known)
            advice = _OF_CALLS.get(unknown) or (f"do you mean {near}?" if near else f"there are {', '.join(known)}")
            raise TypeError(f"{function.__name__}() has no option {unknown}: {advice}")

    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def awaited(*args: P.args, **kwargs: P.kwargs) -> Any:
            check(kwargs)
            return await function(*args, **kwargs)

        return cast("Callable[P, R]", awaited)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check(kwargs)
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
        or (f"do you mean {near}?" if (near := nearest(name, known)) else f"there are {', '.join(known)}")
    )


def _in_our_names(text: str) -> str:
    """``text`` with our options in place of Kafka's names."""
    from ottla.sdk.kafka_meanings import UNITED, To, meaning

    def ours(name: re.Match[str]) -> str:
        what = meaning(name[0])
        return UNITED.get(what.option, what.option) if isinstance(what, To) else name[0]

    return re.sub(r"[a-z]+(?:\.[a-z]+)+", ours, text)


def _of_kafkas_name(function: Callable[..., Any], name: str, value: object) -> str:
    """Ottla's option for one of Kafka's names, or why there is none; empty if Kafka's clients do not know the name."""
    # Imported only for an error: other programs need not load the tables.
    from ottla.sdk.kafka_meanings import JVM, UNITED, To, meaning
    from ottla.sdk.kafka_security import is_security

    dotted = _KAFKA_PYTHON.get(name, name.replace("_", "."))
    if is_security(dotted):
        return "use ottla.connect(…, tls=ottla.TLS(…), sasl=ottla.Plain(…)), or see docs/security.md"
    what = meaning(name) or meaning(dotted)
    if not isinstance(what, To):
        return _in_our_names(what.why.removeprefix(f"{JVM}; ")) if what is not None else ""
    option = UNITED.get(what.option, what.option)
    taker = function.__name__ if option in _CALLS[function.__name__] else _OF[what.part]
    meant = option
    if option == what.option:
        with suppress(ConfigurationError):  # Kafka's clients would refuse the value, too
            meant = f"{option}={what.convert(value)!r}"
    seconds = ", in seconds" if "float" in str(_CALLS[taker][option].annotation) else ""
    return f"do you mean {meant}{f' of {taker}()' if taker != function.__name__ else ''}{seconds}?"
