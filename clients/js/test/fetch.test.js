import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { promisify } from "node:util";
import * as client from "../node.js";
import { readError } from "../problems.js";
import { SERVICE, alice, executions, startProxy } from "./service.js";

const { newKey } = client;
const quick = { backoff: 1 };
const idempotentFetch = (input, init) => client.createFetch({ origins: [input.url ?? input] })(input, init);
const echo = (proxy, init) => idempotentFetch(`${proxy.url}/conformance/echo`, { method: "POST", body: "{}", ...quick, ...init });
const pay = (base, init, body = {}) =>
  idempotentFetch(`${base}/payments/`, {
    method: "POST",
    headers: alice,
    body: JSON.stringify({ amount: 5, currency: "EUR", customer: "ada", ...body }),
    ...quick,
    ...init,
  });
const keysOf = (proxy) => new Set(proxy.seen.map(({ key }) => key));

test("lost requests and responses are one effect with one key and the same bytes", async (context) => {
  const proxy = await startProxy(context, ["request", "answer", "half", "answer"]);
  const before = await executions();
  const response = await echo(proxy, { body: "once, ünd only once" });
  assert.equal(response.status, 201);
  assert.equal(await response.text(), "once, ünd only once");
  assert.equal(response.headers.get("Idempotency-Replayed"), "true");
  assert.equal(response.url, `${proxy.url}/conformance/echo`);
  assert.equal(await executions(), before + 1);
  assert.equal(proxy.seen.length, 5);
  assert.equal(keysOf(proxy).size, 1);
  assert.equal(new Set(proxy.seen.map(({ body }) => body.toString("hex"))).size, 1);
});

test("each call has a key of its own", async (context) => {
  const proxy = await startProxy(context);
  await Promise.all([echo(proxy), echo(proxy)]);
  assert.equal(keysOf(proxy).size, 2);
  for (const key of keysOf(proxy)) assert.match(key, /^"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"$/);
});

test("a key that is set is never replaced", async (context) => {
  const proxy = await startProxy(context);
  const [inHeaders, asOption, both] = [newKey(), newKey(), newKey()];
  await echo(proxy, { headers: { "idempotency-key": inHeaders } });
  await echo(proxy, { key: asOption });
  await echo(proxy, { headers: new Headers({ "Idempotency-Key": both }), key: newKey() });
  assert.deepEqual(proxy.seen.map(({ key }) => key), [inHeaders, asOption, both]);
});

test("a request without a key is sent once", async (context) => {
  const proxy = await startProxy(context, [{ status: 503 }, "request"]);
  assert.equal((await idempotentFetch(`${proxy.url}/conformance/counter`)).status, 503);
  await assert.rejects(idempotentFetch(`${proxy.url}/conformance/counter`, { method: "PUT", body: "x" }), TypeError);
  assert.deepEqual(proxy.seen.map(({ key }) => key), [undefined, undefined]);
});

test("a Request without a key is sent once, with its body", async (context) => {
  const proxy = await startProxy(context);
  const request = new Request(`${proxy.url}/conformance/echo`, { method: "PUT", body: "x" });
  assert.equal((await idempotentFetch(request)).status, 405);
  assert.deepEqual(proxy.seen.map(({ key, body }) => [key, `${body}`]), [[undefined, "x"]]);
});

test("a GET with a key has no body", async (context) => {
  const proxy = await startProxy(context, [{ status: 503 }]);
  const response = await idempotentFetch(`${proxy.url}/conformance/counter`, { key: newKey(), deadline: 2000, ...quick });
  assert.equal(response.status, 200);
  assert.equal(proxy.seen.length, 2);
});

test("fetch gets its own options with each try", async (context) => {
  const proxy = await startProxy(context, [{ status: 503 }]);
  const usual = globalThis[Symbol.for("undici.globalDispatcher.1")];
  let requests = 0;
  const dispatcher = { dispatch: (...all) => ++requests && usual.dispatch(...all) };
  assert.equal((await echo(proxy, { dispatcher })).status, 201);
  assert.equal(requests, 2);
});

test("a key makes any method one that is retried", async (context) => {
  const proxy = await startProxy(context, [{ status: 503 }]);
  const response = await echo(proxy, { method: "PUT", key: newKey() });
  assert.equal(response.status, 405); // the service's own
  assert.equal(proxy.seen.length, 2);
});

