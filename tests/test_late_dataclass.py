"""A class of `ottla.late_dataclass` behaves like one of the standard library, generated when first used."""

import copy
import dataclasses
import inspect
import pickle
import threading
from collections.abc import Callable
from typing import Any

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
        generated.append(options["eq"])
        return real(**options)

    monkeypatch.setattr(dataclasses, "dataclass", noting)

    @dataclass(slots=True)
    class Fresh:
        size: int

    assert generated == []
    one, two = Fresh(1), Fresh(1)
    assert generated == [False]
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
