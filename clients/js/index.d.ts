/** The members of an error response of the idempotency layer (RFC 9457), or of Stripe's `error` object. */
export interface Problem {
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  code?: string;
  /** What the service knows about all tries with this key. */
  effect?: "none" | "possible" | "done";
  /** The status of the first response, if the effect is done. */
  first_status?: number;
  safe_new_key?: boolean;
  operation_ref?: string;
  [member: string]: unknown;
}

/** The service rejected the call, or it could not be made. */
export class CallError extends Error {
  /** Stable, for machines: `idempotency_outcome_unknown`, for example. */
  readonly code: string;
  /** The key of the call. */
  readonly key: string;
  readonly status?: number;
  readonly response?: Response;
  readonly problem: Problem;
  /** The id of the record, for support and for logs. */
  readonly operationRef?: string;
  /** True only if a new key cannot make the effect happen twice. */
  readonly safeNewKey: boolean;
  readonly cause?: unknown;
}
/** The service cannot use the key, or does not know whose it is. No try of this call had an effect. */
export class KeyRejected extends CallError {}
/** The key was first used with a different request. */
export class KeyReused extends CallError {}
/** The first request was still running when the deadline passed. */
export class InProgress extends CallError {}
/** The service does not know yet whether the request took effect. Never send it with a new key. */
export class OutcomeUnknown extends CallError {}
/** The service no longer has the response. */
export class KeyExpired extends CallError {}
/** The request took effect, but the service could not store its response. `response` may have a `Location`. */
export class ResponseLost extends CallError {}
/** No try of this call had an effect. */
export class NothingDone extends CallError {}
/** No whole response arrived before the deadline. `cause` is the last failure. */
export class NoResponse extends CallError {}
/** The name was first used with another request. Nothing was sent. */
export class ChangedRequest extends CallError {}
/** The address is not one of the `origins`. Nothing was sent. */
export class OtherOrigin extends CallError {}
/** The open call is older than the outbox's `retention`. Nothing was sent. */
export class TooOld extends CallError {}

/** All times are in milliseconds. */
export interface IdempotencyOptions {
  /**
   * The key, sent as it is. Default: a random UUID in quotes for POST and PATCH, and for every call of an outbox;
   * none for other methods.
   */
  key?: string;
  /** The name of the header. Default: `Idempotency-Key`. */
  header?: string;
  /** How long to try in all. Default: 60,000. */
  deadline?: number;
  /** How long to wait for one response. Default: 30,000. */
  timeout?: number;
  /** How long to ask about an unknown outcome before `OutcomeUnknown` is thrown. Default: 30,000. */
  unknownFor?: number;
  /** The longest first pause between two tries; it doubles each time, up to 10 seconds. Default: 500. */
  backoff?: number;
  /** Follow a 202 to its Location until the work has ended, or for so long. Default: false. */
  wait?: boolean | number;
  /** Called with each 202, if `wait` is set. */
  onProgress?: (progress: any, response: Response) => void;
}

export interface IdempotentInit extends RequestInit, IdempotencyOptions {
  body?: Exclude<BodyInit, ReadableStream> | null;
}

/** The services that accept idempotency keys. */
export interface Service {
  /** Their addresses, such as `https://api.example.com`, or `location.origin` for the service of the page. */
  origins: readonly string[];
}

/**
 * Return a `fetch` with one idempotency key for all tries of a call.
 * A request without a key, or to another origin, is sent once, as by `fetch`.
 */
export function createFetch(
  options: Service & IdempotencyOptions,
): (input: RequestInfo | URL, init?: IdempotentInit) => Promise<Response>;

/** Return a random UUID. */
export function newKey(): string;

/** Where an outbox keeps its calls. */
export interface Store {
  /** Tells two stores apart. */
  readonly name: string;
  get(name: string): Promise<string | null | undefined>;
  set(name: string, text: string): Promise<unknown>;
  /** Write unless the name is taken. */
  add(name: string, text: string): Promise<unknown>;
  delete(name: string): Promise<unknown>;
  names(): Promise<string[]>;
}

export interface OutboxOptions extends Service, IdempotencyOptions {
  /** Default: `indexedDBStore()`. */
  store?: Store;
  /** The headers that are not stored, such as Authorization; called with its address before each call is sent. */
  headers?: (url: string) => Record<string, string> | Promise<Record<string, string>>;
  /** How old an open call may be when it is sent: less than the service keeps a response. Default: 23 hours. */
  retention?: number;
}

export type Resumed = { name: string; response: Response; error?: undefined } | { name: string; error: Error; response?: undefined };

export interface Outbox {
  /** Make the call of this name, continue it, or return the response that it got. */
  once(name: string, input: RequestInfo | URL, init?: IdempotentInit): Promise<Response>;
  /** Send the open calls to the `origins`, oldest first. */
  resume(options?: IdempotencyOptions & { signal?: AbortSignal }): Promise<Resumed[]>;
  /** Delete a call, open or finished. */
  forget(name: string): Promise<unknown>;
}

export function createOutbox(options: OutboxOptions): Outbox;

/** A store in IndexedDB. */
export function indexedDBStore(name?: string): Store;

export interface KeyValueStorage {
  getItem(key: string): string | null | Promise<string | null>;
  setItem(key: string, value: string): unknown;
  removeItem(key: string): unknown;
  getAllKeys?(): Promise<readonly string[]>;
}

/** A store in `localStorage`, or in React Native's AsyncStorage. */
export function keyValueStore(storage: KeyValueStorage, prefix?: string): Store;
