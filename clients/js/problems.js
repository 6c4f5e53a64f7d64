/** `code` is stable. `safeNewKey` is true only if a new key cannot make the effect happen twice. */
export class CallError extends Error {
  constructor(code, message, key, { response, problem = {}, cause } = {}) {
    super(message);
    Object.assign(this, { name: code, code, key, response, problem, cause, status: response?.status });
    this.operationRef = problem.operation_ref;
    this.safeNewKey = problem.safe_new_key === true;
  }
}

export class KeyRejected extends CallError {}
export class KeyReused extends CallError {}
export class InProgress extends CallError {}
export class OutcomeUnknown extends CallError {}
export class KeyExpired extends CallError {}
export class NothingDone extends CallError {}
export class NoResponse extends CallError {}
export class ChangedRequest extends CallError {}
export class TooOld extends CallError {}

const PREFIX = "idempotency_";
const KINDS = {
  key_missing: KeyRejected,
  key_invalid: KeyRejected,
  principal_missing: KeyRejected,
  key_reused_with_different_payload: KeyReused,
  key_in_progress: InProgress,
  key_in_use: InProgress, // Stripe's
  outcome_unknown: OutcomeUnknown,
  key_expired: KeyExpired,
  not_executed: NothingDone,
  store_unavailable: NothingDone,
  attempts_exhausted: NothingDone,
  work_abandoned: NothingDone,
};

/** Return the class, the code and the members of an error response of the idempotency layer; {} for any other. */
export function readProblem(status, json) {
  const stripe = json?.error;
  const problem = stripe?.type ? { ...stripe, detail: stripe.message } : json;
  let code = problem?.code;
  if (!code && stripe?.type === PREFIX + "error") code = PREFIX + (status === 409 ? "key_in_use" : "key_reused_with_different_payload");
  const kind = status > 399 && String(code).startsWith(PREFIX) && KINDS[code.slice(PREFIX.length)];
  return kind ? { kind, code, problem } : {};
}
