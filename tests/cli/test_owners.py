"""The table of `ottla groups describe` says which member owns a partition."""

from ottla.cli.groups import _short_names
from ottla.sdk.admin import GroupMember


def members(*ids: str, instance: str | None = None) -> list[GroupMember]:
    return [GroupMember(each, instance, "ottla", "127.0.0.1", ()) for each in ids]


def test_a_member_is_named_by_the_beginning_of_its_id() -> None:
    first, second = "474e554f-eeff-4795-9b69", "74374832-59c3-4ef2-8c57"
    assert _short_names(members(first, second)) == {first: "474e554f…", second: "74374832…"}


def test_ids_that_begin_alike_are_shown_as_far_as_they_differ() -> None:
    first, second = "consumer-billing-1-aaaa", "consumer-billing-1-abbb"
    assert _short_names(members(first, second)) == {first: "consumer-billing-1-aa…", second: "consumer-billing-1-ab…"}
    assert _short_names(members("a", "b")) == {"a": "a", "b": "b"}


def test_a_static_member_is_named_by_its_instance_id() -> None:
    assert _short_names(members("474e554f-eeff-4795-9b69", instance="till-1")) == {"474e554f-eeff-4795-9b69": "till-1"}
    assert _short_names([]) == {}
