"""Kafka's `ssl.principal.mapping.rules`: from the subject of a certificate to the name of a principal.

    SubjectMapping.parse("RULE:^CN=(.*?),.*$/$1/L,DEFAULT").name("CN=App,O=ottla")     # -> "app"

Rules:
- The first rule whose pattern matches the whole subject counts. ``DEFAULT`` is the subject itself.
- In the replacement ``$1`` is the first group; ``L`` and ``U`` change the case of the result.
- A subject that no rule matches is refused.

Source: SslPrincipalMapper.java; KIP-371.
"""

import re
from dataclasses import dataclass

from ottla.errors import AuthenticationFailed, ConfigurationError

_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_REFERENCE = re.compile(r"\\(.)|\$([0-9])")


@dataclass(frozen=True)
class SubjectRule:
    """One rule; without a pattern it is ``DEFAULT``."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """The name, or ``None`` if the rule does not fit."""
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        groups = (subject, *found.groups(""))
        name = _REFERENCE.sub(lambda each: each[1] or groups[int(each[2])], self.replacement)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


@dataclass(frozen=True)
class SubjectMapping:
    """The rules of a listener, in order."""

    rules: tuple[SubjectRule, ...] = (SubjectRule(),)

    @classmethod
    def parse(cls, text: str) -> "SubjectMapping":
        """Parse Kafka's text.

        Raises:
            ConfigurationError: it is not a list of rules.
        """
        rules, at = [], 0
        while at < len(text):
            if (found := _RULE.match(text, at)) is None:
                raise ConfigurationError(
                    f"{text[at:]!r:.100} is not a rule: write RULE:pattern/replacement/ or DEFAULT"
                )
            at = found.end()
            rules.append(SubjectRule() if found[1] else _rule(found[2], found[3], found[4]))
        return cls(tuple(rules) or (SubjectRule(),))

    def name(self, subject: str) -> str:
        """The name of a subject.

        Raises:
            AuthenticationFailed: no rule fits, or its result is empty.
        """
        for rule in self.rules:
            if (name := rule.apply(subject)) is not None:
                if not name:
                    break
                return name
        raise AuthenticationFailed(f"no rule of ssl.principal.mapping.rules fits the certificate of {subject!r:.300}")


def _rule(pattern: str, replacement: str, case: str) -> SubjectRule:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(f"{pattern!r} is not a regular expression: {error}") from None
    references = [int(each[2]) for each in _REFERENCE.finditer(replacement) if each[2]]
    if any(each > compiled.groups for each in references):
        raise ConfigurationError(f"{replacement!r} refers to a group that {pattern!r} does not have")
    return SubjectRule(compiled, replacement, case)
