"""``python -m ottla`` is the program `ottla`."""

from ottla.cli import main

main()
