"""Failed acknowledgements of which no call knows yet: the next call raises all of them as one error."""

from ottla.errors import AcknowledgementFailed


class UnreportedFailures:
    """The failed acknowledgements of one share consumer."""

    def __init__(self) -> None:
        self._failures: dict[tuple[str, int, int], AcknowledgementFailed] = {}

    def __bool__(self) -> bool:
        return bool(self._failures)

    def add(self, error: AcknowledgementFailed) -> None:
        """Have the next call raise the error."""
        self._failures.update(dict.fromkeys(error.records, error))

    def raise_all(self) -> None:
        """Raise the failures, if there are any; the caller then knows them.

        Raises:
            AcknowledgementFailed: some acknowledgements have failed.
        """
        if self._failures:
            raise self._taken()

    def note_on(self, error: BaseException | None) -> None:
        """Add the failures to the error that ends the block."""
        if error is not None and self._failures:
            error.add_note(f"ottla: {self._taken()}")

    def together(self) -> AcknowledgementFailed:
        """All failures as one error; no call knows them by that."""
        failures = self._failures
        reasons = list(dict.fromkeys(each.reason for each in failures.values()))
        more = f" (and {len(reasons) - 1} other reason(s))" if len(reasons) > 1 else ""
        records = {each: failures[each].records[each] for each in failures}
        return AcknowledgementFailed(f"{len(records)} acknowledgement(s) failed: {reasons[0]}{more}", records)

    def _taken(self) -> AcknowledgementFailed:
        failed = self.together()
        self._failures = {}
        return failed
