import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, readdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import * as client from "../node.js";
import { SERVICE, alice, executions, origins, startProxy } from "./service.js";

const { fileStore, keyValueStore } = client;
const createOutbox = (options) => client.createOutbox({ origins, ...options });
const folder = () => mkdtemp(join(tmpdir(), "outbox-"));
const quick = { backoff: 1 };
const offline = Array(10_000).fill("request");
const order = (body = "lamp", init) => ({ method: "POST", body, ...init });

/** React Native's AsyncStorage, as far as a store needs it. */
function asyncStorage() {
  const entries = new Map();
  const later = (value) => new Promise((resolve) => setImmediate(resolve, value));
  return {
    getItem: (key) => later(entries.get(key) ?? null),
    setItem: async (key, value) => (await later(), void entries.set(key, value)),
    removeItem: async (key) => (await later(), void entries.delete(key)),
    getAllKeys: () => later([...entries.keys()]),
  };
}

const STORES = { files: async () => fileStore(await folder()), "AsyncStorage": async () => keyValueStore(asyncStorage()) };

for (const [name, makeStore] of Object.entries(STORES)) {
  test(`${name}: a name is one call, now and later`, async (context) => {
    const proxy = await startProxy(context);
    const store = await makeStore();
    const before = await executions();
    const call = () => createOutbox({ store, ...quick }).once("order/17 ü", `${proxy.url}/conformance/echo`, order());
    const both = await Promise.all([call(), call()]);
    const later = await call();
    assert.deepEqual(await Promise.all([...both, later].map((each) => each.text())), ["lamp", "lamp", "lamp"]);
    assert.equal(await executions(), before + 1);
    assert.equal(proxy.seen.length, 1);
  });

  test(`${name}: what failed is resumed with its key and bytes`, async (context) => {
    const proxy = await startProxy(context, ["answer", ...offline]);
    const store = await makeStore();
    const before = await executions();
    const outbox = createOutbox({ store, ...quick, deadline: 200 });
    const binary = Buffer.from([0, 255, 13, 10, 128]);
    await assert.rejects(outbox.once("first", `${proxy.url}/conformance/echo`, order("lamp")), client.NoResponse);
    await assert.rejects(outbox.once("second", `${proxy.url}/conformance/echo`, order(binary)), client.NoResponse);
    const failed = await outbox.resume({ deadline: 20 });
    assert.deepEqual(failed.map(({ name, error }) => [name, error?.code]), [["first", "no_response"], ["second", "no_response"]]);
    proxy.faults.splice(0);
    const resumed = await createOutbox({ store, ...quick }).resume();
    assert.deepEqual(resumed.map(({ name }) => name), ["first", "second"]);
    assert.equal(resumed[0].response.headers.get("Idempotency-Replayed"), "true");
    const again = await outbox.once("second", `${proxy.url}/conformance/echo`, order(binary));
    assert.deepEqual(Buffer.from(await again.arrayBuffer()), binary);
    assert.equal(await executions(), before + 2);
    assert.deepEqual(new Set(proxy.seen.map(({ key }) => key)).size, 2);
    assert.deepEqual(await createOutbox({ store }).resume(), []);
  });

  test(`${name}: another request under a name is refused`, async (context) => {
    const proxy = await startProxy(context);
    const outbox = createOutbox({ store: await makeStore(), ...quick });
    const url = `${proxy.url}/conformance/echo`;
    await outbox.once("order", url, order("lamp", { key: "a-key-of-mine-0001" }));
    for (const [other, init] of [[url, order("sofa")], [`${url}?x`, order()], [url, order("lamp", { method: "PATCH" })], [url, order("lamp", { key: "another-key-0002" })], [url, order("lamp", { headers: { "Idempotency-Key": "another-key-0003" } })]]) {
      const error = await outbox.once("order", other, init).catch((error) => error);
      assert.ok(error instanceof client.ChangedRequest, error);
    }
    assert.equal(proxy.seen.length, 1);
    await outbox.forget("order");
    assert.equal(await (await outbox.once("order", url, order("sofa"))).text(), "sofa");
  });
}

