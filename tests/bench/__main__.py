"""``make bench``: ours against others' on the same data, in the same run; the ratio is what counts.

A case is a pair of functions that do the same work and return how many records (or messages) they handled. Rounds of
the two alternate, so that a machine that slows down slows both; the best round of each counts, because noise only adds.
"""

import sys
import time
from collections.abc import Callable

from tests.bench import records
from tests.bench.case import Case

ROUNDS = 7
CASES: list[Case] = [*records.CASES]


def per_second(work: Callable[[], int]) -> float:
    start = time.perf_counter()
    handled = work()
    return handled / (time.perf_counter() - start)


def main(wanted: list[str]) -> None:
    """Run the cases whose name contains one of ``wanted``; all without any."""
    print(f"{'':<44}{'ours/s':>14}{'theirs/s':>14}{'ratio':>9}  theirs")
    for case in CASES:
        if wanted and not any(word in case.name for word in wanted):
            continue
        rounds = [(per_second(case.ours), per_second(case.theirs)) for _ in range(ROUNDS)]
        ours, theirs = (max(rates) for rates in zip(*rounds, strict=True))
        print(f"{case.name:<44}{ours:>14,.0f}{theirs:>14,.0f}{ours / theirs:>9.2f}  {case.peer}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
