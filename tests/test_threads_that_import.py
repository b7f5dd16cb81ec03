"""Two threads may use ottla for the first time at once."""

import subprocess
import sys

import pytest

from tests.patience import HUNG

MEET = """
import importlib, sys, threading

package, first, second = sys.argv[1:]
HUNG, errors = float(sys.stdin.read()), []
within_first, within_second = threading.Event(), threading.Event()

def meet(event, arguments):
    # The first thread waits, within the first import of its module, until the second is within one of its own.
    if event == "import" and arguments[0].startswith(package + ".") and arguments[0] not in (first, second):
        if threading.current_thread() is one:
            within_first.set()
            within_second.wait(HUNG)
        else:
            within_second.set()

def use(name, ended):
    try:
        importlib.import_module(name)
    except BaseException as error:
        errors.append(f"{name}: {error!r}")
    ended.set()

importlib.import_module(package.rpartition(".")[0])
one = threading.Thread(target=use, args=(first, within_first))
two = threading.Thread(target=use, args=(second, within_second))
sys.addaudithook(meet)
one.start()
within_first.wait(HUNG)
two.start()
one.join()
two.join()
print(errors or "done")
"""


@pytest.mark.parametrize(
    ("package", "first", "second"),
    [
        ("ottla.codec", "ottla.codec.records", "ottla.codec.message_sets"),
        ("ottla.sdk.calls", "ottla.sdk.calls.task", "ottla.sdk.calls.reads"),
    ],
)
def test_two_modules_of_a_package_at_once(package: str, first: str, second: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEET, package, first, second],
        input=str(HUNG),
        capture_output=True,
        text=True,
        timeout=3 * HUNG,
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
