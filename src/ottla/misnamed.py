"""Attributes of other Kafka clients, whose errors say what to use instead."""

from typing import NoReturn


class Misnamed:
    """An attribute that a class does not have, though other clients do.

    It is a descriptor, and not a ``__getattr__``: that would make every call of a method slower.

    Args:
        advice: follows "a Consumer has no getone".
    """

    def __init__(self, advice: str) -> None:
        self._advice, self._name = advice, ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, it: object, owner: type) -> NoReturn:
        self.refuse(owner, self._name, self._advice)

    @staticmethod
    def refuse(owner: type, name: str, advice: str) -> NoReturn:
        """Raise the error about a missing attribute."""
        # The error has no object: Python would search it for a similar name, and add that to the text.
        raise AttributeError(f"a {owner.__name__} has no {name}: {advice}", name=name, obj=None)