for (const status of [425, 429, 502, 503, 504]) {
  test(`${status} is retried`, async (context) => {
    const proxy = await startProxy(context, [{ status }]);
    assert.equal((await echo(proxy)).status, 201);
    assert.equal(proxy.seen.length, 2);
    assert.equal(keysOf(proxy).size, 1);
  });
}

for (const status of [400, 403, 404, 409, 410, 422, 500]) {
  test(`the service's own ${status} is not`, async (context) => {
    const proxy = await startProxy(context);
    const response = await idempotentFetch(`${proxy.url}/conformance/status/${status}`, { method: "POST", ...quick });
    assert.equal(response.status, status);
    assert.equal(proxy.seen.length, 1);
  });
}

test("a stored 429 is the response", async (context) => {
  const proxy = await startProxy(context);
  const body = { amount: 5, currency: "EUR", customer: "ada", simulate: { status: 429 } };
  const response = await pay(proxy.url, {}, body);
  assert.deepEqual([response.status, response.headers.get("Idempotency-Replayed")], [429, "true"]);
  assert.equal(proxy.seen.length, 2);
});

test("Retry-After is honoured, in seconds and as a date", async (context) => {
  const asDate = { "Retry-After": new Date(Date.now() + 4000).toUTCString() }; // whole seconds
  const proxy = await startProxy(context, [{ status: 503, headers: { "Retry-After": "1" } }, { status: 429, headers: asDate }]);
  assert.equal((await echo(proxy)).status, 201);
  const [first, second, third] = proxy.seen.map(({ at }) => at);
  assert.ok(second - first >= 990 && third - second >= 990, "the pauses are too short");
});

test("a Retry-After beyond the deadline ends the call at once", async (context) => {
  const proxy = await startProxy(context, [{ status: 503, headers: { "Retry-After": "3600" } }]);
  assert.equal((await echo(proxy)).status, 503);
  assert.equal(proxy.seen.length, 1);
});

test("a request in flight is waited for", async (context) => {
  const proxy = await startProxy(context);
  const key = newKey();
  const slow = () => idempotentFetch(`${proxy.url}/conformance/slow?ms=1500`, { method: "POST", key, ...quick });
  const responses = await Promise.all([slow(), slow()]);
  assert.deepEqual(await Promise.all(responses.map((each) => each.text())), ["slept:1500", "slept:1500"]);
  assert.ok(proxy.seen.length > 2);
});

test("InProgress is thrown when the deadline passes", async (context) => {
  const proxy = await startProxy(context);
  const key = newKey();
  const controller = new AbortController();
  const slow = (init) => idempotentFetch(`${proxy.url}/conformance/slow?ms=5000`, { method: "POST", key, ...quick, ...init });
  const first = slow({ signal: controller.signal });
  await once(proxy.server, "seen");
  const error = await slow({ deadline: 1000 }).catch((error) => error);
  assert.ok(error instanceof client.InProgress || error instanceof client.NoResponse, error); // a busy service is late
  controller.abort(new Error("seen enough"));
  await assert.rejects(first, /seen enough/);
});

test("NoResponse names the key and the cause", async (context) => {
  const proxy = await startProxy(context, Array(100).fill("request"));
  const key = newKey();
  const error = await echo(proxy, { key, deadline: 30 }).catch((error) => error);
  assert.ok(error instanceof client.NoResponse);
  assert.deepEqual([error.code, error.key, error.safeNewKey], ["no_response", key, false]);
  assert.ok(error.cause instanceof Error);
});

test("a response that never comes ends with the deadline", async (context) => {
  const proxy = await startProxy(context);
  const hangs = idempotentFetch(`${proxy.url}/conformance/slow?ms=1500`, { method: "POST", deadline: 100 });
  await assert.rejects(hangs, client.NoResponse);
});

test("nothing is sent after the deadline, also if the device slept through it", async (context) => {
  const proxy = await startProxy(context, [{ status: 503, headers: { "Retry-After": "1" } }]);
  const call = echo(proxy, { deadline: 1500 });
  await once(proxy.server, "seen");
  await setTimeout(300);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1500);
  assert.equal((await call).status, 503);
  await setTimeout(100);
  assert.equal(proxy.seen.length, 1);
});

