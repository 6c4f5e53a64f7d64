import { InProgress, NoResponse, OutcomeUnknown, readProblem } from "./problems.js";

const RETRIED = [425, 429, 502, 503, 504];

/** Return a random UUID. Pages without TLS and React Native have no crypto.randomUUID. */
export function newKey() {
  const { crypto } = globalThis;
  const random = (digit) => (digit ^ (crypto.getRandomValues(new Uint8Array(1))[0] & (15 >> (digit / 4)))).toString(16);
  return "10000000-1000-4000-8000-100000000000".replace(/[018]/g, random);
}

/** fetch, with one idempotency key for all tries of a call. */
export async function idempotentFetch(input, options = {}) {
  const call = await prepare(input, options);
  if (!call) return fetch(input, options);
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
  const left = () => (ends[state] ??= Date.now() + budgets[state]) - Date.now();
  for (let tries = 0; ; tries++) {
    let answer, cause;
    try {
      answer = await within(Math.min(timeout, left()), signal, (signal) => send(target, signal));
    } catch (error) {
      if (signal?.aborted) throw error;
      cause = error;
    }
    if (answer) {
      if (!budgets[answer.state]) return answer;
      if (answer.state === "accepted") {
        onProgress?.(answer.json, answer.response);
        target = follow(call, answer.response);
      }
      state = answer.state === "open" && target !== call ? "accepted" : answer.state;
    }
    const pause = retryAfter(answer) + Math.random() * Math.min(10_000, backoff * 2 ** tries);
    if (pause >= left()) {
      if (answer) return answer;
      throw new NoResponse("no_response", "No response. Send it again with this key.", call.key, { cause });
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

/** Send once and read the whole response: half of one is none. `state` says what it may still change to. */
async function send({ url, init }, signal) {
  const response = await fetch(url, { ...init, signal });
  const { status, headers } = response;
  const copy = response.clone();
  const body = /json/.test(headers.get("Content-Type")) ? await copy.text() : await copy.arrayBuffer();
  const replayed = [headers.get("Idempotency-Replayed"), headers.get("Idempotent-Replayed")].includes("true");
  let json;
  try {
    json = JSON.parse(body);
  } catch {} // bytes, or a proxy's own page
  const problem = readProblem(status, json);
  return { response, body, json, replayed, ...problem, state: replayed ? "" : judge(status, problem.kind) };
}

function judge(status, kind) {
  if (status === 202) return "accepted";
  if (kind === OutcomeUnknown) return "unknown";
  if (kind === InProgress || RETRIED.includes(status)) return "open";
}

/** Return the response, or throw the error that it describes. */
export function unwrap({ response, kind: Kind, code, problem }, key) {
  if (Kind) throw new Kind(code, problem.detail, key, { response, problem });
  return response;
}

/** Return the request for the address of accepted work; the same one for another origin, which must not get credentials. */
function follow(call, response) {
  const location = response.headers.get("Location") ?? "";
  const [origin] = /^\w+:\/\/[^/]+/.exec(call.url);
  const url = location.replace(/^\/(?!\/)/, `${origin}/`);
  return url.startsWith(`${origin}/`) ? { url, init: { ...call.init, method: "GET", body: undefined } } : call;
}

/** Return the milliseconds of Retry-After: seconds or a date. */
function retryAfter(answer) {
  const value = answer?.response.headers.get("Retry-After");
  return value ? Math.max(0, value * 1000 || Date.parse(value) - Date.now() || 0) : 0;
}
