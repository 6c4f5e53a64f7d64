/** `code` is stable. `safeNewKey` is true only where a new key cannot make the effect happen twice. */
export class IdempotencyError extends Error {
  constructor(message, code, key, response, problem = {}, cause) {
    super(message);
    Object.assign(this, { code, key, response, problem, cause, name: code });
    this.status = response?.status;
    this.operationRef = problem.operation_ref;
    this.safeNewKey = problem.safe_new_key === true;
  }
}

export class KeyMissing extends IdempotencyError {}
export class KeyInvalid extends IdempotencyError {}
export class KeyReused extends IdempotencyError {}
export class InProgress extends IdempotencyError {}
export class OutcomeUnknown extends IdempotencyError {}
export class KeyExpired extends IdempotencyError {}
export class PrincipalMissing extends IdempotencyError {}
export class NotExecuted extends IdempotencyError {}
export class StoreUnavailable extends IdempotencyError {}
export class AttemptsExhausted extends IdempotencyError {}
export class WorkAbandoned extends IdempotencyError {}
export class NoResponse extends IdempotencyError {}
export class ChangedRequest extends IdempotencyError {}
export class TooOld extends IdempotencyError {}

const KINDS = {
  key_missing: KeyMissing,
  key_invalid: KeyInvalid,
  key_reused_with_different_payload: KeyReused,
  key_in_progress: InProgress,
  outcome_unknown: OutcomeUnknown,
  key_expired: KeyExpired,
  principal_missing: PrincipalMissing,
  not_executed: NotExecuted,
  store_unavailable: StoreUnavailable,
  attempts_exhausted: AttemptsExhausted,
  work_abandoned: WorkAbandoned,
};
const STRIPE = { undefined: "key_reused_with_different_payload", key_in_use: "key_in_progress" };
const PREFIX = "idempotency_";

/** Return the error class, the code and the members of an error response of the idempotency layer; {} for any other. */
export function readProblem(status, json) {
  const error = json?.error;
  const isStripe = error?.type === PREFIX + "error" || error?.code;
  const problem = isStripe ? { ...error, detail: error.message } : json;
  let code = String(problem?.code).replace(PREFIX, "");
  if (isStripe) code = STRIPE[code] ?? code;
  return status < 400 || !Object.hasOwn(KINDS, code) ? {} : { kind: KINDS[code], code: PREFIX + code, problem };
}
