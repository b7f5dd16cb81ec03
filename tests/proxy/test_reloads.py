"""Rules that change while the proxy runs: pins come back with the rule that made them, and the history stays small."""

from random import Random
from uuid import UUID

import pytest

from ottla.proxy.config import ProxyConfig
from ottla.proxy.core import ProxyCore
from ottla.proxy.events import RulesChanged
from ottla.proxy.routing import Routes, RuleHistory
from ottla.proxy.topic_rule import parse_rule

PIN = Routes(UUID(int=1), 6, "murmur2")


def changed(core: ProxyCore, *rules: str) -> None:
    core.handle(RulesChanged(tuple(map(parse_rule, rules))), 0.0)


@pytest.mark.parametrize("mistake", ["f=rewrite:crc32", "f=rewrite::12", "g=rewrite", "f=observe"])
def test_a_mistake_that_is_undone_leaves_keys_where_they_were(mistake: str) -> None:
    core = ProxyCore(ProxyConfig(upstream="h:1", topics=(parse_rule("f=rewrite"),)), (("h", 1),), Random(1))
    core.topics.pin("f", PIN)
    changed(core, mistake)
    changed(core, mistake, "h=rewrite")
    changed(core, "f=rewrite")
    assert core.topics.pins == {"f": PIN}


def test_a_rule_with_another_partitioner_does_not_get_the_pin_of_the_former() -> None:
    core = ProxyCore(ProxyConfig(upstream="h:1", topics=(parse_rule("f=rewrite"),)), (("h", 1),), Random(1))
    core.topics.pin("f", PIN)
    changed(core, "f=rewrite:crc32")
    assert core.topics.pins == {}


def test_the_history_has_each_change_of_modes_once() -> None:
    history = RuleHistory([parse_rule("f=rewrite")])
    for text in ("f=rewrite:crc32", "f=observe", "f=observe", "f=rewrite"):
        history.change([parse_rule(text)])
    assert history.texts == [("f=rewrite",), ("f=observe",), ("f=rewrite",)]
    assert history.changed("f", 0) and history.changed("f", 1) and not history.changed("f", 2)