test("times may be infinite", async (context) => {
  const proxy = await startProxy(context, ["answer"]);
  const response = await echo(proxy, { timeout: Infinity, deadline: Infinity, signal: AbortSignal.timeout(5000) });
  assert.equal(response.status, 201);
  assert.equal(proxy.seen.length, 2);
});

test("a signal ends a pause and a try", async (context) => {
  const proxy = await startProxy(context, [{ status: 503, headers: { "Retry-After": "30" } }]);
  const controller = new AbortController();
  const call = echo(proxy, { signal: controller.signal });
  proxy.server.once("seen", () => setImmediate(() => controller.abort(new Error("enough"))));
  await assert.rejects(call, /enough/);
  await assert.rejects(echo(proxy, { signal: AbortSignal.abort(new Error("before")) }), /before/);
  assert.equal(proxy.seen.length, 1);
});

test("a reused key is KeyReused", async () => {
  const key = newKey();
  await pay(SERVICE, { key });
  const error = await pay(SERVICE, { key }, { amount: 6 }).catch((error) => error);
  assert.ok(error instanceof client.KeyReused);
  assert.deepEqual([error.status, error.safeNewKey, error.key], [422, true, key]);
  assert.equal(error.code, "idempotency_key_reused_with_different_payload");
  assert.equal((await error.response.json()).code, error.code);
});

test("a key that cannot be used is KeyRejected", async () => {
  const error = await pay(SERVICE, { key: "a, b" }).catch((error) => error);
  assert.ok(error instanceof client.KeyRejected);
  assert.equal(error.problem.reason, "several_values");
});

test("an unknown outcome is asked about within a budget of its own", async (context) => {
  const unknown = { status: 409, headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code: "idempotency_outcome_unknown" }) };
  const proxy = await startProxy(context, [undefined, unknown, unknown]); // the service itself asks for more than 5 seconds
  const key = newKey();
  assert.equal((await pay(proxy.url, { key }, { simulate: { fail: "after" } })).status, 500);
  const error = await pay(proxy.url, { key, unknownFor: 5000 }, { simulate: { fail: "after" } }).catch((error) => error);
  assert.ok(error instanceof client.OutcomeUnknown, error);
  assert.match(error.operationRef, /^[0-9a-f-]{36}$/);
  assert.equal(error.safeNewKey, false);
  assert.equal(proxy.seen.length, 4);
});

test("accepted work is followed to its response", async (context) => {
  const proxy = await startProxy(context);
  const done = [];
  const work = () => promisify(execFile)(process.env.PYTHON, ["manage.py", "idempotency_work"], { cwd: process.env.ROOT });
  const response = await idempotentFetch(`${proxy.url}/exports/`, {
    method: "POST",
    headers: alice,
    body: "{}",
    wait: true,
    onProgress: (progress) => done.push(progress) === 1 && work(),
  });
  assert.equal(response.status, 201);
  assert.match(await response.text(), /^customer,payments,amount/);
  assert.ok(done.length >= 1);
  assert.deepEqual(proxy.seen.map(({ method }) => method).slice(0, 2), ["POST", "GET"]);
  assert.equal(proxy.seen[1].headers.authorization, alice.Authorization);
});

test("a 202 is a response where nothing is to be followed", async () => {
  const response = await idempotentFetch(`${SERVICE}/exports/`, { method: "POST", headers: alice, body: "{}" });
  assert.equal(response.status, 202);
});

test("accepted work that was not executed is NothingDone", async (context) => {
  const accepted = { status: 202, headers: { Location: "/work/1", "Retry-After": "1" } };
  const undone = { status: 409, headers: { "Content-Type": "application/json" }, body: JSON.stringify({ code: "idempotency_not_executed", effect: "none" }) };
  const proxy = await startProxy(context, [accepted, undone]);
  await assert.rejects(echo(proxy, { wait: true, deadline: 900 }), client.NothingDone);
  assert.deepEqual(proxy.seen.map(({ method, url }) => `${method} ${url}`), ["POST /conformance/echo", "GET /work/1"]);
});

