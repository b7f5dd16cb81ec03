"""Items as text."""

from collections.abc import Callable
from typing import Any

from ottla.codec.dump.items import BROKEN, Item
from ottla.codec.dump.readable import bytes_text, lines, one_line, printable, quoted, scalar, time_text


def text(item: Item, *, full: bool = False) -> str:
    """Return an item as text, in one line or several.

    Args:
        full: do not shorten long strings and bytes.
    """
    return printable(_WRITERS.get(item.kind, _other)(item, full))


def _batch(item: Item, full: bool) -> str:
    batch = item.fields
    parts = [f"offsets {batch['base_offset']}-{batch['last_offset']}"]
    if "count" in batch:
        parts.append(f"{batch['count']} record{'s' * (batch['count'] != 1)}")
    parts.append(f"{batch['size']} bytes")
    if batch["magic"] < 2:
        parts.append(f"magic {batch['magic']}")
    if batch["compression"] != "none":
        parts.append(str(batch["compression"]))
    if "timestamp_type" in batch:
        parts.append(f"{batch['timestamp_type']} {time_text(batch['max_timestamp'])}")
    if batch.get("partition_leader_epoch", -1) >= 0:
        parts.append(f"leader epoch {batch['partition_leader_epoch']}")
    if batch.get("producer_id", -1) >= 0:
        parts.append(f"producer {batch['producer_id']} epoch {batch['producer_epoch']}")
        if batch["base_sequence"] >= 0:
            parts.append(f"sequences {batch['base_sequence']}-{batch['last_sequence']}")
    parts += [flag for flag in ("transactional", "control") if batch.get(flag)]
    if "delete_horizon" in batch:
        parts.append(f"delete horizon {time_text(batch['delete_horizon'])}")
    if not batch["crc_matches"]:
        parts.append("CRC WRONG")
    return f"batch at {batch['at']}: {', '.join(parts)}"


def _record(item: Item, full: bool) -> str:
    record = item.fields
    lead = f"  {record['offset']} "
    if record["timestamp"] >= 0:
        lead += f" {time_text(record['timestamp'])} "
    headers = (
        f"  headers [{', '.join([_header(each, full) for each in record['headers']])}]" if record["headers"] else ""
    )
    if "type" not in record:
        key, value = record["key"], record["value"]
        shown = "null" if value is None else bytes_text(value, full=full)
        return f"{lead} {'' if key is None else f'{bytes_text(key, full=full)} → '}{shown}{headers}"
    lead += f" {record['type']}"
    if "key" in record:
        lead += f" {one_line(record['key'], full=full)} →"
    if record["value"] is None:
        return f"{lead} null{headers}"
    lead += f" v{record['version']}"
    if (short := one_line(record["value"], full=full)) is not None:
        return f"{lead} {short}{headers}"
    return "\n".join((f"{lead}{headers}", *lines(record["value"], "      ", full=full)))


def _header(header: dict[str, Any], full: bool) -> str:
    name, value = header["key"], header["value"]
    return f"{quoted(name, full=full)}: {'null' if value is None else bytes_text(value, full=full)}"


def _entry(item: Item, full: bool) -> str:
    entry = item.fields
    if "producer_id" in entry:
        return (
            f"aborted: producer {entry['producer_id']}, offsets {entry['first_offset']}-{entry['last_offset']}, "
            f"last stable offset {entry['last_stable_offset']}"
        )
    offset = f"offset {entry['offset']}" if "offset" in entry else f"relative offset {entry['relative_offset']}"
    if "timestamp" in entry:
        return f"{time_text(entry['timestamp'])}  {offset}"
    return f"{offset}  at byte {entry['position']}"


def _frame(item: Item, full: bool) -> str:
    frame = item.fields
    head = (
        f"{item.kind} at {frame['at']}: {frame['api']} (key {frame['api_key']}) v{frame['api_version']}, "
        f"correlation id {frame['correlation_id']}"
    )
    if "client_id" in frame:
        head += f", client id {scalar(frame['client_id'])}"
    head += f", {frame['size']} bytes"
    rest: dict[str, Any] = {name: frame[name] for name in ("unknown_tags", "leftover") if name in frame}
    if not isinstance(frame["message"], dict):  # the API or its version is unknown
        rest = {"message": frame["message"], **rest}
        return "\n".join((f"{head}, not known", *lines(rest, "  ", full=full)))
    return "\n".join((head, *lines({**frame["message"], **rest}, "  ", full=full)))


def _unused(item: Item, full: bool) -> str:
    return f"unused from {item.fields['at']} on: {item.fields['size']} zero bytes"


def _snapshot(item: Item, full: bool) -> str:
    return f"snapshot of {item.fields['producers']} producer{'s' * (item.fields['producers'] != 1)}"


def _leader_epoch(item: Item, full: bool) -> str:
    return f"epoch {item.fields['epoch']} from offset {item.fields['start_offset']} on"


def _offset(item: Item, full: bool) -> str:
    return f"{item.fields['topic']}-{item.fields['partition']}: {item.fields['offset']}"


def _properties(item: Item, full: bool) -> str:
    return "\n".join(f"{name}={value}" for name, value in item.fields["properties"].items())


def _other(item: Item, full: bool) -> str:
    return "\n".join(f"{name}: {value}" for name, value in item.fields.items())


def _producer(item: Item, full: bool) -> str:
    return "  " + ", ".join(f"{name} {scalar(value)}" for name, value in item.fields.items())


def _broken(item: Item, full: bool) -> str:
    damage = item.fields
    digits = damage["bytes"].split()
    mark = damage["first_broken"]
    digits[mark : mark + 1] = [f"[{digits[mark] if mark < len(digits) else 'end'}]"]
    where = f"{damage['at']} (0x{damage['at']:x})"
    # A checksum shows that bytes have changed, and not which.
    first = {"first broken byte": where}
    if damage["path"].endswith(".crc"):
        first = {"wrong checksum": f"at byte {where}: any byte that it covers may be wrong"}
    report = {
        **first,
        "within": damage["within"],
        "field": damage["path"],
        "problem": damage["reason"],
        f"bytes from {damage['bytes_from']} on{f' of {of}' if (of := damage.get('bytes_of')) else ''}": " ".join(
            digits
        ),
        "the rest": damage.get("rest", ""),
    }
    return "\n".join(f"  {name}: {value}" for name, value in report.items() if value)


_WRITERS: dict[str, Callable[[Item, bool], str]] = {
    "batch": _batch,
    "record": _record,
    "entry": _entry,
    "request": _frame,
    "response": _frame,
    "unused": _unused,
    "snapshot": _snapshot,
    "producer": _producer,
    "leader_epoch": _leader_epoch,
    "offset": _offset,
    "properties": _properties,
    BROKEN: _broken,
}
