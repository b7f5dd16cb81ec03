"""Run the gates of the Makefile named as arguments, one after the other, and print what each took.

Stops at the first gate that fails and exits with its code; the table is printed either way.
"""

import subprocess
import sys
import time


def main(gates: list[str]) -> int:
    """Run ``make <gate>`` for each of ``gates``; returns the exit code of the first that failed, or 0."""
    rows: list[str] = []
    code = 0
    for gate in gates:
        if code:
            rows.append(f"  {gate:<10} {'-':>7}  not run")
            continue
        print(f"\n── {gate} ──", flush=True)
        start = time.monotonic()
        code = subprocess.run(["make", "--no-print-directory", gate]).returncode
        rows.append(f"  {gate:<10} {(time.monotonic() - start) / 60:7.2f}  {'FAILED' if code else 'ok'}")
    print("\n  gate       minutes", *rows, sep="\n", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
