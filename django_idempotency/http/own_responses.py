"""What the layer answers in the place of a view."""

from typing import Final

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

from django_idempotency.conf import debug
from django_idempotency.core import problems
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Accepted, Answer, InFlight, Replay
from django_idempotency.core.policy import Policy
from django_idempotency.exceptions import InvalidKey, NoPrincipal, NotExecuted, StoreUnavailable
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.cache import CachedReplay
from django_idempotency.flow.claim import peek
from django_idempotency.http.doors import require_authorization
from django_idempotency.http.pages import negotiated_response
from django_idempotency.http.requests import header, operation_of_request
from django_idempotency.http.responses import (
    ProblemDetails,
    accepted_response,
    apply_upgrade,
    not_stored_problem,
    nothing_done_problem,
    problem_for,
    replay_response,
    unavailable_problem,
    unknown_problem,
)
from django_idempotency.signals import logger
from django_idempotency.store.limits import name_error

# Headers that clients send in the belief that they carry the key.
LOOKALIKES: Final = ("Idempotency-Key", "X-Idempotency-Key", "Idempotent-Key", "X-Idempotent-Key", "Idempotency")


class OwnResponses:
    """The layer's own responses to one request. `rest_framework.RestExchange` overrides how they are made."""

    request: HttpRequest
    policy: Policy
    using: str
    cached: CachedReplay | None = None  # None: replays of this request come from the table alone

    def problem_response(self, details: ProblemDetails) -> HttpResponseBase:
        """Return an error response of the layer's own."""
        return negotiated_response(details, self.policy.profile, self.request)

    def missing_key_response(self) -> HttpResponseBase:
        """Return the error response to a request without a key: it names the header and shows an example."""
        profile = self.policy.profile
        given = [name for name in LOOKALIKES if name != profile.header and header(self.request, name) is not None]
        detail = problems.explain_missing_key(profile, self.policy.key.strict, *given)
        if self.policy.key_source is not None:  # not in that header
            detail = problems.MISSING_KEY.detail
        return self.problem_response(ProblemDetails(problems.MISSING_KEY, profile.missing, detail))

    def invalid_key_response(self, error: InvalidKey) -> HttpResponseBase:
        """Return the error response to a header that is not a usable key."""
        members = {"reason": error.reason}
        details = ProblemDetails(problems.INVALID_KEY, self.policy.profile.invalid, str(error), members=members)
        return self.problem_response(details)

    def no_principal_response(self, error: NoPrincipal) -> HttpResponseBase:
        """Return the error response to a request without credentials. In DEBUG it tells the developer what to set."""
        detail = problems.UNKNOWN_CREDENTIALS if error.unknown_credentials else problems.NO_PRINCIPAL.detail
        detail += f" For the developer: {error}" if debug() else ""
        return self.problem_response(ProblemDetails(problems.NO_PRINCIPAL, 403, detail))

    def answer(self, answer: Answer, call: Call) -> HttpResponseBase:
        """Return the response that a decision stands for."""
        if isinstance(answer, Accepted):
            return accepted_response(call, answer.retry_after)
        if not isinstance(answer, Replay):
            return self.problem_response(problem_for(answer, call))
        self.require_authorization(answer)
        if self.cached is not None:
            self.cached.fill(answer.record)
        reply = apply_upgrade(answer.reply, self.policy)
        if reply.lost:
            return self.problem_response(not_stored_problem(self.policy, reply, call.id))
        response = replay_response(reply, self.policy.profile)
        if self.policy.scope is not None:  # else Django notes that the session was read, and DRF its authentication
            patch_vary_headers(response, ("Authorization", "Cookie"))
        return response

    def require_authorization(self, replay: Replay) -> None:
        """Raise an error if the policy's `authorize` rejects this replay."""
        require_authorization(self.policy, self.request, replay.record)

    def unavailable_response(self, error: Exception) -> HttpResponseBase:
        """Return the 503 for a store that failed before the view, and log why. In DEBUG it tells the developer."""
        operation = operation_of_request(self.request, self.policy)
        logger.error("The idempotency store failed; a request of %r got a 503.", operation, exc_info=error)
        detail = f"{problems.UNAVAILABLE.detail} For the developer: {name_error(error)}" if debug() else ""
        return self.problem_response(unavailable_problem(self.policy, detail))

    def not_executed_response(self, error: Exception, attempts: int = 1) -> HttpResponseBase:
        """Return the 503 for an exception that proves that nothing happened. Retry-After grows with the attempts."""
        logger.info("Nothing was executed: %s", error, exc_info=None if isinstance(error, NotExecuted) else error)
        return self.problem_response(nothing_done_problem(self.policy, self.policy.pause_after(attempts)))

    def unknown_outcome_response(self, call: Call) -> HttpResponseBase:
        return self.problem_response(unknown_problem(call))

    def settled_response(self, attempt: Attempt) -> HttpResponseBase:
        """Return what the record says now: another attempt, a reconciler or an operator has changed it.

        If it still says that this attempt is running, the store failed to record how it ended.
        """
        try:
            answer = peek(attempt.call, self.using)
        except StoreUnavailable:  # nothing is known, and the view has run
            answer = None
        if isinstance(answer, InFlight) and answer.record is not None and answer.record.token == attempt.token:
            answer = None
        return self.unknown_outcome_response(attempt.call) if answer is None else self.answer(answer, attempt.call)
