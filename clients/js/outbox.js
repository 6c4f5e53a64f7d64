import { perform, prepare, read, unwrap } from "./fetch.js";
import { ChangedRequest, TooOld } from "./problems.js";
import { indexedDBStore } from "./stores.js";

const SECRET = /\bauth(orization)?\b|cookie|token|secret|csrf|xsrf|api-?key|session|password/i;
const DAY = 86_400_000;

/** Calls that are written to a store before they are sent, each under a name of yours. */
export function createOutbox({ store = indexedDBStore(), headers = () => ({}), retention = DAY, ...defaults } = {}) {
  const load = async (name) => JSON.parse((await store.get(name)) ?? "null");
  const isOld = (entry) => Date.now() - entry.at > retention;

  async function finish(name, entry, options, given) {
    const { key, init, response } = entry;
    if (response) return unwrap(read({ ...response, body: unpack(response.body) }, options.codes), key);
    if (isOld(entry)) fail(TooOld, `"${name}" is too old: the service may have forgotten its key.`, "too_old", key);
    const sent = new Headers({ ...init.headers, ...given });
    for (const [header, value] of Object.entries(await headers())) sent.set(header, value);
    const answer = await perform({ ...entry, init: { ...init, headers: sent, body: unpack(init.body) } }, options);
    const { parts, state, kind, replayed } = answer;
    const { status } = parts;
    const mayChange = /40[13]/.test(status) || (!kind && (status === 408 || status > 499)); // after a login, say
    if (!state && (replayed || !mayChange)) await store.set(name, JSON.stringify({ ...entry, response: { ...parts, body: pack(parts.body) } }));
    return unwrap(answer, key);
  }

  return {
    /** Make the call of this name, continue it, or return the response that it got. */
    async once(name, input, init) {
      const options = { ...defaults, ...init };
      const call = await prepare(input, options);
      if (!call) throw new TypeError(`"${name}" needs a key: its method gets none by itself.`);
      const [secrets, kept] = [true, false].map((wanted) => filter(call.init.headers, wanted));
      const written = { ...call, at: Date.now(), init: { ...call.init, headers: kept, body: pack(call.init.body) } };
      return alone(store.name + name, options.signal, async () => {
        const entry = (await store.add(name, JSON.stringify(written))) ? written : await load(name);
        if (identity(entry, call.given ?? entry.key) !== identity(written, entry.key)) {
          fail(ChangedRequest, `"${name}" was another request. Nothing was sent.`, "changed_request", entry.key);
        }
        return finish(name, entry, options, secrets);
      });
    },

    /** Send the calls that are open, oldest first. */
    async resume(init) {
      const options = { ...defaults, ...init };
      const entries = await Promise.all((await store.names()).map(async (name) => ({ name, ...(await load(name)) })));
      const results = [];
      for (const { name } of entries.sort((one, other) => one.at - other.at)) {
        await alone(store.name + name, options.signal, async () => {
          const entry = await load(name);
          if (!entry) return;
          if (entry.response) return isOld(entry) && store.delete(name);
          const result = await finish(name, entry, options).then((response) => ({ response }), (error) => ({ error }));
          results.push({ name, ...result });
        });
      }
      return results;
    },

    /** Delete a call, open or finished. The same name is a new call then. */
    forget: (name) => store.delete(name),
  };
}

function fail(Kind, ...details) {
  throw new Kind(...details);
}


/** The boundary of a form's parts is another one each time that the form is read. */
function identity({ url, init }, key) {
  const [, boundary] = /boundary=(\S+)/.exec(init.headers["content-type"]) ?? [];
  const body = typeof init.body === "string" ? init.body : atob(init.body[0]).split(boundary).join();
  return JSON.stringify([url, init.method, body, key]);
}

const filter = (headers, secret) => Object.fromEntries(Object.entries(headers).filter(([name]) => SECRET.test(name) === secret));

const turns = {};

/** Run after all who asked before under this name: in every tab where there are Web Locks, else in this one. */
function alone(name, signal, work) {
  const locks = globalThis.navigator?.locks;
  if (locks) return locks.request(name, { signal }, work);
  const turn = Promise.resolve(turns[name]).then(work);
  const ended = (turns[name] = turn.catch(() => {}).then(() => turns[name] === ended && delete turns[name]));
  return turn;
}

/** Bytes become base64, because every store keeps text. */
function pack(body) {
  return typeof body === "string" ? body : [btoa(Array.from(new Uint8Array(body), (byte) => String.fromCharCode(byte)).join(""))];
}

function unpack(body) {
  return typeof body === "string" ? body : Uint8Array.from(atob(body[0]), (each) => each.charCodeAt(0)).buffer;
}
