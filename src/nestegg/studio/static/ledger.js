// Accounts, some at a time; what is searched for is the query of the page's address.
import { $, ask, complain, epsilon, line, make } from "./page.js";

const body = $("accounts").tBodies[0];
let asking;

async function show() {
  const query = new URLSearchParams(location.search);
  $("prefix").value ||= query.get("prefix") ?? "";
  $("run").value = query.get("run") ?? "";
  $("back").hidden = !query.get("after");
  asking?.abort();
  asking = new AbortController();
  try {
    const found = await ask(`/ledger/accounts?${query}`, asking.signal);
    complain();
    body.replaceChildren(...found.rows.map(rowOf));
    $("more").hidden = found.more === null;
    $("more").dataset.after = found.more ?? "";
    $("count").textContent = found.rows.length ? "" : "No client has such a name.";
    document.body.dataset.shown = query.toString();
  } catch (error) {
    if (error.name !== "AbortError") complain(error.message);
  }
}

function rowOf(one) {
  const link = make("a", { href: `/ledger/client?${new URLSearchParams({ client: one.client })}` }, one.client);
  const gone = one.withdrawn ? [make("small", {}, "withdrawn")] : [];
  const button = make("button", { type: "button" }, "Compute");
  button.setAttribute("aria-label", `Compute what ${one.client} has spent by PLD`);
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const found = await ask(`/ledger/pld?${new URLSearchParams({ client: one.client })}`);
      button.replaceWith(epsilon(found.epsilon_pld));
    } catch (error) {
      button.disabled = false;
      complain(error.message);
    }
  });
  const bar = make("meter", { max: one.epsilon, low: one.epsilon / 2, high: 0.9 * one.epsilon, optimum: 0, value: one.epsilon_spent ?? one.epsilon });
  bar.setAttribute("aria-label", `Share of the budget that ${one.client} has spent`);
  return line([link, ...gone], String(one.epsilon), String(one.delta), [epsilon(one.epsilon_spent), bar], epsilon(one.epsilon_left),
    one.runs ? [button] : "0.000", one.account, String(one.runs));
}

function go(changes) {
  const query = new URLSearchParams(location.search);
  for (const [key, value] of Object.entries(changes)) value ? query.set(key, value) : query.delete(key);
  history[changes.after ? "pushState" : "replaceState"](null, "", query.size ? `?${query}` : location.pathname);
  show();
}

$("prefix").addEventListener("input", () => go({ prefix: $("prefix").value.trim(), after: "" }));
$("run").addEventListener("change", () => go({ run: $("run").value, after: "" }));
$("more").addEventListener("click", () => go({ after: $("more").dataset.after }));
$("back").addEventListener("click", () => go({ after: "" }));
window.addEventListener("popstate", () => { $("prefix").value = ""; show(); });
$("verify").addEventListener("click", async () => {
  $("verify").disabled = true;
  $("verified").textContent = "Reading the log …";
  try {
    const found = await ask("/ledger/verify");
    const gone = found.withdrawn ? ` (${found.withdrawn.toLocaleString("en")} withdrawn)` : "";
    $("verified").textContent = `Verified on ${found.day}: ${found.entries.toLocaleString("en")} entries, ${found.clients.toLocaleString("en")} clients${gone}, nobody is over budget. Head ${found.head}`;
    $("verified").className = "good";
  } catch (error) {
    $("verified").textContent = error.message;
    $("verified").className = "wrong";
  }
  $("verify").disabled = false;
});
show();