test("credentials are not sent to another origin: the same request gets the response later, too", async (context) => {
  const other = await startProxy(context);
  const elsewhere = [other.url, other.url.replace("http:", ""), `${other.url.replace("//", "//x@")}`];
  const proxy = await startProxy(context, elsewhere.map((origin) => ({ status: 202, headers: { Location: `${origin}/steal` } })));
  assert.equal((await echo(proxy, { wait: true })).status, 201);
  assert.equal(other.seen.length, 0);
  assert.equal(keysOf(proxy).size, 1);
});

test("the time for accepted work is not cut by a failure of the service", async (context) => {
  const proxy = await startProxy(context);
  const accepted = { status: 202, headers: { Location: "http://elsewhere.example/1", "Retry-After": "1" } };
  proxy.faults.push(accepted, { status: 503 }, "request");
  assert.equal((await echo(proxy, { wait: true, deadline: 900 })).status, 201);
  assert.equal(proxy.seen.length, 4);
});

test("Stripe's dialect has the same errors", async () => {
  const key = newKey();
  const charge = (amount) =>
    idempotentFetch(`${SERVICE}/v1/charges`, {
      method: "POST",
      headers: { Authorization: "Bearer sk_test_alice" },
      body: new URLSearchParams({ amount, currency: "eur", source: "tok_visa" }),
      key,
    });
  assert.equal((await charge("5")).status, 200);
  assert.equal((await charge("5")).headers.get("Idempotent-Replayed"), "true");
  const error = await charge("6").catch((error) => error);
  assert.ok(error instanceof client.KeyReused, error);
  assert.equal(error.status, 400);
  const itself = { error: { type: "idempotency_error", message: "Keys for idempotent requests can only be used …" } };
  assert.ok(readError({ status: 400 }, itself) instanceof client.KeyReused);
  const running = { error: { type: "idempotency_error", code: "idempotency_key_in_use", message: "…" } };
  assert.ok(readError({ status: 409 }, running) instanceof client.InProgress);
  for (const code of ["card_declined", "constructor"]) {
    assert.ok(!readError({ status: 402 }, { error: { type: "card_error", code } }));
  }
});

test("a stream is refused before the first try", async (context) => {
  const proxy = await startProxy(context);
  async function* generated() {
    yield "x";
  }
  for (const body of [new Blob(["x"]).stream(), generated()]) {
    await assert.rejects(echo(proxy, { body, duplex: "half" }), /cannot be sent twice/);
  }
  assert.equal(proxy.seen.length, 0);
});

test("every other body is sent twice with the same bytes and type", async (context) => {
  const form = new FormData();
  form.append("file", new Blob([new Uint8Array([0, 255, 10])]), "a.bin");
  const bodies = [form, new URLSearchParams("a=1"), new Blob(["b"], { type: "text/x" }), new Uint8Array([0, 255]), "täxt", null];
  for (const body of bodies) {
    const proxy = await startProxy(context, ["answer"]);
    const response = await echo(proxy, { body });
    const [first, second] = proxy.seen;
    assert.deepEqual(first.body, second.body);
    assert.equal(first.headers["content-type"], second.headers["content-type"]);
    assert.deepEqual(Buffer.from(await response.arrayBuffer()), first.body);
  }
});

test("a Request can be passed", async (context) => {
  const proxy = await startProxy(context, ["answer"]);
  const response = await idempotentFetch(new Request(`${proxy.url}/conformance/echo`, { method: "POST", body: "x" }), quick);
  assert.equal(await response.text(), "x");
  const aborted = new Request(`${proxy.url}/conformance/echo`, { method: "POST", signal: AbortSignal.abort(new Error("its own")) });
  await assert.rejects(idempotentFetch(aborted, quick), /its own/);
  assert.equal(proxy.seen.length, 2);
});

