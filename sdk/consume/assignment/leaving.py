"""Ends a consumer's block: waits for pending commits, calls the listener, and leaves the group.

    normally                  revoked or lost, the commits, LeaveGroup                 within LEAVE_TIMEOUT
    by an error,              the commits, LeaveGroup, lost                            each within STEP_TIMEOUT,
    or a cancellation                                                                  shielded

Rules:
- The listener's `revoked` is called if the member still owns its partitions, `lost` if it has lost them: another member
  may have them already.
- An error that ends the block is raised unchanged; whatever could not be done is added to it as a note.
- Pending commits are not dropped when `revoked` raises, or when the end of the block is cancelled.
- If the client is left before its consumer, the consumer commits and leaves the group with it, within a moment. The end
  of the block reports what was not committed.
- LeaveGroup needs the group's coordinator, which is looked up within the same deadline. If that fails, the group waits
  until the session times out, but no record is lost: the log gets a line, and no error is raised.

Source: ConsumerCoordinator.java, close and onLeavePrepare.
"""

from collections.abc import Callable, Iterator

from ottla.errors import OttlaError, TimeoutExpired
from ottla.sdk.consume.assignment.committing import Committing
from ottla.sdk.consume.assignment.notices import Notices
from ottla.sdk.core import ClientCore
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.membership import Membership
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, T
from ottla.sdk.steps import Shielded, Steps

log = logger("ottla.sdk.consumer")

LEAVE_TIMEOUT = 30.0
"""Seconds to call the listener, commit and leave the group when the block ends normally; the same as Java's."""
STEP_TIMEOUT = 0.75
"""Seconds for each step when an error or a cancellation ends the block: to commit, to leave the group, to call `lost`.
At a normal end, LeaveGroup has at least as long."""
CLOSED = "the consumer was closed"


