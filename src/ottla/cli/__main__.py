"""``python -m ottla.cli`` is `ottla`, for systems where the program is not on the PATH."""

from ottla.cli import main

main()
