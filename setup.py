"""The three extensions in C, and the long description. Everything else is in `pyproject.toml`.

The extensions are optional: without a C compiler the installation succeeds, and what runs is the Python that does the
same (`codec/machine.py`, `codec/_loops.py`, `sdk/produce/_append_in_python.py`), slower. A line on stderr says so (pip
shows it with ``-v``).
"""

import re
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

EXTENSIONS = {
    "ottla.codec._machine": "codec/_machine.pyx",
    "ottla.codec._records": "codec/_records.pyx",
    "ottla.sdk.produce._append": "sdk/produce/_append.pyx",
}


class build_optional(build_ext):  # named like the commands of setuptools
    """`build_ext` that says which extensions are not there in the end, and why."""

    def run(self) -> None:
        self.failures: list[str] = []
        super().run()
        if self.failures:
            print(f"ottla runs in Python, slower than C: {'; '.join(self.failures)}", file=sys.stderr)

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:  # whatever a compiler or its absence raises; setuptools sorts it out
            # What an earlier run has left is of other sources, and must not get into a wheel.
            Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            self.failures.append(f"{ext.name} was not built ({' '.join(str(error).split()) or type(error).__name__})")
            raise


def long_description() -> str:
    """README.md for readers without the tree: links into it would be dead, and become plain text."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    return re.sub(r"\[([^\]]+)\]\((?!https?:|#)[^)]+\)", r"\1", text)


setup(
    long_description=long_description(),
    long_description_content_type="text/markdown",
    cmdclass={"build_ext": build_optional},
    ext_modules=[
        Extension(
            name,
            [source],
            depends=["setup.py"],
            extra_compile_args=["-O3", "-g0"],  # Python's own -g would make the files five times as large
            optional=True,
        )
        for name, source in EXTENSIONS.items()
    ],
)
