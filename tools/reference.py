"""Write docs/reference from signatures and docstrings: `make reference`.

Rules:
- The pages contain only text from the source; to improve a page, improve the docstring.
- Sources are parsed and not run, so the pages are the same with any engine and any extras. Only the tables of error
  codes and of Kafka's names are imported.
- Paragraphs that begin with "Source:" or "Rule:" are for developers of ottla, and are left out.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ottla.errors import BrokerError
from ottla.sdk import kafka_meanings, kafka_security

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
OPTIONS = ROOT / "sdk" / "options.py"
BASES = {"ClientParts": "sdk/client_parts.py", "SendSoon": "sdk/produce/_append_in_python.py"}
"""Base classes in other files, whose public methods are documented with each class that derives from them."""

GENERATED = "<!-- Generated, do not edit: `make reference` writes this page from the docstrings of the source. -->\n"
"""The first line of every page."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef
SPOKEN = {
    "Consumer.__anext__": "async for batch in consumer",
    "ShareConsumer.__anext__": "async for record in jobs",
    "Transform.__anext__": "async for batches in transform",
}
"""Special methods, and the syntax that calls them."""


@dataclass(frozen=True, slots=True)
class Part:
    """Names of one file; without names, the module's docstring."""

    file: str
    names: tuple[str, ...] = ()
    meanings: bool = False
    """Explain each field by the string after it: for a class whose docstring does not."""
    brief: bool = False
    """Leave methods out: another page documents them, as a protocol's."""


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    parts: tuple[Part, ...]
    table: str = ""
    """Text after the parts."""


class Undocumented(Exception):
    """A public name has no docstring."""


# -- docstrings -------------------------------------------------------------------------------------------------------

_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Rules|Quirks):$")
_NAME = r"(?:``)?[\w…*.]+(?:``)?"
_ITEM = re.compile(rf" {{4}}({_NAME}(?:, {_NAME})*): (.*)")


def prose(docstring: str) -> str:
    """A docstring as Markdown."""
    out: list[str] = []
    within = False
    for line in inspect.cleandoc(docstring).splitlines():
        if line.startswith(("Source:", "Rule:")):
            break
        if section := _SECTION.match(line):
            within = section[1] in ("Args", "Attributes", "Raises", "Returns")
            out += ["", f"**{section[1]}**", ""]
        elif within and (item := _ITEM.match(line)):
            out.append(f"- {', '.join(map(_code, item[1].split(', ')))}: {item[2]}")
        elif within and line.startswith("    "):
            out.append(re.sub("^    ( {4})?", lambda indent: "  " if indent[1] else "", line))
        else:
            within = within and not line
            out.append(line)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()
    return _fenced(re.sub(r"``(.+?)``", r"`\1`", text))


def _code(name: str) -> str:
    return name if name == "…" else f"`{name.strip('`')}`"


def _fenced(text: str) -> str:
    """Put indented blocks between fences, which more Markdown renderers recognise."""

    def fence(found: re.Match[str]) -> str:
        block = inspect.cleandoc("\n" + found[0])
        language = "" if "──" in block else "python"
        return f"```{language}\n{block}\n```\n"

    return re.sub(r"(?:(?<=\n\n)|\A) {4}.*(?:\n(?: {4}.*)?)*", lambda found: fence(found) + "\n", text).strip()


# -- definitions ------------------------------------------------------------------------------------------------------


def signature(source: list[str], node: Definition | ast.ClassDef) -> str:
    """The signature as in the source, without ``self``."""
    first = node.body[0]
    text = "\n".join(source[node.lineno - 1 : first.lineno - 1])
    if first.lineno == node.lineno or not text.rstrip().endswith(":"):
        text += "\n" + source[first.lineno - 1][: first.col_offset]
    text = inspect.cleandoc("\n" + text).rstrip().removesuffix(":")
    of_class = any(isinstance(each, ast.Name) and each.id == "classmethod" for each in node.decorator_list)
    text = re.sub(rf"(\(\s*){'cls' if of_class else 'self'}(?:,\n\s+|, )?", r"\1", text, count=1)
    return re.sub(r'"([A-Z][^"]*)"', r"\1", text)  # a type in a string


