import { createOutbox, newKey, NoResponse, OutcomeUnknown } from "../client/index.js";

const api = new URLSearchParams(location.search).get("api") ?? "";
const origins = [api || location.origin];
const outbox = createOutbox({ origins, headers: () => ({ Authorization: "Token alice-token" }), deadline: 20_000 });
const [form] = document.forms;
const list = document.querySelector("ol");
const TEXTS = { sending: "Sending …", waiting: "Waiting for the connection", unknown: "Outcome not known yet", refused: "Refused" };

// What the page shows. The outbox keeps the requests and their responses.
const load = () => JSON.parse(localStorage.getItem("orders") ?? "[]");

function save(order) {
  const others = load().filter(({ name }) => name !== order.name);
  localStorage.setItem("orders", JSON.stringify([order, ...others].sort((one, other) => other.at - one.at)));
  show();
}

function show() {
  list.replaceChildren(...load().map(draw));
}

function draw({ amount, customer, state, id }) {
  const item = document.createElement("li");
  item.dataset.state = state === "sending" && !navigator.onLine ? "waiting" : state;
  for (const text of [`${(amount / 100).toFixed(2)} EUR, ${customer}`, state === "paid" ? `Paid, number ${id}` : TEXTS[item.dataset.state]]) {
    item.append(Object.assign(document.createElement("span"), { textContent: text }));
  }
  return item;
}

async function send(order) {
  save({ ...order, state: "sending" });
  const { name, amount, customer } = order;
  try {
    const body = JSON.stringify({ amount, currency: "EUR", customer });
    const response = await outbox.once(name, `${api}/payments/`, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    const { id } = await response.json();
    save({ ...order, state: response.ok ? "paid" : "refused", id });
    if (form.dataset.name === name) renew(); // whoever clicks now has seen the result and wants another one
  } catch (error) {
    save({ ...order, state: error instanceof OutcomeUnknown ? "unknown" : error instanceof NoResponse ? "waiting" : "refused" });
  }
}

const sendOpen = () => load().filter(({ state }) => ["sending", "waiting", "unknown"].includes(state)).forEach(send);

// The name belongs to the form as a person sees it: two clicks are one payment, a changed form is another one.
const renew = () => (form.dataset.name = newKey());
renew();
form.addEventListener("input", renew);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const { amount, customer } = Object.fromEntries(new FormData(form));
  send({ name: form.dataset.name, at: Date.now(), amount: Number(amount), customer });
});
addEventListener("online", sendOpen);
addEventListener("offline", show);
addEventListener("storage", show);
show();
sendOpen();
