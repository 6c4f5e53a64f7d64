import { NoResponse, OtherOrigin, OutcomeUnknown, readError } from "./problems.js";

/** Return a random UUID. Pages without TLS and React Native have no crypto.randomUUID. */
export const newKey = () =>
  "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx".replace(/x/g, () => (crypto.getRandomValues(new Uint8Array(1))[0] % 16).toString(16));

/** Return fetch with one idempotency key for all tries of a call to one of the origins. All else is sent once. */
export const createFetch = ({ origins, ...defaults }) => {
  const knows = among(origins);
  return async (input, init) => {
    const options = { signal: input.signal, ...defaults, ...init };
    const request = new Request(input, options);
    const call = knows(request.url, options.key) && (await prepare(request, options));
    return call ? perform({ ...options, ...call }) : fetch(request);
  };
};

const originOf = (url) => url.split("/", 3).join("/");

/** Return a function that tells whether an address is one of the services', and throws if it needs to be one. */
export const among = (origins) => {
  const known = origins.map((each) => {
    if (!/^https?:\/\/./.test(each)) throw new TypeError(`${each} is no address of a service.`);
    return originOf(new Request(each).url); // as fetch writes it
  });
  return (url, isNeeded) => {
    if (known.includes(originOf(url))) return true;
    if (isNeeded) throw new OtherOrigin({ code: "other_origin", detail: `Not sent: ${url} is not among the origins.` });
  };
};

/** Give the request a key and read its body, so that each try sends the same bytes. Return nothing if it gets no key. */
export const prepare = async (request, { body, key, header = "idempotency-key" }, needsKey) => {
  const { url, method, headers, mode, credentials, redirect, keepalive } = request;
  const given = headers.get(header) ?? key;
  // RFC 9651 asks for the quotes.
  if (given || needsKey || /^(POST|PATCH)$/.test(method)) headers.set(header, given ?? `"${newKey()}"`);
  key = headers.get(header); // none with the mode "no-cors": browsers set no such header
  if (!key) return;
  if (body?.getReader || body?.[Symbol.asyncIterator]) throw new TypeError("A stream cannot be sent twice.");
  // A browser follows no redirect from its page's origin to another; elsewhere only "manual" keeps it from one.
  const isOwn = originOf(url) === globalThis.location?.origin;
  const bytes = typeof body === "string" ? body : await request.arrayBuffer();
  return {
    ...{ url, method, credentials, keepalive, given, key, doubt: given ? 1 : 0 },
    ...(isOwn ? { mode: "same-origin", redirect } : { mode, redirect: "manual" }),
    headers: [...headers],
    body: bytes.byteLength === 0 ? undefined : bytes, // a GET must not have one
  };
};

/** Try until a final response arrives or the time is over. */
export const perform = async (call) => {
  const { deadline = 60_000, unknownFor = 30_000, wait, onProgress, backoff = 500, timeout = 30_000, signal } = call;
  const budgets = { deadline, unknownFor };
  const ends = {};
  let rule = "deadline";
  let target = call;
  let { doubt } = call; // 1 if others may have sent this key, 2 if an earlier try may have had an effect
  const left = () => (ends[rule] ??= Date.now() + budgets[rule]) - Date.now();
  const fail = (cause) => {
    throwIfAborted(signal);
    return { error: new NoResponse({ code: "no_response", detail: "No response: use this key again." }, call.key, undefined, cause) };
  };
  for (let tries = 0; ; tries++) {
    const { response, json, error } = await within(Math.min(timeout, left()), target, send).catch(fail);
    if (target !== call && json?.operation_ref && json.response) {
      target = call; // a retry gets the response itself
      continue;
    }
    rule = isReplay(response) ? "" : error?.rule ?? (/42[59]|50[234]/.test(response.status) ? "deadline" : response.status);
    if (wait && rule === 202) {
      onProgress?.(json, response);
      target = follow(call, response);
      ends.deadline = ends[202] ??= Date.now() + (wait === true ? Infinity : wait);
    }
    const pause = retryAfter(response) + Math.random() * Math.min(10_000, backoff * 2 ** tries);
    if (pause < left()) {
      await within(pause, call, ({ signal }) => new Promise((wake) => signal.addEventListener("abort", wake)));
      if (left() > 0) {
        // The device may have slept through the pause.
        doubt = error?.bears >= 0 ? doubt : 2;
        continue;
      }
    }
    // What the service knows about all tries with the key decides. Without that, the error is about this try alone.
    const effect = error?.problem.effect ?? (doubt > error?.bears ? "possible" : "none");
    if (error) throw error.bears >= 0 && effect !== "none" ? doubted(error) : error;
    return response;
  }
};

const doubted = (error) => {
  const detail = `${error.message} An earlier try may have taken effect.`;
  return new OutcomeUnknown({ ...error.problem, detail }, error.key, error.response, error);
};

/** Work on a call with a signal that aborts when the time is over, or when the caller's signal does. */
const within = async (milliseconds, call, work) => {
  const controller = new AbortController();
  const { signal } = call;
  const stop = () => controller.abort();
  const timer = setTimeout(stop, Math.min(milliseconds, 2 ** 31 - 1)); // a timer with more fires at once
  signal?.addEventListener("abort", stop);
  try {
    throwIfAborted(signal);
    return await work({ ...call, signal: controller.signal });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
    throwIfAborted(signal);
  }
};

/** Do what the method of this name does, which React Native's signals do not have. */
export const throwIfAborted = (signal) => {
  if (signal?.aborted) throw signal.reason ?? new Error("aborted");
};

/** Send once and read the whole response. A connection that is cut in the middle is an error. */
const send = async (call) => {
  const response = await fetch(call.url, call);
  await response.clone().blob();
  const json = await response.clone().json().catch(() => {}); // not JSON
  return { response, json, error: readError(response, json, call.key) };
};

/** True if the response is the stored one, which never changes. */
export const isReplay = (response) =>
  (response?.headers.get("idempotency-replayed") ?? response?.headers.get("idempotent-replayed")) === "true";

/** Return the request for the address of accepted work; the same one for another origin, which must not get credentials. */
const follow = (call, response) => {
  const root = originOf(call.url) + "/";
  const url = response.headers.get("location")?.replace(/^\/(?!\/)/, root);
  return url?.startsWith(root) ? { ...call, url, method: "GET", body: undefined } : call;
};

/** Return the milliseconds of Retry-After: seconds or a date. */
const retryAfter = (response) => {
  const value = response?.headers.get("retry-after");
  return Math.max(0, value * 1000 || Date.parse(value) - Date.now() || 0);
};