test("a process that is killed between sending and receiving leaves what the next one needs", async (context) => {
  const proxy = await startProxy(context);
  const path = await folder();
  const before = await executions();
  const program = `
    import { createOutbox, fileStore } from "./node.js";
    const outbox = createOutbox({ origins: ["${proxy.url}"], store: fileStore(${JSON.stringify(path)}) });
    await outbox.once("order-17", "${proxy.url}/conformance/slow?ms=200", { method: "POST" });`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], { cwd: new URL("..", import.meta.url) });
  await once(proxy.server, "seen");
  child.kill("SIGKILL");
  await once(child, "exit");
  const [{ name, response }] = await createOutbox({ store: fileStore(path), ...quick }).resume();
  assert.deepEqual([name, await response.text()], ["order-17", "slept:200"]);
  assert.equal(await executions(), before + 1);
  assert.equal(new Set(proxy.seen.map(({ key }) => key)).size, 1);
});

test("credentials are not stored, and come from headers() when a call is resumed", async (context) => {
  const proxy = await startProxy(context, [...offline]);
  const path = await folder();
  const store = fileStore(path);
  const secrets = { Authorization: "Token alice-token", Cookie: "sessionid=s3cret", "X-CSRFToken": "s3cret", "X-Api-Key": "s3cret" };
  const body = JSON.stringify({ amount: 5, currency: "EUR", customer: "ada" });
  const call = createOutbox({ store, ...quick, deadline: 50 }).once("pay", `${proxy.url}/payments/`, order(body, { headers: { ...secrets, "Content-Type": "application/json" } }));
  await assert.rejects(call, client.NoResponse);
  for (const file of await readdir(path)) assert.doesNotMatch(await readFile(join(path, file), "utf8"), /alice-token|s3cret/);

  proxy.faults.splice(0);
  const [unauthorized] = await createOutbox({ store }).resume();
  assert.equal(unauthorized.response.status, 401);
  const headers = () => ({ Authorization: "Token alice-token" });
  const [paid] = await createOutbox({ store, headers }).resume();
  assert.equal(paid.response.status, 201);
  assert.equal(proxy.seen[0].headers["x-api-key"], "s3cret");
  assert.equal(proxy.seen.at(-1).headers["content-type"], "application/json");
});

test("credentials that the service sends are not stored", async (context) => {
  const proxy = await startProxy(context, [{ status: 200, headers: { "Set-Cookie": "sessionid=s3cret", "Content-Type": "text/plain" } }]);
  const store = fileStore(await folder());
  const call = () => createOutbox({ store }).once("login", `${proxy.url}/conformance/echo`, order());
  assert.equal((await call()).headers.get("set-cookie"), "sessionid=s3cret");
  assert.doesNotMatch(await store.get("login"), /s3cret/);
  assert.equal((await call()).headers.get("content-type"), "text/plain");
});

test("a resumed call has its key, whatever the header is called", async (context) => {
  const proxy = await startProxy(context, ["request", ...offline]);
  const outbox = createOutbox({ store: fileStore(await folder()), header: "X-Session-Token", ...quick, deadline: 50 });
  await assert.rejects(outbox.once("named", `${proxy.url}/conformance/echo`, order()), client.NoResponse);
  proxy.faults.splice(0);
  await outbox.resume();
  const keys = new Set(proxy.seen.map(({ headers }) => headers["x-session-token"]));
  assert.match([...keys].join(), /^"[0-9a-f-]{36}"$/);
});

for (const [what, faults] of Object.entries({
  "a redirect to a login": [{ status: 302, headers: { Location: "/login" }, body: "Log in" }],
  "a route that is away": [{ status: 404, body: "Not found" }],
})) {
  test(`${what} is not the response of a name`, async (context) => {
    const proxy = await startProxy(context, faults);
    const { status, body } = faults.at(-1);
    const outbox = createOutbox({ store: fileStore(await folder()), ...quick });
    const first = await outbox.once("order", `${proxy.url}/conformance/echo`, order());
    assert.deepEqual([first.status, await first.text()], [status, body]);
    const [{ response }] = await outbox.resume();
    assert.deepEqual([response.status, await response.text()], [201, "lamp"]);
  });
}

