import { CallError, InProgress, NOT_EXECUTED, NoResponse, OutcomeUnknown, readProblem } from "./problems.js";

const RETRIED = [425, 429, 502, 503, 504];

/** Return a random UUID. Pages without TLS and React Native have no crypto.randomUUID. */
export function newKey() {
  const { crypto } = globalThis;
  const random = (digit) => (digit ^ (crypto.getRandomValues(new Uint8Array(1))[0] & (15 >> (digit / 4)))).toString(16);
  return crypto.randomUUID?.() ?? "10000000-1000-4000-8000-100000000000".replace(/[018]/g, random);
}

/** fetch, with one idempotency key for all tries of a call. */
export async function idempotentFetch(input, options = {}) {
  const call = await prepare(input, options);
  if (!call) return (options.fetch ?? fetch)(input, options);
  return unwrap(await perform(call, { signal: input.signal, ...options }), call.key);
}

/** Read the request, so that each try sends the same bytes, and give it a key. Nothing if it needs none. */
export async function prepare(input, options) {
  const { body, header = "Idempotency-Key" } = options;
  if (body?.getReader || body?.[Symbol.asyncIterator]) {
    throw new TypeError("A stream cannot be sent twice: read it first.");
  }
  const request = new Request(input, options);
  const { url, method, credentials, mode, cache, redirect, keepalive } = request;
  const headers = Object.fromEntries(request.headers);
  const name = header.toLowerCase();
  const given = headers[name] ?? options.key;
  const key = given ?? (/^(POST|PATCH)$/.test(method) && `"${newKey()}"`); // quotes are the syntax of RFC 9651
  if (!key) return;
  headers[name] = key;
  const bytes = typeof body === "string" ? body : await request.arrayBuffer();
  return { url, key, given, init: { method, headers, body: bytes, credentials, mode, cache, redirect, keepalive } };
}

/** Try until a final response arrives or the time is over. Return the last response, whatever it says. */
export async function perform(call, options) {
  const { deadline = 60_000, unknownFor = 30_000, wait, onProgress, backoff = 500, timeout = 30_000, signal } = options;
  const budgets = { open: deadline, unknown: unknownFor, accepted: wait === true ? Infinity : wait };
  const ends = {};
  let state = "open";
  let target = call;
  for (let tries = 0; ; tries++) {
    const end = (ends[state] ??= Date.now() + budgets[state]);
    let answer, cause;
    try {
      answer = await within(Math.min(timeout, end - Date.now()), signal, (signal) => send(target, signal, options));
    } catch (error) {
      if (signal?.aborted) throw error;
      cause = error;
    }
    if (answer) {
      const next = answer.state;
      if (!next || (next === "accepted" && !wait)) return answer;
      if (next === "accepted") {
        onProgress?.(answer.json, answer.response);
        target = follow(call, answer.response);
      } else if (answer.code === NOT_EXECUTED && target !== call) {
        target = call; // the address says that the request may be sent again
        delete ends.open;
      }
      if (next !== state) tries = 0;
      state = next === "open" && target !== call ? "accepted" : next;
    }
    const until = (ends[state] ??= Date.now() + budgets[state]);
    const pause = retryAfter(answer) + Math.random() * Math.min(10_000, backoff * 2 ** tries);
    if (Date.now() + pause >= until) {
      if (answer) return answer;
      throw new NoResponse("No response. Send it again with this key.", "no_response", call.key, undefined, {}, cause);
    }
    await within(pause, signal, (signal) => new Promise((wake) => signal.addEventListener("abort", wake)));
  }
}

/** Run with a signal that aborts when the time is over, or when the caller's signal does. */
async function within(milliseconds, signal, work) {
  const controller = new AbortController();
  const stop = () => controller.abort();
  const timer = setTimeout(stop, milliseconds);
  signal?.addEventListener("abort", stop);
  try {
    return signal?.aborted || (await work(controller.signal));
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
    if (signal?.aborted) throw signal.reason ?? new Error("aborted");
  }
}

/** Send once and read the whole response: half of one is none. */
async function send({ url, init }, signal, { fetch = globalThis.fetch, codes }) {
  const response = await fetch(url, { ...init, signal });
  const isJSON = /json/.test(response.headers.get("Content-Type"));
  const body = isJSON ? await response.text() : await response.arrayBuffer();
  return read({ status: response.status, headers: [...response.headers], body, url: response.url || url }, codes);
}

/** Build a response from its parts, and judge it: `state` says what it may still change to, if to anything. */
export function read(parts, codes) {
  const { status, body, url } = parts;
  const response = new Response([204, 205, 304].includes(status) ? null : body, parts);
  Object.defineProperty(response, "url", { value: url });
  const header = (name) => response.headers.get(name);
  const replayed = (header("Idempotency-Replayed") ?? header("Idempotent-Replayed")) === "true";
  let json;
  try {
    json = JSON.parse(body);
  } catch {} // bytes, or a proxy's own page
  const answer = { parts, response, replayed, json, ...readProblem(status, json, codes) };
  if (!replayed) answer.state = judge(status, answer);
  return answer;
}

function judge(status, { kind, code }) {
  if (status === 202) return "accepted";
  if (kind === OutcomeUnknown) return "unknown";
  if (kind === InProgress || code === NOT_EXECUTED || RETRIED.includes(status)) return "open";
}

/** Return the response, or throw the error that it describes. */
export function unwrap({ response, kind: Kind, code, problem }, key) {
  if (Kind) throw new Kind(problem.detail, code, key, response, problem);
  return response;
}

const originOf = (url) => /^\w+:\/\/[^/]*/.exec(url)?.[0];

/** Return the request for the address of accepted work, or the same one if there is no address. */
function follow(call, response) {
  const location = response.headers.get("Location");
  if (!location) return call;
  const origin = originOf(call.url);
  const url = /^\/(?!\/)/.test(location) ? originOf(response.url) + location : new URL(location, response.url).href;
  if (originOf(url) !== origin) throw new CallError(`${url} must not get the credentials of ${origin}.`, "foreign_location", call.key, response);
  return { url, init: { ...call.init, method: "GET", body: undefined } };
}

/** Return the milliseconds of Retry-After: seconds, or a date by the server's clock. */
function retryAfter(answer) {
  const header = (name) => answer?.response.headers.get(name);
  const value = header("Retry-After");
  const now = Date.parse(header("Date")) || Date.now();
  return value ? Math.max(0, value * 1000 || Date.parse(value) - now || 0) : 0;
}
