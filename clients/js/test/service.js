// The real service at SERVICE_URL, behind a proxy that can lose what passes through it.
import { createServer, request } from "node:http";
import { once } from "node:events";

export const SERVICE = process.env.SERVICE_URL;
export const alice = { Authorization: "Token alice-token", "Content-Type": "application/json" };

/** The service, and every proxy before it. */
export const origins = [SERVICE];

/** How often a view of /conformance/ ran so far. */
export async function executions() {
  return (await (await fetch(`${SERVICE}/conformance/counter`)).json()).count;
}

/**
 * Each request takes the next fault of `faults`; without one it passes.
 * "request": the connection is cut before the request is forwarded. "answer": after the service has answered.
 * "half": half of the response is sent, then the connection is cut. An object is the proxy's own response.
 */
export async function startProxy(context, faults = []) {
  const seen = [];
  const server = createServer(async (incoming, outgoing) => {
    const chunks = [];
    for await (const chunk of incoming) chunks.push(chunk);
    const body = Buffer.concat(chunks);
    const { method, url, headers } = incoming;
    seen.push({ method, url, headers, body, key: headers["idempotency-key"], at: Date.now() });
    server.emit("seen", seen.length);
    const fault = faults.shift();
    if (fault === "request") return incoming.socket.destroy();
    if (fault?.status) return outgoing.writeHead(fault.status, fault.headers).end(fault.body);
    const forwarded = request(SERVICE + url, { method, headers });
    forwarded.end(body);
    const [answer] = await once(forwarded, "response");
    const bytes = Buffer.concat(await answer.toArray());
    if (fault === "answer") return incoming.socket.destroy();
    outgoing.writeHead(answer.statusCode, answer.headers);
    if (fault !== "half") return outgoing.end(bytes);
    outgoing.write(bytes.subarray(0, bytes.length / 2), () => incoming.socket.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => (server.closeAllConnections(), server.close()));
  const url = `http://127.0.0.1:${server.address().port}`;
  origins.push(url);
  return { url, seen, server, faults };
}