test("an empty response is the response of its name", async (context) => {
  const proxy = await startProxy(context, [{ status: 204 }]);
  const call = () => outbox.once("empty", `${proxy.url}/conformance/echo`, order());
  const outbox = createOutbox({ store: fileStore(await folder()) });
  for (const response of [await call(), await call()]) assert.deepEqual([response.status, await response.text()], [204, ""]);
  assert.equal(proxy.seen.length, 1);
});

test("a response that cannot be stored is returned, and its name stays open", async (context) => {
  const proxy = await startProxy(context);
  const storage = asyncStorage();
  const setItem = async (key, value) => {
    if (value.length > 1200) throw new DOMException("full", "QuotaExceededError");
    return storage.setItem(key, value);
  };
  const outbox = createOutbox({ store: keyValueStore({ ...storage, setItem }), ...quick });
  const body = "x".repeat(500);
  const responses = [await outbox.once("large", `${proxy.url}/conformance/echo`, order(body)), (await outbox.resume())[0].response];
  assert.deepEqual(await Promise.all(responses.map((each) => each.text())), [body, body]);
  assert.equal(responses[1].headers.get("Idempotency-Replayed"), "true");
  await assert.rejects(outbox.once("larger", `${proxy.url}/conformance/echo`, order("x".repeat(1200))), { name: "QuotaExceededError" });
  assert.equal(proxy.seen.length, 2);
});

test("a call that is aborted before it was sent is not stored", async (context) => {
  const proxy = await startProxy(context);
  const store = fileStore(await folder());
  const outbox = createOutbox({ store, ...quick });
  const url = `${proxy.url}/conformance/echo`;
  const signal = AbortSignal.abort(new Error("changed my mind"));
  await assert.rejects(outbox.once("option", url, order("lamp", { signal })), /changed my mind/);
  await assert.rejects(outbox.once("request", new Request(url, order("lamp", { signal }))), /changed my mind/);
  assert.deepEqual(await store.names(), []);
});

test("a refusal is the response of its name, an unknown outcome is not", async () => {
  const outbox = createOutbox({ store: fileStore(await folder()), headers: () => alice, unknownFor: 50 });
  const pay = (name, body) => outbox.once(name, `${SERVICE}/payments/`, order(JSON.stringify({ currency: "EUR", customer: "ada", ...body }), { headers: alice }));
  assert.equal((await pay("wrong", { amount: -1 })).status, 400);
  assert.equal((await pay("lost", { amount: 5, simulate: { fail: "after" } })).status, 500);
  const resumed = await outbox.resume();
  assert.deepEqual(resumed.map(({ name, error }) => [name, error?.code]), [["lost", "idempotency_outcome_unknown"]]);
});

test("the same form is the same request", async (context) => {
  const proxy = await startProxy(context);
  const outbox = createOutbox({ store: fileStore(await folder()), ...quick });
  const submit = (value) => {
    const form = new FormData();
    form.append("field", value);
    return outbox.once("form", `${proxy.url}/conformance/echo`, order(form));
  };
  assert.deepEqual(await (await submit("a")).arrayBuffer(), await (await submit("a")).arrayBuffer());
  await assert.rejects(submit("b"), client.ChangedRequest);
  assert.equal(proxy.seen.length, 1);
});

test("a 403 is final when the service has stored it", async () => {
  const outbox = createOutbox({ store: fileStore(await folder()) });
  assert.equal((await outbox.once("forbidden", `${SERVICE}/conformance/status/403`, order())).status, 403);
  const [{ response }] = await outbox.resume();
  assert.deepEqual([response.status, response.headers.get("Idempotency-Replayed")], [403, "true"]);
  assert.deepEqual(await outbox.resume(), []);
});

test("a call that the service may have forgotten is not sent", async (context) => {
  const proxy = await startProxy(context, [...offline]);
  const store = fileStore(await folder());
  await assert.rejects(createOutbox({ store, ...quick, deadline: 50 }).once("old", `${proxy.url}/conformance/echo`, order()), client.NoResponse);
  proxy.faults.splice(0);
  const [{ error }] = await createOutbox({ store, retention: -1 }).resume();
  assert.ok(error instanceof client.TooOld);
});

