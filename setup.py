"""The codec's two extensions in C. Everything else is in `pyproject.toml`.

They are optional: without a C compiler the installation succeeds, and what runs is the Python that does the same
(`codec/machine.py`, `codec/_loops.py`), slower. A line on stderr says so (pip shows it with ``-v``).
"""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


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


setup(
    cmdclass={"build_ext": build_optional},
    ext_modules=[
        Extension(
            f"ottla.codec.{name}",
            [f"codec/{name}.pyx"],
            depends=["setup.py"],
            extra_compile_args=["-O3", "-g0"],  # Python's own -g would make the files five times as large
            optional=True,
        )
        for name in ("_machine", "_records")
    ],
)