class Leaving:
    """Runs the end of one consumer's block.

    Args:
        explain: returns lines for people about the consumer's waits.
    """

    def __init__(
        self,
        core: ClientCore,
        committing: Committing,
        commits: Commits | None,
        membership: Membership | None,
        notices: Notices,
        explain: Callable[[float], Iterator[str]],
    ) -> None:
        self._core, self._committing, self._commits = core, committing, commits
        self._membership, self._notices, self._explain = membership, notices, explain
        self._failed: OttlaError | None = None
        """Why not everything was committed when the client was left; raised when the block is."""

    def leave(self, error: BaseException | None, *, within_listener: bool = False) -> Steps[None]:
        """End the block.

        Args:
            error: the error or cancellation that ends the block; ``None``: it ends normally.
            within_listener: a method of the listener ends it, so its end cannot be waited for.

        Raises:
            CommitFailed, TimeoutExpired: the block ended normally, but some of the work failed.
        """
        if self._core.closed is not None:
            yield from self._lost(error)
            self._report_failure(error)
            return
        self._committing.end(self._core.now)
        if error is None:
            try:
                yield from self._normally(within_listener=within_listener)
                return
            except Exception:
                raise
            except GeneratorExit:  # no driver resumes these steps any more
                raise
            except BaseException as cancelled:
                yield from self._at_once(cancelled)
                raise
        yield from self._at_once(error)

    def with_client(self, why: str, until: float) -> Steps[None]:
        """Commit and leave the group by the time ``until``, because the client is left before the block."""
        self._committing.end(self._core.now)
        self._failed = yield from self._commit((self._core.now + until) / 2)
        if self._membership is not None:
            yield from self._until(self._membership.close(why, self._core.now, until), until)

    def _report_failure(self, error: BaseException | None) -> None:
        """Report the offsets that were not committed because the client was left first."""
        failed = self._failed or (None if self._commits is None else self._commits.take_failure())
        if failed is not None and error is None:
            raise failed
        if failed is not None and error is not None:
            error.add_note(f"ottla: {failed}")

    # -- normally ----------------------------------------------------------------------------------------------------

    def _normally(self, *, within_listener: bool) -> Steps[None]:
        """Give up all owned partitions, as if a rebalance revoked them."""
        limit = min(LEAVE_TIMEOUT, self._core.options.api_timeout)
        deadline = self._core.now + limit
        raised: Exception | None = None
        stuck = ""
        if not within_listener:
            yield from self._until(self._notices.returned, self._core.now + limit / 2)
        notify = self._notices.lost if self._notices.gone else self._notices.revoked
        try:
            stuck = yield from notify(self._notices.known, deadline - self._core.now)
        except Exception as error:  # the listener's own error; raised below, after the commits
            raised = error
        failed = yield from self._commit(deadline)
        waits = list(self._explain(self._core.now))
        yield from self._say_good_bye(max(deadline, self._core.now + STEP_TIMEOUT))
        if raised is not None:
            if failed is not None:
                raised.add_note(f"ottla: {failed}")
            raise raised
        if stuck or isinstance(failed, TimeoutExpired):
            unfinished = [str(failed)] if failed is not None else []
            unfinished += [f"your listener's {stuck} has not returned"] if stuck else []
            why = "; ".join([*unfinished, *waits])
            raise TimeoutExpired(f"the consumer could not finish within {limit:g} s: {why}")
        if failed is not None:
            raise failed

    def _commit(self, deadline: float) -> Steps[OttlaError | None]:
        """Wait for pending commits; return the error if not all of them succeed."""
        commits = self._commits
        if commits is None:
            return None
        settled = commits.settled(self._core.now)
        yield from self._until(settled, deadline)
        if not settled.done:
            settled.cancel()
            return TimeoutExpired(self._committing.uncommitted)
        return settled.error or commits.take_failure()

    def _say_good_bye(self, deadline: float) -> Steps[None]:
        if self._membership is not None:
            yield from self._until(self._membership.close(CLOSED, self._core.now, deadline), deadline)

    def _until(self, outcome: Outcome[T], deadline: float) -> Steps[None]:
        """Wait for an outcome until the deadline at most."""
        if not outcome.done:
            yield self._core.bounded(outcome, deadline)

    # -- by an error -------------------------------------------------------------------------------------------------

    def _at_once(self, error: BaseException) -> Steps[None]:
        """Commit, leave the group and call `lost`, shielded from cancellation: `STEP_TIMEOUT` is short."""
        yield from self._commit_at_once(error)
        yield from self._say_good_bye_at_once()
        yield from self._lost(error)

    def _commit_at_once(self, error: BaseException) -> Steps[None]:
        commits = self._commits
        if commits is None:
            return
        settled = commits.settled(self._core.now)
        if not settled.done:
            yield Shielded(self._core.bounded(settled, self._core.now + STEP_TIMEOUT))
        if not settled.done:
            settled.cancel()
            why = self._committing.uncommitted
            log.error(
                "commits abandoned: the consumer's block ended before they were acknowledged",
                extra={"group": commits.group, "why": why},
            )
            error.add_note(f"ottla: {why}")
        elif (failed := settled.error or commits.take_failure()) is not None:
            error.add_note(f"ottla: {failed}")

    def _say_good_bye_at_once(self) -> Steps[None]:
        if self._membership is not None:
            deadline = self._core.now + STEP_TIMEOUT
            left = self._membership.close(CLOSED, self._core.now, deadline)
            if not left.done:
                yield Shielded(self._core.bounded(left, deadline))

    def _lost(self, error: BaseException | None) -> Steps[None]:
        try:
            stuck = yield from self._notices.lost(self._notices.known, STEP_TIMEOUT, shield=True)
            if stuck:
                what = f"your listener's {stuck} has not returned"
                log.error("listener did not return before the consumer's block ended", extra={"why": what})
                if error is not None:
                    error.add_note(f"ottla: {what}")
        except Exception as raised:  # the error that ends the block matters more
            log.exception("a listener raised while another error ended its consumer's block")
            if error is None:
                raise
            error.add_note(f"ottla: your listener's `lost` raised {raised!r}")
