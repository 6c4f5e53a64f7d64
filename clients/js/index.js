export { idempotentFetch, newKey } from "./fetch.js";
export { createOutbox } from "./outbox.js";
export * from "./problems.js";
export { indexedDBStore, keyValueStore } from "./stores.js";
