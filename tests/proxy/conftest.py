"""Fixtures of the proxy's tests."""

from tests.steps import no_step_holds_the_loop  # noqa: F401 # it watches each test here
