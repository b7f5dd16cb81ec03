"""How long tests wait before they call something hung: the only such figures of all tests.

They say nothing about speed. A test passes as soon as the expected event happens, so that a large figure costs
nothing; a small one fails on a machine that is busy with other programs.
"""

HUNG = 120.0
"""Seconds without the expected outcome: of a task, a thread, a connection, a subprocess."""
WHOLE = 5 * HUNG
"""Seconds that a whole slow test may take: its peers start in it. Tests that need more say so."""
FAR = 10 * HUNG
"""A timeout that no test lives to see: code that is done within `HUNG` has not waited for it. That proves "at once" on
any machine, where an upper bound in seconds does not."""