def described(name: str, node: Definition | ast.ClassDef | ast.Module) -> str:
    text = ast.get_docstring(node, clean=False)
    if not text:
        raise Undocumented(name)
    return prose(text)


def fields(node: ast.ClassDef) -> str:
    """The declared fields of a dataclass, a named tuple or a protocol."""
    lines = []
    for each in node.body:
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        name, kind = each.target.id, ast.unparse(each.annotation)
        if not name.startswith("_") and "ClassVar" not in kind:
            value = each.value
            if isinstance(value, ast.Call):  # of an option, whose first argument is the default, or the wire type
                value = value.args[0] if ast.unparse(value.func) == "option" else None
            lines.append(f"{name}: {kind}" + ("" if value is None else f" = {ast.unparse(value)}"))
    return "\n".join(lines)


def explained(node: ast.ClassDef) -> str:
    """A list of the fields, or the members of an enumeration, that have a string after them."""
    lines = []
    for each, behind in zip(node.body, node.body[1:], strict=False):
        if isinstance(each, ast.AnnAssign | ast.Assign) and isinstance(behind, ast.Expr):
            target = each.target if isinstance(each, ast.AnnAssign) else each.targets[0]
            text = prose(ast.literal_eval(behind.value)).replace("\n", "\n  ")
            lines.append(f"- `{ast.unparse(target)}`: {text}")
    return "\n".join(lines)


def is_property(node: Definition) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)


def is_overload(node: Definition) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


def declared_by(node: Definition) -> list[ast.ClassDef]:
    """The dataclasses that declare a function's options: see `ottla.sdk.signatures.declared_by`."""
    for each in node.decorator_list:
        if isinstance(each, ast.Call) and ast.unparse(each.func) == "declared_by":
            found = {one.name: one for one in ast.parse(OPTIONS.read_text()).body if isinstance(one, ast.ClassDef)}
            declared = [found[ast.unparse(each.args[0])]]
            while declared[-1].bases:
                declared.append(found[ast.unparse(declared[-1].bases[0])])
            return declared
    return []


def keywords(node: Definition, options: list[ast.ClassDef]) -> str:
    """The signature of a function whose options dataclasses declare; options of the first are also positional."""
    first, *others = (fields(each).splitlines() for each in options)
    lines = [*first, "*", *(line for each in others for line in each)]
    returned = ast.unparse(node.returns).strip("'\"") if node.returns else "None"
    return "\n".join([f"def {node.name}(", *(f"    {line}," for line in lines), f") -> {returned}"])


def method(of: str, source: list[str], node: Definition) -> str:
    name = f"{of}.{node.name}" if of else node.name
    title = SPOKEN.get(name, name)
    if options := declared_by(node):
        block = keywords(node, options)
    elif is_property(node):
        returned = ast.unparse(node.returns) if node.returns else "object"
        block = f"{node.name}: {returned}"
    else:
        block = signature(source, node)
    text = described(name, node)
    for each in options:
        text += "\n\n" + described(each.name, each).replace("**Attributes**", "**Args**")
    if name in SPOKEN:
        return f"### {title}\n\n{text}\n"
    return f"{'###' if of else '##'} {title}\n\n```python\n{block}\n```\n\n{text}\n"


def klass(source: list[str], node: ast.ClassDef, part: Part) -> Iterator[str]:
    yield f"## {node.name}\n"
    declared = fields(node)
    if declared:
        yield f"```python\n{declared}\n```\n"
    yield described(node.name, node) + "\n"
    if part.meanings:
        yield explained(node) + "\n"
    for text, of in [(source, node), *bases(node)]:
        for each in of.body:
            if not isinstance(each, Definition) or part.brief or is_overload(each):
                continue
            if not each.name.startswith("_") or f"{node.name}.{each.name}" in SPOKEN:
                yield method(node.name, text, each)


