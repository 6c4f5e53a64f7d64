import { perform, prepare, unwrap } from "./fetch.js";
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
    if (response) return new Response(response.body && unpack(response.body), response);
    if (isOld(entry)) throw new TooOld("too_old", `"${name}" is too old: the service may have forgotten its key.`, key);
    const sent = new Headers({ ...init.headers, ...given });
    for (const [header, value] of Object.entries(await headers())) sent.set(header, value);
    const answer = await perform({ ...entry, init: { ...init, headers: sent, body: unpack(init.body) } }, options);
    const { status, headers: received } = answer.response;
    const mayChange = answer.state || /40[138]|5../.test(status); // after a login, say
    if (!answer.kind && (answer.replayed || !mayChange)) {
      const body = [204, 205, 304].includes(status) ? null : pack(answer.body);
      await store.set(name, JSON.stringify({ ...entry, response: { status, headers: [...received], body } }));
    }
    return unwrap(answer, key);
  }

  return {
    /** Make the call of this name, continue it, or return the response that it got. */
    async once(name, input, init) {
      const options = { ...defaults, ...init };
      const call = await prepare(input, options);
      if (!call) throw new TypeError(`"${name}" needs a key: its method gets none by itself.`);
      const names = Object.keys(call.init.headers).filter((each) => !SECRET.test(each));
      const kept = Object.fromEntries(names.map((each) => [each, call.init.headers[each]]));
      const written = { ...call, at: Date.now(), init: { ...call.init, headers: kept, body: pack(call.init.body) } };
      return alone(store.name + name, options.signal, async () => {
        const entry = (await store.add(name, JSON.stringify(written))) ? written : await load(name);
        if (identity(entry, call.given ?? entry.key) !== identity(written, entry.key)) {
          throw new ChangedRequest("changed_request", `"${name}" was another request. Nothing was sent.`, entry.key);
        }
        return finish(name, entry, options, { ...call.init.headers, ...entry.init.headers });
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

/** The boundary of a form's parts is another one each time that the form is read. */
function identity({ url, init }, key) {
  const [, boundary] = /boundary=(\S+)/.exec(init.headers["content-type"]) ?? [];
  const body = typeof init.body === "string" ? init.body : atob(init.body[0]).split(boundary).join();
  return JSON.stringify([url, init.method, body, key]);
}

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
