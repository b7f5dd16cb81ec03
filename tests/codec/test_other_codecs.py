"""Generated values against other codecs in Python: kio and kafka-python, in the versions that they support.

A value of ottla becomes one of theirs, as close as their types permit (no unknown tags, only error codes that they
know, plausible timestamps). They build it; ottla parses the result and builds it
again. Both the bytes and the values must be the same.
"""

import dataclasses
import datetime
import importlib
import io
import pkgutil
import re
import typing
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kio.schema
from construct import Construct
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from ottla.codec import build, parse, trees
from ottla.codec.wire import NO_UUID
from tests.codec import strategies
from tests.codec.kafka_json import OLD_NAMES, kafkas_name


def agree(
    value: Any,
    version: int,
    convert: Callable[[Any], Any],
    their_build: Callable[[Any], bytes],
    their_parse: Callable[[bytes], Any],
) -> None:
    theirs = convert(value)
    data = their_build(theirs)
    parsed, end = parse(type(value), version, data)
    assert end == len(data)
    assert build(parsed, version) == data
    assert convert(parsed) == theirs
    assert their_parse(data) == theirs


def snake(name: str) -> str:
    """A Python name for a Kafka name, as both libraries form it."""
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


# --- kio: one frozen dataclass for each message and version

KIO_KINDS = {"Request": "request", "Response": "response", "Header": "header"}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ERROR_CODES = sorted(each.value for each in ErrorCode)


def kios_module(cls: type[Any], version: int) -> tuple[str, str, str]:
    """The module and name of a message's class in ``kio.schema``, if there is one."""
    name = cls.__name__
    kind = next((kind for end, kind in KIO_KINDS.items() if name.endswith(end)), "data")
    schema = snake(name if kind in ("data", "header") else name[: -len(kind)])
    return schema, f"v{version}", kind


def kio_knows(cls: type[Any], version: int) -> bool:
    """Whether kio has the class; imports none, because all together take seconds, and few are in quick tests."""
    return Path(kio.schema.__path__[0], *kios_module(cls, version)).with_suffix(".py").exists()


def kios_class(cls: type[Any], version: int) -> Any:
    module = importlib.import_module(".".join(("kio.schema", *kios_module(cls, version))))
    return getattr(module, cls.__name__)


def to_kio(value: Any, node: Construct, field: "dataclasses.Field[Any] | type[Any]") -> Any:
    """``value`` as a value of kio, or the closest that its types permit."""
    if value is None:
        return None
    match node:
        case trees.Structure(cls=cls, members=members, tagged=tagged):
            entity = field if isinstance(field, type) else entity_of(field.type)
            theirs = {each.name: each for each in dataclasses.fields(entity)}
            nodes = dict(members) | {each.name: each.node for each in tagged or ()}
            snaked = {snake(kafkas_name(cls, name, OLD_NAMES)): name for name in nodes}
            named = {name if name in theirs else name.removesuffix("_ms"): ours for name, ours in snaked.items()}
            assert named.keys() == theirs.keys()
            return entity(
                **{name: to_kio(getattr(value, ours), nodes[ours], theirs[name]) for name, ours in named.items()}
            )
        case trees.Sequence(item=item):
            return tuple(to_kio(each, item, field) for each in value)
        case trees.Id():
            return None if value == NO_UUID else value
        case trees.Blob():
            return bytes(value)
    assert not isinstance(field, type)
    match field.metadata["kafka_type"]:
        case "error_code":
            return ErrorCode(ERROR_CODES[value % len(ERROR_CODES)] if value not in ERROR_CODES else value)
        case "timedelta_i32":
            return datetime.timedelta(milliseconds=value)
        case "timedelta_i64":
            return datetime.timedelta(milliseconds=value % 2**40)
        case "datetime_i64":
            optional = type(None) in typing.get_args(field.type)
            return None if optional and value < 0 else EPOCH + datetime.timedelta(milliseconds=value % 2**40)
    return value


def entity_of(hint: Any) -> type[Any]:
    """The dataclass in the type hint of a field: for ``tuple[X, ...] | None`` it is X."""
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return hint
    return next(entity_of(each) for each in typing.get_args(hint) if each not in (..., type(None)))


def kio_build(entity: Any) -> bytes:
    stream = io.BytesIO()
    entity_writer(type(entity))(stream, entity)
    return stream.getvalue()


@strategies.parameters(case for case in strategies.EVERY_VERSION if kio_knows(*case))
@given(data=st.data())
@strategies.examples(3)
def test_kio_agrees(cls: type[Any], version: int, data: st.DataObject) -> None:
    tree = strategies.tree(cls, version)
    entity = kios_class(cls, version)
    agree(
        data.draw(strategies.values(tree)),
        version,
        lambda value: to_kio(value, tree, entity),
        kio_build,
        lambda built: entity_reader(entity)(built, 0)[0],
    )


# --- kafka-python: one class for each message, made of Kafka's definitions


def _kafka_pythons() -> dict[str, Any]:
    """The message classes of kafka-python, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about how it reads its own files
        protocol = importlib.import_module("kafka.protocol")
        names = [each.name for each in pkgutil.walk_packages(protocol.__path__, "kafka.protocol.")]
        modules = [importlib.import_module(name) for name in names if not re.search("old|generate_stubs", name)]
    return {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, type) and getattr(each, "_json", {}).get("type") in ("request", "response", "data")
    }


KAFKA_PYTHONS = _kafka_pythons()


def to_kafka_python(value: Any, node: Construct, field: Any, version: int) -> Any:
    """``value`` as a value of kafka-python; ``field`` is one of its classes, or the field of one."""
    if value is None or value == NO_UUID:
        return None
    match node:
        case trees.Structure(cls=cls, members=members, tagged=tagged):
            made: Any = field if isinstance(field, type) else field.data_class
            nodes = dict(members) | {
                each.name: each.node for each in tagged or () if getattr(value, each.name) != each.default
            }
            snaked = {snake(kafkas_name(cls, name, OLD_NAMES)): name for name in nodes}
            inner = made._struct.fields
            named = {name if name in inner else "authorized_operations": ours for name, ours in snaked.items()}
            return made(
                version=version,
                **{
                    name: to_kafka_python(getattr(value, ours), nodes[ours], inner[name], version)
                    for name, ours in named.items()
                },
            )
        case trees.Sequence(item=item):
            return [to_kafka_python(each, item, field, version) for each in value]
        case trees.Blob():
            return bytes(value)
    if field.type_str == "bitfield":
        return None if value == -(1 << 31) else field._type.from_32_bit_field(value & 0xFFFF_FFFF)
    return value


def is_known_to_kafka_python(cls: type[Any], version: int) -> bool:
    theirs = KAFKA_PYTHONS.get(cls.__name__)
    return theirs is not None and version <= theirs.max_version


@strategies.parameters(case for case in strategies.EVERY_VERSION if is_known_to_kafka_python(*case))
@given(data=st.data())
@strategies.examples(3)
def test_kafka_python_agrees(cls: type[Any], version: int, data: st.DataObject) -> None:
    tree = strategies.tree(cls, version)
    theirs = KAFKA_PYTHONS[cls.__name__]
    value = data.draw(strategies.values(tree))
    if cls.__name__ == "ApiVersionsResponse":
        value.error_code = 0  # with an error, kafka-python reads version 0, whatever version it should read
    agree(
        value,
        version,
        lambda value: to_kafka_python(value, tree, theirs, version),
        lambda made: made.encode(version=version, header=False),
        lambda built: theirs.decode(built, version=version, header=False),
    )