test("a call that a wrong clock has dated into the future is not sent", async (context) => {
  const proxy = await startProxy(context, [...offline]);
  const store = fileStore(await folder());
  await assert.rejects(createOutbox({ store, ...quick, deadline: 50 }).once("future", `${proxy.url}/conformance/echo`, order()), client.NoResponse);
  const entry = JSON.parse(await store.get("future"));
  await store.set("future", JSON.stringify({ ...entry, at: entry.at + 365 * 86_400_000 }));
  proxy.faults.splice(0);
  const [{ error }] = await createOutbox({ store }).resume();
  assert.ok(error instanceof client.TooOld);
});

test("finished calls are deleted when the service has forgotten them", async () => {
  const store = fileStore(await folder());
  await createOutbox({ store }).once("done", `${SERVICE}/conformance/echo`, order());
  assert.deepEqual(await createOutbox({ store }).resume(), []);
  assert.deepEqual(await store.names(), ["done"]);
  assert.deepEqual(await createOutbox({ store, retention: -1 }).resume(), []);
  assert.deepEqual(await store.names(), []);
});

test("nothing is sent when the store fails", async (context) => {
  const proxy = await startProxy(context);
  const store = fileStore("/dev/null/outbox");
  await assert.rejects(createOutbox({ store }).once("x", `${proxy.url}/conformance/echo`, order()), { code: "ENOTDIR" });
  assert.equal(proxy.seen.length, 0);
});

test("of two that add a name, one does", async () => {
  const path = await folder();
  const add = (number) => fileStore(path).add("name", `${number}`).then(() => fileStore(path).get("name"));
  const found = await Promise.all(Array.from({ length: 20 }, (_, number) => add(number)));
  assert.equal(new Set(found).size, 1);
  assert.deepEqual(await readdir(path), ["name.json"]);
});

test("an outbox resumes the calls of its own service, and names the address to headers()", async (context) => {
  const [bank, mailer] = [await startProxy(context, [...offline]), await startProxy(context, [...offline])];
  const store = fileStore(await folder());
  for (const { url } of [bank, mailer]) {
    await assert.rejects(createOutbox({ store, ...quick, deadline: 20 }).once(url, `${url}/conformance/echo`, order()), client.NoResponse);
  }
  for (const { faults, seen } of [bank, mailer]) faults.splice(0), seen.splice(0);
  const asked = [];
  const headers = (url) => (asked.push(url), { "X-Api-Key": "of the bank" });
  const resumed = await client.createOutbox({ store, headers, origins: [bank.url] }).resume();
  assert.deepEqual(resumed.map(({ name, response }) => [name, response?.status]), [[bank.url, 201]]);
  assert.deepEqual([mailer.seen, asked], [[], [`${bank.url}/conformance/echo`]]);
  assert.deepEqual((await createOutbox({ store }).resume()).map(({ name }) => name), [mailer.url]);
});

test("a call to a service that was not named is neither stored nor sent", async (context) => {
  const proxy = await startProxy(context);
  const store = fileStore(await folder());
  const outbox = client.createOutbox({ store, origins: ["https://api.example.com"] });
  await assert.rejects(outbox.once("order", proxy.url, order()), client.OtherOrigin);
  assert.deepEqual([await store.names(), proxy.seen], [[], []]);
});

test("what another process has sent of a call is not known", async (context) => {
  for (const [status, code] of [[503, "store_unavailable"], [403, "principal_missing"]]) {
    const answer = { status, headers: { "Retry-After": "3600" }, body: JSON.stringify({ code: `idempotency_${code}`, detail: "why" }) };
    const proxy = await startProxy(context, ["answer", ...offline]);
    const outbox = createOutbox({ store: fileStore(await folder()), ...quick });
    await assert.rejects(outbox.once("order", `${proxy.url}/conformance/echo`, order("lamp", { deadline: 200 })), client.NoResponse);
    proxy.faults.splice(0, Infinity, answer);
    const [{ error }] = await outbox.resume();
    assert.ok(error instanceof client.OutcomeUnknown, error);
  }
});
