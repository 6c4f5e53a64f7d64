export { createFetch, newKey } from "./fetch.js";
export { createOutbox } from "./outbox.js";
export { CallError, ChangedRequest, InProgress, KeyExpired, KeyRejected } from "./problems.js";
export { KeyReused, NoResponse, NothingDone, OtherOrigin, OutcomeUnknown, ResponseLost, TooOld } from "./problems.js";
export { indexedDBStore, keyValueStore } from "./stores.js";
