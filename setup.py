"""The codec's two extensions in C. Everything else is in `pyproject.toml`.

They are optional: without a C compiler the installation succeeds, and what runs is the Python that does the same
(`codec/machine.py`, `codec/_loops.py`), slower.
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"ottla.codec.{name}",
            [f"codec/{name}.pyx"],
            depends=["setup.py"],
            extra_compile_args=["-O3", "-g0"],  # Python's own -g would make the files five times as large
            optional=True,
        )
        for name in ("_machine", "_records")
    ]
)