def bases(node: ast.ClassDef) -> Iterator[tuple[list[str], ast.ClassDef]]:
    """The base classes of `BASES`, each with its source."""
    for each in node.bases:
        name = ast.unparse(each).partition("[")[0]
        if name in BASES:
            text = (ROOT / BASES[name]).read_text()
            for found in ast.parse(text).body:
                if isinstance(found, ast.ClassDef) and found.name == name:
                    yield text.splitlines(), found


def alias(name: str, source: list[str], module: ast.Module) -> str:
    """An assigned name, and the string after it."""
    for node, behind in zip(module.body, [*module.body[1:], ast.Pass()], strict=True):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == name:
            if not isinstance(behind, ast.Expr) or not isinstance(behind.value, ast.Constant):
                raise Undocumented(name)
            code = "\n".join(source[node.lineno - 1 : node.end_lineno])
            return f"## {name}\n\n```python\n{code}\n```\n\n{prose(str(behind.value.value))}\n"
    raise LookupError(f"there is no {name}")


def rendered(part: Part) -> Iterator[str]:
    text = (ROOT / part.file).read_text()
    source, module = text.splitlines(), ast.parse(text)
    if not part.names:
        yield described(part.file, module) + "\n"
    found = {each.name: each for each in module.body if isinstance(each, Definition | ast.ClassDef)}
    for name in part.names:
        match found.get(name):
            case ast.ClassDef() as node:
                yield from klass(source, node, part)
            case None:
                yield alias(name, source, module)
            case node:
                yield method("", source, node)


# -- tables -----------------------------------------------------------------------------------------------------------


def error_codes() -> str:
    rows = [
        f"| {each.code} | `{each.__name__}` | {'yes' if each.retriable else ''} "
        f"| {_cell(each.__doc__)} {_cell(each.advice)} |"
        for each in sorted(_leaves(BrokerError), key=lambda each: each.code)
    ]
    about = "Each is a class of `ottla.errors`, a `BrokerError`. What is retriable the client repeats by itself."
    columns = ["| code | class | retriable | what it means, and what to do |", "|---|---|---|---|"]
    return "\n".join(["## Answers of brokers", "", about, "", *columns, *rows, ""])


def _leaves(kind: type[BrokerError]) -> Iterator[type[BrokerError]]:
    for each in kind.__subclasses__():
        if "code" in vars(each):
            yield each
        yield from _leaves(each)


def _cell(text: str | None) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", " ".join((text or "").split())).replace("|", "\\|")


def kafka_names() -> str:
    parts = {
        "client": "connect",
        "producer": "client.producer",
        "consumer": "client.consumer",
        "share_consumer": "client.share_consumer",
    }
    rows = []
    for name, meaning in sorted(kafka_meanings.MEANINGS.items()):
        match meaning:
            case kafka_meanings.To(part=part, option=option):
                here = "start=…, reset" if option == "start" else kafka_meanings.UNITED.get(option, option)
                what = f"`{parts[part]}({here}=…)`"
            case kafka_meanings.Only(values=values, why=why):
                what = f"only {' or '.join(f'`{each}`' for each in values)}: {_cell(why)}"
                what += " (`lenient`: left out)" if meaning.idle else ""
            case kafka_meanings.No(why=why):
                what = f"means nothing: {_cell(why)}"
                what += " (`lenient`: left out)" if meaning.idle else ""
        rows.append(f"| `{name}` | {what} |")
    same = [f"| `{other}` | as `{name}` |" for other, name in sorted(kafka_meanings.SAME.items())]
    security = [f"| `{name}` | `tls=ottla.TLS({option}=…)` |" for name, option in kafka_security.TLS_NAMES.items()]
    rows += [f"| `security.protocol` | {', '.join(f'`{each}`' for each in kafka_security.PROTOCOLS)} |", *security]
    rows += [f"| `{name}` | `sasl=` |" for name in kafka_security.SASL_NAMES]
    rows += [f"| `{name}` | `sasl=`, of a token endpoint |" for name in kafka_security.OAUTH_NAMES]
    head = "## Every name\n"
    return "\n".join([head, "| Kafka's name | here |", "|---|---|", *rows, *same, ""])