test("a key is random without randomUUID", () => {
  const native = Object.getOwnPropertyDescriptor(globalThis, "crypto");
  const real = crypto;
  const getRandomValues = (array) => real.getRandomValues(array);
  Object.defineProperty(globalThis, "crypto", { value: { getRandomValues }, configurable: true });
  try {
    const keys = new Set(Array.from({ length: 1000 }, newKey));
    assert.equal(keys.size, 1000);
    for (const key of keys) assert.match(key, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  } finally {
    Object.defineProperty(globalThis, "crypto", native);
  }
});

const problem = (status, code, members) => ({
  status,
  headers: { "Content-Type": "application/json", ...(status === 503 && { "Retry-After": "0" }) },
  body: JSON.stringify({ code: `idempotency_${code}`, detail: "why", ...members }),
});

for (const [status, code] of [[503, "store_unavailable"], [503, "not_executed"], [403, "principal_missing"]]) {
  const last = { ...problem(status, code), headers: { "Retry-After": "3600" } };
  const first = problem(503, "not_executed");

  test(`${code} is not proof if an earlier try may have had an effect`, async (context) => {
    for (const earlier of ["request", "half", { status: 502 }, problem(409, "outcome_unknown")]) {
      const proxy = await startProxy(context, [earlier, first, last]);
      const error = await echo(proxy).catch((error) => error);
      assert.ok(error instanceof client.OutcomeUnknown, error);
      assert.match(error.message, /earlier try/);
      assert.deepEqual([error.status, error.key, error.safeNewKey], [status, proxy.seen[0].key, false]);
    }
  });

  test(`${code} is proof if every try got such an error`, async (context) => {
    const proxy = await startProxy(context, [first, first, last]);
    await assert.rejects(echo(proxy), status === 503 ? client.NothingDone : client.KeyRejected);
  });
}

test("the service itself proves that no try had an effect", async (context) => {
  const proxy = await startProxy(context, ["request", problem(408, "work_abandoned", { effect: "none", safe_new_key: true })]);
  await assert.rejects(echo(proxy), client.NothingDone);
});

test("the service itself is in doubt", async (context) => {
  const proxy = await startProxy(context, [problem(500, "attempts_exhausted", { effect: "possible" })]);
  await assert.rejects(echo(proxy), client.OutcomeUnknown);
});

test("a response that the service could not store is neither a success nor sent again", async (context) => {
  const lost = problem(409, "response_not_stored", { effect: "done", first_status: 201, safe_new_key: false });
  const proxy = await startProxy(context, ["request", lost]);
  const error = await echo(proxy).catch((error) => error);
  assert.ok(error instanceof client.ResponseLost, error);
  assert.deepEqual([error.problem.effect, error.problem.first_status, error.safeNewKey], ["done", 201, false]);
  assert.equal(proxy.seen.length, 2);
});

test("what was sent before with a key of one's own is not known", async (context) => {
  const unavailable = { ...problem(503, "store_unavailable"), headers: { "Retry-After": "3600" } };
  const proxy = await startProxy(context, [unavailable, problem(400, "key_invalid")]);
  await assert.rejects(echo(proxy, { key: newKey() }), client.OutcomeUnknown);
  await assert.rejects(echo(proxy, { key: newKey() }), client.KeyRejected);
});

test("a service that was not named gets one try and no key", async (context) => {
  const proxy = await startProxy(context, [{ status: 503 }, { status: 503 }]);
  const send = client.createFetch({ origins: ["https://api.example.com"], ...quick });
  assert.equal((await send(proxy.url, { method: "POST", body: "x" })).status, 503);
  assert.equal((await send(proxy.url, { method: "POST", headers: { "Idempotency-Key": "mine" } })).status, 503);
  assert.deepEqual(proxy.seen.map(({ key }) => key), [undefined, "mine"]);
  await assert.rejects(send(proxy.url, { method: "POST", key: newKey() }), client.OtherOrigin);
  assert.equal(proxy.seen.length, 2);
});

test("origins are addresses", () => {
  for (const origins of [undefined, "https://api.example.com", ["api.example.com"], ["/"], ["https://"]]) {
    assert.throws(() => client.createFetch({ origins }), TypeError);
  }
  assert.ok(client.createFetch({ origins: ["https://API.example.com:443/v1/"] }));
});

test("a redirect takes nothing to another host", async (context) => {
  const other = await startProxy(context);
  for (const status of [301, 302, 303, 307, 308]) {
    const proxy = await startProxy(context, [{ status, headers: { Location: `${other.url}/steal` } }]);
    const init = { headers: { "X-Api-Key": "secret" }, body: "card" };
    const response = await client.createFetch({ origins: [proxy.url, other.url] })(proxy.url, { method: "POST", ...init });
    assert.deepEqual([response.status, response.headers.get("Location")], [status, `${other.url}/steal`]);
  }
  assert.equal(other.seen.length, 0);
});
