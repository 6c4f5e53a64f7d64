export { idempotentFetch, newKey } from "./fetch.js";
export { createOutbox } from "./outbox.js";
export {
  CallError,
  ChangedRequest,
  InProgress,
  KeyExpired,
  KeyRejected,
  KeyReused,
  NoResponse,
  NothingDone,
  OutcomeUnknown,
  TooOld,
} from "./problems.js";
export { indexedDBStore, keyValueStore } from "./stores.js";
