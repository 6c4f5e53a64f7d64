import { among, isReplay, perform, prepare, throwIfAborted } from "./fetch.js";
import { ChangedRequest, TooOld } from "./problems.js";
import { indexedDBStore } from "./stores.js";

/** Calls that are written to a store before they are sent, each under a name of yours. */
export const createOutbox = ({
  store = indexedDBStore(),
  origins,
  headers,
  retention = 82_800_000, // 23 hours
  ...defaults
}) => {
  const knows = among(origins);
  const load = async (name) => JSON.parse((await store.get(name)) ?? null);
  const isOld = (at) => Math.abs(Date.now() - at) > retention; // `at` is in the future if the clock was wrong

  /** Continue the call of this name, or begin it as `call`. */
  const run = (name, options, call) =>
    alone(store.name + name, options.signal, async () => {
      const text = JSON.stringify(call && { ...call, at: Date.now(), headers: withoutSecrets(call.headers, call.key) });
      if (call) await store.add(name, text);
      const stored = await store.get(name);
      const entry = JSON.parse(stored);
      if (stored !== text) entry.doubt = 2; // it may have been sent before
      const { key, response } = entry;
      const asked = call ?? entry;
      if (identity(asked) !== identity(entry)) {
        throw new ChangedRequest({ code: "changed_request", detail: `Not sent: "${name}" was another request.` }, key);
      }
      if (response) return new Response(unpack(response.body), response);
      if (isOld(entry.at)) throw new TooOld({ code: "too_old", detail: `Not sent: "${name}" is too old.` }, key);
      const sent = [...new Map([...asked.headers, ...entry.headers, ...new Headers(await headers?.(entry.url))])];
      const received = await perform({ ...options, ...entry, headers: sent, body: unpack(entry.body) });
      // The next response may be another one: after a redirect, a login, a deployment, a pause or a failure.
      if (isReplay(received) || !(received.redirected || /^[035]|202|40[134578]|42[159]/.test(received.status))) {
        const body = await (/json/.test(received.headers.get("content-type")) ? received.clone().text() : received.clone().arrayBuffer());
        entry.response = { status: received.status, headers: withoutSecrets([...received.headers]), body: pack(body) };
        await store.set(name, JSON.stringify(entry)).catch(() => {}); // on a full disk: the service has the response
      }
      return received;
    });

  return {
    /** Make the call of this name, continue it, or return the response that it got. */
    async once(name, input, init) {
      const options = { signal: input.signal, ...defaults, ...init };
      const request = new Request(input, options);
      knows(request.url, true);
      const call = await prepare(request, options, true);
      return run(name, options, { ...call, body: pack(call.body) });
    },

    /** Send the calls that are open, oldest first. */
    async resume(init) {
      const entries = [];
      const results = [];
      for (const name of await store.names()) entries.push({ name, ...(await load(name)) });
      for (const { name, url, at, response } of entries.sort((one, other) => one.at - other.at)) {
        if (!knows(url)) continue;
        if (!response) {
          results.push(await run(name, { ...defaults, ...init }).then((response) => ({ name, response }), (error) => ({ name, error })));
        } else if (isOld(at)) {
          await store.delete(name);
        }
      }
      return results;
    },

    /** Delete a call, open or finished. The same name is a new call then. */
    forget: (name) => store.delete(name),
  };
};

/** The boundary of a form's parts is another one each time that the form is read. */
const identity = ({ url, method, given, headers, body }) => {
  const [, boundary] = /boundary=([^,]+)/.exec(headers) ?? [];
  return JSON.stringify([url, method, given, body]).split(boundary).join();
};

const withoutSecrets = (headers, key) =>
  headers.filter(([name, value]) => value === key || !/auth|cookie|token|secret|srf|key|session|pass/.test(name));

/** Every store keeps text: bytes become a string of as many characters, in a list. */
const pack = (body) =>
  body?.byteLength ? [Array.from(new Uint8Array(body), (byte) => String.fromCharCode(byte)).join("")] : body?.length ? body : null;
const unpack = (body) => (Array.isArray(body) ? Uint8Array.from(body[0], (each) => each.charCodeAt(0)) : body);

const turns = {};

/** Run after all who asked before under this name: in every tab where there are Web Locks, else in this one. */
const alone = async (name, signal, work) => {
  const locks = globalThis.navigator?.locks;
  if (locks) return locks.request(name, { signal }, work);
  while (turns[name]) await turns[name].catch(() => {});
  throwIfAborted(signal);
  return (turns[name] = work().finally(() => delete turns[name]));
};
