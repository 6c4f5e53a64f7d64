// A driver of benchmarks.lossy_network: fetch in Node, with an outbox in a folder. benchmarks/lossy_network.py says how it is called.
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { createOutbox, fileStore } from "../node.js";

const [base, calls, folder, results] = process.argv.slice(2);
const headers = { Authorization: `Token ${process.env.TOKEN}`, "Content-Type": "application/json" };
const outbox = createOutbox({ origins: [base], store: fileStore(folder), headers: () => headers, backoff: 50, timeout: 700, deadline: 120_000 });
const lines = existsSync(results) ? readFileSync(results, "utf8").split("\n").filter(Boolean) : [];
const done = new Set(lines.map((line) => JSON.parse(line).name));
const names = Array.from({ length: Number(calls) }, (_, number) => `call-${number}`).filter((name) => !done.has(name));

async function work() {
  for (let name; (name = names.shift()); ) {
    const body = JSON.stringify({ reference: name, customer: name, amount: 1000, currency: "EUR" });
    const response = await outbox.once(name, `${base}/payments/`, { method: "POST", headers, body });
    appendFileSync(results, `${JSON.stringify({ name, status: response.status, body: await response.text() })}\n`);
  }
}

await outbox.resume();
await Promise.all(Array.from({ length: 8 }, work));
