"""A class of `ottla.late_dataclass` behaves like one of the standard library, generated when first used."""

import copy
import dataclasses
import gc
import inspect
import json
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ottla.late_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    topic: str
    partition: int = 0
    tags: list[str] = dataclasses.field(default_factory=list, compare=False)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Replica(Place):
    node: int = -1


@dataclass(kw_only=True)
class Counter:
    count: int = 0

    def __post_init__(self) -> None:
        self.count += 1


def test_objects_are_created_compared_shown_and_copied() -> None:
    place = Place("t", 3)
    assert place == Place("t", 3, ["other"]) != Place("t")
    assert hash(place) == hash(Place("t", 3))
    assert repr(place) == "Place(topic='t', partition=3, tags=[])"
    assert pickle.loads(pickle.dumps(place)) == copy.deepcopy(place) == place
    assert dataclasses.replace(place, partition=4).name == "t-4"
    assert dataclasses.asdict(place) == {"topic": "t", "partition": 3, "tags": []}
    assert Place("t").tags is not Place("t").tags


def test_a_frozen_object_cannot_change_and_has_no_dictionary() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Place("t").partition = 1  # type: ignore[misc]
    assert not hasattr(Place("t"), "__dict__")


def test_a_subclass_has_the_fields_of_its_base() -> None:
    replica = Replica("t", 1, node=7)
    assert (replica.name, replica.node) == ("t-1", 7)
    assert vars(Replica)["__slots__"] == ("node",) and replica != Place("t", 1)  # generates all
    assert vars(Replica)["__match_args__"] == ("topic", "partition", "tags", "node")


def test_an_object_that_can_change_has_no_hash() -> None:
    counter = Counter(count=4)
    assert counter.count == 5 and Counter.count == 0
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)
    with pytest.raises(TypeError):
        Counter(4)  # type: ignore[call-arg]


def test_the_signature_is_that_of_the_constructor() -> None:
    assert str(inspect.signature(Counter)) == "(*, count: int = 0) -> None"


def test_nothing_is_generated_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    generated: list[bool] = []
    real: Callable[..., Any] = dataclasses.dataclass

    def noting(**options: bool) -> Any:
        generated.append(options["init"])
        return real(**options)

    monkeypatch.setattr(dataclasses, "dataclass", noting)

    @dataclass(slots=True)
    class Fresh:
        size: int

    assert not inspect.isfunction(vars(Fresh)["__init__"])
    one, two = Fresh(1), Fresh(1)
    assert inspect.isfunction(vars(Fresh)["__init__"])
    assert generated == [False], "the fields alone"
    assert one == two
    assert generated == [False, True]


def test_threads_may_use_a_class_first_at_the_same_time() -> None:
    for _ in range(50):

        @dataclass(frozen=True, slots=True)
        class Fresh:
            size: int
            names: list[str] = dataclasses.field(default_factory=list)

        start, made = threading.Barrier(4), list[Fresh]()

        def create(start: threading.Barrier = start, made: list[Fresh] = made, fresh: type[Fresh] = Fresh) -> None:
            start.wait()
            made.append(fresh(3))

        threads = [threading.Thread(target=create) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert made == [Fresh(3)] * 4


def test_a_field_that_the_constructor_does_not_take_has_its_default() -> None:
    @dataclass(slots=True)
    class Slotted:
        size: int
        count: int = dataclasses.field(default=5, init=False)

    @dataclass()
    class Plain:
        size: int
        count: int = dataclasses.field(default=5, init=False)
        names: list[str] = dataclasses.field(default_factory=list, init=False)

    assert (Slotted(1).count, Plain(1).count, Plain(1).names) == (5, 5, [])
    assert Plain.count == 5 and not hasattr(Plain, "names")


def test_a_field_that_is_declared_again_has_the_default_of_its_base() -> None:
    @dataclass()
    class Base:
        size: int = dataclasses.field(default=5)

    @dataclass()
    class Sub(Base):
        size: int

    assert Sub().size == 5  # type: ignore[call-arg] # a type checker does not see that default


@dataclass(frozen=True)
class Frozen:
    size: int = 1


class Changing(Frozen):
    """A subclass that has an attribute of its own."""


@pytest.mark.parametrize("each", [Frozen(), Place("t")])
def test_a_frozen_object_refuses_attributes_that_it_does_not_have(each: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'sise'"):
        each.sise = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'sise'"):
        del each.sise


def test_a_subclass_of_a_frozen_class_may_have_attributes_of_its_own() -> None:
    each: Any = Changing()
    each.other = 3
    assert each.other == 3
    del each.other
    with pytest.raises(dataclasses.FrozenInstanceError):
        each.size = 2


class Registry:
    known: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        Registry.known.append(cls.__name__)


def test_generating_makes_no_subclass_of_the_base() -> None:
    @dataclass()
    class Fresh(Registry):
        size: int = 0

    assert repr(Fresh()) == repr(Fresh()) and Fresh() == Fresh()
    assert Registry.known == ["Fresh"] and Registry.__subclasses__() == [Fresh]
    gc.collect()
    assert [each.__name__ for each in object.__subclasses__() if each.__name__ == "Fresh"] == []


ROOT = Path(__file__).parents[1]
DESCRIBE = """
import dataclasses, importlib, inspect, json, re, sys
if sys.argv[1] == "standard":
    import ottla.late_dataclass
    ottla.late_dataclass.dataclass = dataclasses.dataclass

def shown(value):
    return re.sub(" at 0x[0-9a-f]+", "", str(value))

found = {}
for name in sys.argv[2:]:
    for cls in list(vars(importlib.import_module(name)).values()):
        if isinstance(cls, type) and cls.__module__ == name and "__dataclass_fields__" in vars(cls):
            fields = dataclasses.fields(cls)
            methods = "__init__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__", "__getstate__"
            found[f"{name}.{cls.__qualname__}"] = [
                [shown(each) for each in fields],
                [shown(inspect.getattr_static(cls, each.name, None)) for each in fields],
                shown(cls.__dataclass_params__),
                vars(cls)["__match_args__"],
                shown(inspect.signature(cls.__init__)),
                {name: getattr(vars(cls)[name], "__qualname__", None) for name in methods if name in vars(cls)},
                vars(cls).get("__slots__"),
            ]
print(json.dumps(found))
"""


def test_every_class_of_the_repository_is_like_one_of_the_standard_library() -> None:
    sources = {
        f"ottla.{'.'.join(file.relative_to(ROOT / folder).with_suffix('').parts)}"
        for folder, parts in {".": ("codec", "sdk", "spark", "proxy", "brokerlite"), "src/ottla": (".",)}.items()
        for part in parts
        for file in (ROOT / folder / part).rglob("*.py")
        if re.search("^ *from ottla.late_dataclass import", file.read_text(), re.MULTILINE)
    }
    standard, late = (
        json.loads(subprocess.check_output([sys.executable, "-c", DESCRIBE, kind, *sorted(sources)]))
        for kind in ("standard", "late")
    )
    sources.remove("ottla.codec.wire")  # it has no class of its own, but decorates messages
    assert len(late) > 80 and {name.rpartition(".")[0] for name in late} == sources
    assert late == standard
