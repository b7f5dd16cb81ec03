"""How a consumer's block is left: what was asked for is committed, the listener is notified, and the group is left.

    normally                  lost or revoked, the commits, LeaveGroup                 within LEAVE_TIMEOUT
    by an error,              the commits (half), LeaveGroup (half), lost (half)       of CLOSE_TIMEOUT, shielded
    or a cancellation

Rules:
- `revoked` is what the member still owns. What it has lost already may be somebody else's: that is `lost`.
- The error by which the block is left stays what it is: what could not be done becomes a note of it.
- A `revoked` that raises, or a block that is cancelled while it is left, drops no commit that was asked for.
- LeaveGroup needs the group's coordinator, which is looked up within the same bounds. Where that fails, the group
  has to wait for the end of the session, but nobody loses a record: it is a line in the log, and no error.

Source: ConsumerCoordinator.java, close and onLeavePrepare.
"""

from collections.abc import Callable, Iterator

from ottla.errors import OttlaError, TimeoutExpired
from ottla.sdk.consume.committing import Committing
from ottla.sdk.consume.notices import Notices
from ottla.sdk.core import ClientCore
from ottla.sdk.group.commits import Commits
from ottla.sdk.group.membership import Membership
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome, T
from ottla.sdk.steps import Shielded, Steps

log = logger("ottla.sdk.consumer")

LEAVE_TIMEOUT = 30.0
"""Seconds to commit and to leave the group when the block is left normally, listener included: Java's."""
CLOSE_TIMEOUT = 1.5
"""Seconds to commit and to leave the group when the block is left by an error or a cancellation."""
CLOSED = "the consumer was closed"


class Leaving:
    """The end of one consumer.

    Args:
        explain: what the consumer waits for, in lines for people.
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

    def leave(self, error: BaseException | None) -> Steps[None]:
        """Args:
            error: what the block is left by.

        Raises:
            CommitFailed, TimeoutExpired: of a block that is left normally, what could not be done.
        """
        if self._core.closed is not None:
            yield from self._lost(error)
            return
        self._committing.end(self._core.now)
        if error is None:
            try:
                yield from self._normally()
                return
            except Exception:
                raise
            except GeneratorExit:  # nobody drives this any more
                raise
            except BaseException as cancelled:
                yield from self._at_once(cancelled)
                raise
        yield from self._at_once(error)

    # -- normally ----------------------------------------------------------------------------------------------------

    def _normally(self) -> Steps[None]:
        """As if everything that is still owned were revoked."""
        limit = min(LEAVE_TIMEOUT, self._core.options.api_timeout)
        deadline = self._core.now + limit
        raised: Exception | None = None
        stuck = ""
        notify = self._notices.lost if self._notices.gone else self._notices.revoked
        try:
            stuck = yield from notify(self._notices.known, limit)
        except Exception as error:  # the listener's own, which waits until what was asked for is committed
            raised = error
        failed = yield from self._commit(deadline)
        waits = list(self._explain(self._core.now))
        yield from self._say_good_bye(max(deadline, self._core.now + CLOSE_TIMEOUT / 2))
        if raised is not None:
            if failed is not None:
                raised.add_note(f"ottla: {failed}")
            raise raised
        if stuck or isinstance(failed, TimeoutExpired):
            unfinished = [str(failed)] if failed is not None else []
            unfinished += [f"{stuck} of your listener has not returned"] if stuck else []
            why = "; ".join([*unfinished, *waits])
            raise TimeoutExpired(f"the consumer could not finish within {limit:g} s: {why}")
        if failed is not None:
            raise failed

    def _commit(self, deadline: float) -> Steps[OttlaError | None]:
        """Wait for what is to be committed; what became of it, if that is not all."""
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
        """Wait for an outcome, but not longer."""
        if not outcome.done:
            yield self._first(outcome, deadline)

    def _first(self, outcome: Outcome[T], deadline: float) -> Outcome[None]:
        """Settled once ``outcome`` is, or at the deadline."""
        first: Outcome[None] = Outcome()

        def end(now: float = 0.0) -> None:
            first.succeed(None)

        outcome.when_done(end)
        first.when_done(self._core.later(deadline, end).cancel)
        first.when_done(lambda: outcome.forget(end))
        return first

    # -- by an error -------------------------------------------------------------------------------------------------

    def _at_once(self, error: BaseException) -> Steps[None]:
        """Shielded: a cancellation that comes meanwhile has nothing to end, as the bound is short."""
        yield from self._commit_at_once(error)
        yield from self._say_good_bye_at_once()
        yield from self._lost(error)

    def _commit_at_once(self, error: BaseException) -> Steps[None]:
        commits = self._commits
        if commits is None:
            return
        settled = commits.settled(self._core.now)
        if not settled.done:
            yield Shielded(self._first(settled, self._core.now + CLOSE_TIMEOUT / 2))
        if not settled.done:
            settled.cancel()
            why = self._committing.uncommitted
            log.error("commits are given up, because the consumer was left", extra={"why": why})
            error.add_note(f"ottla: {why}")
        elif (failed := settled.error or commits.take_failure()) is not None:
            error.add_note(f"ottla: {failed}")

    def _say_good_bye_at_once(self) -> Steps[None]:
        if self._membership is not None:
            deadline = self._core.now + CLOSE_TIMEOUT / 2
            left = self._membership.close(CLOSED, self._core.now, deadline)
            if not left.done:
                yield Shielded(self._first(left, deadline))

    def _lost(self, error: BaseException | None) -> Steps[None]:
        try:
            stuck = yield from self._notices.lost(self._notices.known, CLOSE_TIMEOUT / 2, shield=True)
            if stuck:
                what = f"{stuck} of your listener has not returned"
                log.error("a listener is given up, because its consumer was left", extra={"why": what})
                if error is not None:
                    error.add_note(f"ottla: {what}")
        except Exception as raised:  # what the block is left by matters more
            log.exception("a listener raised while its consumer was left by another error")
            if error is None:
                raise
            error.add_note(f"ottla: `lost` of your listener raised {raised!r}")
