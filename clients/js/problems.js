/** `code` is stable. `safeNewKey` is true only if a new key cannot make the effect happen twice. */
export class CallError extends Error {
  constructor(problem, key, response, cause) {
    super(problem.detail);
    this.name = this.code = problem.code;
    this.problem = problem;
    this.key = key;
    this.response = response;
    this.status = response?.status;
    this.cause = cause;
    this.operationRef = problem.operation_ref;
    this.safeNewKey = problem.safe_new_key === true;
  }
}

// `rule` names the option that says for how long the call is tried again. `bears` is the doubt about earlier tries
// with which an error about the last one is still true of the call.
export class KeyRejected extends CallError {
  bears = 1;
}
export class KeyReused extends CallError {}
export class InProgress extends CallError {
  rule = "deadline";
}
export class OutcomeUnknown extends CallError {
  rule = "unknownFor";
}
export class KeyExpired extends CallError {}
export class ResponseLost extends CallError {}
export class NothingDone extends CallError {
  bears = 0;
}
export class NoResponse extends CallError {
  rule = "deadline";
}
export class ChangedRequest extends CallError {}
export class OtherOrigin extends CallError {}
export class TooOld extends CallError {}

/** By the last word of the code. */
const KINDS = {
  missing: KeyRejected,
  invalid: KeyRejected,
  payload: KeyReused,
  error: KeyReused, // Stripe's, which may have this type and no code
  progress: InProgress,
  use: InProgress, // Stripe's
  unknown: OutcomeUnknown,
  expired: KeyExpired,
  stored: ResponseLost,
  executed: NothingDone,
  unavailable: NothingDone,
  exhausted: NothingDone,
  abandoned: NothingDone,
};

/** Return the error that an error response of the idempotency layer describes; nothing for any other response. */
export const readError = (response, json, key) => {
  const stripe = json?.error;
  const problem = stripe?.type ? { ...stripe, code: stripe.code ?? stripe.type, detail: stripe.message } : json;
  const Kind = response.status > 399 && KINDS[/^idempotency.*_(.+)/.exec(problem?.code)?.[1]];
  if (Kind) return new Kind(problem, key, response);
};
