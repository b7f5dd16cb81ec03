"""The fuzzer: ``python -m tests.fuzz run --seconds 60``, ``… replay``, ``… pack``.

Theory of operation. libFuzzer, which atheris runs, mutates inputs at random and keeps inputs that reach new code in the
Python codec. To measure this, the codec is instrumented at its import, and so is the code that `machine` generates.
Each input is also given to a copy of the codec in C, to interpreted construct and to the declaration of a record. All
must give the same result, down to the wording of an error (`exercises`).

Inputs that fail are stored below ``found/``, and `test_found.py` replays them from then on. Inputs that reached new
code are in ``build/fuzz/``. ``pack`` adds them to the corpus of the repository, and drops the inputs that reach only
code which others reach too. ``replay`` needs no atheris, so it can run the whole corpus against C code that is built
with sanitizers (`test_sanitized.py`).
"""

import argparse
import contextlib
import importlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.fuzz import codecs, inputs
from tests.fuzz.exercises import Failure
from tests.fuzz.inputs import Choice, Input

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "fuzz"
REACHED = WORK / "reached.jsonl.gz"
"""The inputs that reached new code since the corpus was packed."""
SLOW = 10
"""An input that takes more seconds than this fails."""
COMMAND = [sys.executable, "-m", "tests.fuzz", "libfuzzer"]
Copies = tuple[codecs.Codec, codecs.Codec]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="A fuzzer of the codec.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="look for inputs that fail")
    run.add_argument("--seconds", type=int, default=60)
    run.add_argument("--seed", type=int, default=0, help="random seed; 0 chooses another one for each run")
    again = commands.add_parser("replay", help="run every stored input again: found, corpus, reached")
    again.add_argument("--found", action="store_true", help="only the inputs that failed once")
    commands.add_parser("pack", help="add the inputs that reached new code to the corpus")
    commands.add_parser("libfuzzer", help="internal: run and pack start it").add_argument("flags", nargs="*")
    chosen, flags = parser.parse_known_args()
    match chosen.command:
        case "run":
            return fuzz(chosen.seconds, chosen.seed)
        case "replay":
            return replay(inputs.found() if chosen.found else everything())
        case "pack":
            return pack()
    return libfuzzer([*flags, *chosen.flags])


# ---------------------------------------------------------------------------------------------------------------------
# Trying inputs.


def compare(copies: Copies, given: Input) -> None:
    """Fail unless both copies give the same result for an input."""
    python, c = (inputs.exercised(copy, given) for copy in copies)
    if python != c:
        raise Failure(f"the engines differ: in Python {python!r:.400}, in C {c!r:.400}")


def replay(given: Iterable[Input]) -> int:
    """Try each input, and print the failed ones. Returns 1 if any fails."""
    copies = codecs.load()
    choice = Choice(copies[0])
    start = time.monotonic()
    count = failed = 0
    for each in given:
        if each.name not in choice:
            continue  # the input is for a message that is no longer declared
        count += 1
        try:
            compare(copies, each)
        except Exception as error:  # any exception is a finding
            failed += 1
            print(f"{each.path.relative_to(ROOT)}: {error!r:.1000}")
    print(f"{count} inputs in {time.monotonic() - start:.1f} s, {failed} failed")
    return int(failed > 0)


def everything() -> Iterable[Input]:
    """All stored inputs: the failed ones, the corpus, and inputs that reached new code since it was packed."""
    yield from inputs.found()
    for corpus in (inputs.CORPUS, REACHED):
        yield from inputs.packed(corpus)


# ---------------------------------------------------------------------------------------------------------------------
# Looking for inputs. libFuzzer ends its process when it is done, so it gets one of its own.


def fuzz(seconds: int, seed: int) -> int:
    """Look for inputs that fail, and store them. Returns libFuzzer's exit code: 0 if none failed."""
    choice = _prepared(new=False)
    code = _start(max_total_time=seconds, seed=seed, print_final_stats=1)
    inputs.pack([*inputs.packed(REACHED), *_reached(choice)], REACHED)
    return code


def pack() -> int:
    """Rebuild the corpus from its own inputs, the seeds and the inputs that reached new code."""
    choice = _prepared(new=True)
    if (code := _start(merge=1)) == 0:
        inputs.pack(list(_reached(choice)), inputs.CORPUS)
        REACHED.unlink(missing_ok=True)
    return code


def _prepared(*, new: bool) -> Choice:
    """Write the inputs that libFuzzer starts from: all stored ones, and with ``new`` the seeds too."""
    from tests.fuzz.seeds import seeds

    _, c = codecs.load()
    choice = Choice(c)
    shutil.rmtree(WORK / "seeds", ignore_errors=True)
    shutil.rmtree(WORK / "reached", ignore_errors=True)
    (WORK / "reached").mkdir(parents=True)
    (WORK / "seeds").mkdir()
    for number, each in enumerate({*(seeds(c) if new else ()), *everything()}):
        if each.name in choice:
            (WORK / "seeds" / str(number)).write_bytes(choice.raw(each))
    return choice


def _reached(choice: Choice) -> Iterable[Input]:
    for path in (WORK / "reached").iterdir():
        if (given := choice.chosen(path.read_bytes())) is not None:
            yield given


def _start(**flags: int) -> int:
    options = {"max_len": inputs.LONGEST + 2, "timeout": SLOW, "rss_limit_mb": 2048, **flags}
    arguments = [f"-{name}={value}" for name, value in options.items()]
    command = [*COMMAND, *arguments, str(WORK / "reached"), str(WORK / "seeds")]
    return subprocess.run(command, cwd=ROOT).returncode


def libfuzzer(arguments: list[str]) -> int:
    """Run libFuzzer in this process, which it ends."""
    atheris = importlib.import_module("atheris")  # needed only here, and not available for every platform
    with atheris.instrument_imports(include=[codecs.PACKAGE]):
        copies = codecs.load()
    instrument(copies[0].machine, atheris)
    choice = Choice(copies[0])

    def one(raw: bytes) -> None:
        if (given := choice.chosen(raw)) is None:
            return
        try:
            compare(copies, given)
        except BaseException:
            given.path.parent.mkdir(parents=True, exist_ok=True)
            given.path.write_bytes(given.data)
            print(f"\nfound: {given.path.relative_to(ROOT)}", flush=True)
            raise

    # The first argument is the program; libFuzzer passes it to a shell when it restarts itself.
    atheris.Setup([" ".join(COMMAND), f"-artifact_prefix={WORK}/", *arguments], one)
    atheris.Fuzz()
    return 0


def instrument(machine: Any, atheris: Any) -> None:
    """Make the code that the machine generates report its blocks to libFuzzer."""
    block = machine._GeneratedCode.block

    @contextlib.contextmanager
    def told(source: Any, head: str) -> Iterator[None]:
        with block(source, head):
            source(f"atheris._trace_branch({atheris._reserve_counter()})")
            yield

    machine._GeneratedCode.block = told
    machine._SHARED["atheris"] = atheris  # the module, because its `_trace_branch` is replaced once libFuzzer runs


if __name__ == "__main__":
    sys.exit(main())