# -- pages ------------------------------------------------------------------------------------------------------------

PAGES: dict[str, Page] = {
    "client": Page(
        "The client",
        (
            Part("sdk/client.py"),
            Part("sdk/aio.py"),
            Part("sdk/sync/__init__.py"),
            Part("sdk/client.py", ("connect",)),
            Part("sdk/client.py", ("Client",)),
            Part("sdk/consume/partitions/starts.py", ("Where",)),
        ),
    ),
    "producer": Page(
        "Producers",
        (
            Part("sdk/producer.py"),
            Part("sdk/producer.py", ("Producer", "Transaction")),
            Part("sdk/produce/records.py", ("Receipt",)),
            Part("sdk/produce/records.py", ("ProducerInterceptor", "ProducerRecord", "Timestamp")),
        ),
    ),
    "consumer": Page(
        "Consumers",
        (
            Part("sdk/consumer.py"),
            Part("sdk/consumer.py", ("Consumer", "Batch")),
            Part("codec/_loops.py", ("Record",)),
            Part("sdk/consumer.py", ("RebalanceListener", "ConsumerInterceptor")),
        ),
    ),
    "share-consumer": Page(
        "Share consumers",
        (
            Part("sdk/share_consumer.py"),
            Part("sdk/share_consumer.py", ("ShareConsumer", "SharedRecord")),
        ),
    ),
    "transform": Page(
        "Consume, transform, produce",
        (
            Part("sdk/transform.py"),
            Part("sdk/transform.py", ("Transform", "Batches", "TransformTransaction")),
        ),
    ),
    "admin": Page(
        "What administration returns",
        (
            Part("sdk/admin.py"),
            Part("sdk/admin.py", ("BrokerDescription", "TopicDescription", "PartitionDescription")),
            Part("sdk/admin.py", ("ListedOffset", "CommittedOffset")),
            Part("sdk/admin.py", ("GroupListing", "GroupDescription", "GroupMember", "GroupLag", "PartitionLag")),
            Part("sdk/admin.py", ("ShareGroupDescription", "ShareOffset")),
            Part("sdk/admin.py", ("ResetPlan", "PlannedOffset", "offsets_from_csv")),
            Part("sdk/admin.py", ("TransactionListing", "TransactionDescription", "ProducerState")),
            Part("sdk/admin.py", ("HangingTransaction", "ProducerIdAndEpoch")),
            Part("sdk/acls.py", ("AclBinding", "AclBindingFilter")),
            Part("sdk/admin.py", ("UserDescription", "ScramCredentialHash")),
            Part("sdk/events.py", ("Node",)),
            Part("sdk/consume/partitions/fetched.py", ("Fetched",)),
        ),
    ),
    "errors": Page(
        "Errors",
        (
            Part("src/ottla/errors.py"),
            Part("src/ottla/errors.py", ("OttlaError", "LocalProtocolError", "Closed", "UnknownVersion")),
            Part("src/ottla/errors.py", ("ConfigurationError", "EncodeError", "RemoteProtocolError", "DecodeError")),
            Part(
                "src/ottla/errors.py",
                ("ChecksumMismatch", "MemoryLimitExceeded", "ConnectionLost", "BrokerUnreachable"),
            ),
            Part("src/ottla/errors.py", ("AuthenticationFailed", "TimeoutExpired")),
            Part("src/ottla/errors.py", ("DeliveryTimeout", "BufferFull", "RecordTooLarge", "CommitFailed")),
            Part("src/ottla/errors.py", ("AcknowledgementFailed",)),
            Part(
                "src/ottla/errors.py",
                ("DeliveryFailed", "PartialFailure", "NoCommittedOffset", "DataLoss", "LogTruncated"),
            ),
            Part("src/ottla/errors.py", ("TransactionAborted", "TransactionOutcomeUnknown")),
            Part("src/ottla/errors.py", ("BrokerError",)),
        ),
        error_codes(),
    ),
    "security": Page(
        "TLS and SASL",
        (
            Part("src/ottla/tls.py"),
            Part("src/ottla/tls.py", ("TLS",)),
            Part("src/ottla/sasl.py"),
            Part("src/ottla/sasl.py", ("Plain", "ScramSha256", "ScramSha512", "OAuthBearer", "Token")),
            Part("src/ottla/oidc.py", ("ClientCredentials",)),
        ),
    ),
    "kafka-config": Page(
        "Kafka's configuration names",
        (
            Part("sdk/kafka_config.py"),
            Part("sdk/kafka_config.py", ("from_kafka_config", "KafkaConfig")),
        ),
        kafka_names(),
    ),
    "metrics": Page(
        "Metrics",
        (
            Part("sdk/metrics.py", ("Metric",)),
            Part("sdk/prometheus.py"),
            Part("sdk/prometheus.py", ("Collector",), brief=True),
        ),
    ),
    "partitioners": Page(
        "Partitioners",
        (
            Part("sdk/produce/partitioners.py"),
            Part("sdk/produce/partitioners.py", ("Hash", "Keyed", "Chooser", "Choice")),
        ),
    ),
    "assignors": Page(
        "Assignors",
        (
            Part("sdk/group/assignors/__init__.py"),
            Part("sdk/group/assignors/member.py", ("Assignor", "Member", "Partitions", "by_id", "by_instance")),
            Part("sdk/group/assignors/range.py", ("RangeAssignor",), brief=True),
            Part("sdk/group/assignors/round_robin.py", ("RoundRobinAssignor",), brief=True),
            Part("sdk/group/assignors/sticky.py", ("StickyAssignor", "CooperativeStickyAssignor"), brief=True),
        ),
    ),
    "testing": Page(
        "Testing",
        (
            Part("src/ottla/testing.py"),
            Part("src/ottla/testing.py", ("Broker",)),
            Part("src/ottla/pytest_plugin.py", ("ottla_broker",)),
            Part("brokerlite/config.py", ("BrokerConfig", "Sync"), meanings=True),
            Part("src/ottla/listeners.py", ("ListenerConfig", "SecurityProtocol")),
            Part("src/ottla/tls.py", ("ServerTLS",)),
            Part("src/ottla/sasl_server/settings.py", ("SaslSettings", "OAuthSettings")),
            Part("src/ottla/subject_mapping.py", ("SubjectMapping",)),
        ),
    ),
    "codec": Page(
        "The codec",
        (
            Part("codec/__init__.py"),
            Part("codec/reference.py", ("parse", "build")),
            Part("codec/wire.py", ("unknown_tags",)),
            Part("codec/message_sets.py", ("read_record_set", "Message")),
            Part("codec/records.py", ("read_batches", "read_columns", "BatchHeader", "RecordBatch", "BatchBuilder")),
            Part("codec/_loops.py", ("Appender", "Records")),
            Part("codec/columns.py", ("Columns",)),
            Part("codec/layout.py", ("BinaryColumn", "HeaderColumn")),
            Part("codec/compression.py", ("Compression",)),
            Part("codec/partitioners.py", ("PARTITIONERS",)),
        ),
    ),
}


def pages() -> dict[str, str]:
    """The text of each file of docs/reference.

    Raises:
        Undocumented: a public name has no docstring; says which.
    """
    texts = {}
    for name, page in PAGES.items():
        head = [GENERATED, f"# {page.title}\n"]
        blocks = [*head, *(block for part in page.parts for block in rendered(part)), page.table]
        texts[f"{name}.md"] = "\n".join(filter(None, blocks)).rstrip() + "\n"
    lines = [f"- [{page.title}]({name}.md)" for name, page in PAGES.items()]
    texts["README.md"] = "\n".join([GENERATED, "# Reference", "", "Every public name, page by page.", "", *lines, ""])
    return texts


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    texts = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
