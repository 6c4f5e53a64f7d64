"""The transaction in which an attempt ends."""

from enum import Enum
from types import TracebackType
from typing import Final

from django.db import DataError, Error, IntegrityError, ProgrammingError, transaction

from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.flow.attempt import Attempt
from django_idempotency.signals import logger
from django_idempotency.store import limits
from django_idempotency.store.continuity import Continuity, RolledBack
from django_idempotency.store.dialects import dialect_of

# The server itself refused, as a deferred constraint does at COMMIT: the transaction was rolled back for certain.
REFUSED_BY_SERVER: Final = (IntegrityError, DataError, ProgrammingError)


_NESTED: Final = "A durable atomic block cannot be nested"  # how Django's RuntimeError begins
_WAY_OUT: Final = (
    "This code runs in the transaction that stores the result. Set mode='leased', transaction='late', so that it opens "
    "its own transactions outside `finish`, or remove durable=True."
)


def is_nested_durable(error: BaseException | None) -> bool:
    """True if Django refused to open a durable transaction inside another one, as it does each time."""
    return isinstance(error, RuntimeError) and str(error).startswith(_NESTED)


class Uncertain(Exception):
    """The store failed while the end of an attempt was being written; `result` is what would have been returned."""

    def __init__(self, result: object) -> None:
        self.result = result


class Completion:
    """The transaction that ends an attempt.

    WORKING: the project's code runs, without a time limit. STORING, from `store` to the end of the COMMIT: the store
    has a time limit, and if it fails the outcome is uncertain. ANSWERED: nothing was written, and whether the COMMIT
    succeeds does not matter. COMMITTED: the project's on_commit hooks run, without a limit; if one fails, the stored
    response stands.
    """

    State = Enum("State", "WORKING STORING ANSWERED COMMITTED")

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.state = self.State.WORKING
        self.result: object = None
        self._limit: limits.limited | None = None
        self._continuity: Continuity | None = None
        self._connection: object = None  # the driver's
        self.has_begun = False
        self.closed_inside = False  # the project's code closed the connection, which is its own error
        self.commit_was_sent = False

    def __enter__(self) -> "Completion":
        using = self.attempt.using
        self._database = limits.connect(using, self.attempt.limit)
        self._connection = self._database.connection
        in_test_case = limits.inside_test_case(using)  # whose transaction is never committed
        self._transaction = transaction.atomic(using=using)
        try:
            self._transaction.__enter__()
        except Error as error:
            raise StoreUnavailable from error
        self.has_begun = True
        if not in_test_case:
            transaction.on_commit(self._note_commit, using=using)
        return self

    def begin_work(self) -> None:
        """Call this before the project's code runs: from here on, this transaction must not be replaced by another."""
        if dialect_of(self.attempt.using).continues_after_deadlock:
            self._continuity = Continuity(self.attempt.using)
            try:
                self._continuity.__enter__()
            except Error as error:
                self.has_begun = False
                raise StoreUnavailable from error

    def store(self, result: object) -> None:
        """From here on, only the store is at work. Raise unless the transaction is the one that began."""
        if self._database.closed_in_transaction:
            raise transaction.TransactionManagementError(limits.CLOSED_INSIDE)
        if self._continuity is not None:
            self._continuity.check()
        self.result = result
        self.state = self.State.STORING
        self._begin_limit()
        if self._continuity is not None:
            self._continuity.prove()

    def answer(self) -> None:
        """From here on, only a COMMIT without writes is left to do."""
        self.state = self.State.ANSWERED
        self._begin_limit()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        failure = error
        self.commit_was_sent = error is None
        self.closed_inside = self._database.closed_in_transaction
        if self.closed_inside and isinstance(error, Error):
            error.add_note(limits.CLOSED_INSIDE)
        if error is not None and is_nested_durable(error):
            error.add_note(_WAY_OUT)
        try:
            if self._continuity is not None:
                self._continuity.__exit__(kind, error, traceback)
        except RolledBack as rolled_back:
            failure = rolled_back
        try:
            self._transaction.__exit__(kind, error, traceback)
        except Exception as raised:  # noqa: BLE001 - explained below
            if error is None or not isinstance(raised, Error):
                failure = raised
            else:  # without a COMMIT the writes are rolled back, and what the project's code raised stands
                logger.warning("The connection was lost during a rollback: %s", raised)
                limits.drop_broken(self.attempt.using)
        finally:
            self._end_limit()
        return isinstance(failure, Exception) and self._explain(failure, error)

    def may_run_again(self, error: BaseException) -> bool:
        """True after a deadlock, or if the connection was lost before the COMMIT was sent: nothing was committed."""
        limits.drop_broken(self.attempt.using)
        was_connected = self._connection is not None
        return limits.may_repeat(error) or (was_connected and not self.commit_was_sent and self.was_lost(error))

    def was_lost(self, error: BaseException) -> bool:
        """True if the store failed, and not a statement: there was no connection, or it went away."""
        if self.closed_inside:
            return False
        return not self.has_begun or limits.was_lost(error, self.attempt.using, self._connection)

    def _explain(self, failure: Exception, error: BaseException | None) -> bool:
        """Raise what a failure means, or say whether it may be forgotten."""
        if self.state is self.State.COMMITTED:
            logger.exception(
                "An on_commit hook failed; the response of record %s is stored.", self.attempt.call.id, exc_info=failure
            )
            return True
        if self.state is self.State.ANSWERED and error is None:
            logger.warning("A transaction that wrote nothing could not be committed: %s", failure)
            limits.drop_broken(self.attempt.using)
            return True
        rolled_back = isinstance(failure, (*REFUSED_BY_SERVER, RolledBack))
        uncertain = isinstance(failure, Error | StoreUnavailable) and not rolled_back
        if self.state is self.State.STORING and uncertain:
            raise Uncertain(self.result) from failure
        if failure is not error:
            raise failure
        return False

    def _note_commit(self) -> None:
        self._end_limit()
        if self.state is self.State.STORING:
            self.state = self.State.COMMITTED
            self.attempt.finished = True

    def _begin_limit(self) -> None:
        limit = limits.limited(self.attempt.using, self.attempt.limit)
        limit.__enter__()
        self._limit = limit

    def _end_limit(self) -> None:
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.__exit__(None, None, None)
