"""How long tests wait before they call something hung: the one such figure of all tests.

It says nothing about how fast anything is. A test passes as soon as what it waits for has happened, so that a large
figure costs nothing; a small one fails on a machine that is busy with something else.
"""

HUNG = 120.0
"""Seconds without the outcome that is waited for: of a task, a thread, a connection, a subprocess."""
