"""The processes of this machine. Linux only."""

import contextlib
from pathlib import Path


def processes() -> dict[int, tuple[int, str]]:
    """Every running process: its parent and its command line, which need not be text: some are other people's."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has just ended
            state, parent, *_ = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if state != "Z":
                found[int(path.name)] = int(parent), (path / "cmdline").read_text(errors="replace").replace("\0", " ")
    return found


def below(pids: set[int]) -> dict[int, tuple[int, str]]:
    """The descendants of processes."""
    everything, known = processes(), set(pids)
    while more := {pid for pid, (parent, _) in everything.items() if parent in known} - known:
        known |= more
    return {pid: everything[pid] for pid in known - pids}
