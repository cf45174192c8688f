// The page of one run: whenever an event tells of it, everything is asked for anew.
import { draw, ready } from "./charts.js";
import { $, ask, complain, epsilon, line, make } from "./page.js";

const run = $("run").dataset.run;
const query = new URLSearchParams({ run }).toString();
let asking;

async function follow() {
  asking?.abort();
  asking = new AbortController();
  try {
    const found = await ask(`/runs/answer?${query}`, asking.signal);
    complain();
    tell(found);
    await ready();
    for (const name of ["accuracy", "loss", "spending", "clip-norm"]) {
      $(`card-${name}`).hidden = !(name in found.charts);
      if (name in found.charts) await draw($(`chart-${name}`), found.charts[name]);
    }
    document.body.dataset.shown = String(found.done);
  } catch (error) {
    if (error.name !== "AbortError") complain(error.message);
  }
}

function tell(found) {
  $("content").hidden = false;
  $("state").textContent = found.state;
  $("state").className = `state ${found.state}`;
  $("told").textContent = found.said;
  const most = Math.max(...found.spent.map((one) => one.epsilon ?? -1));
  const facts = [[found.quality, found.measure], [`${found.done} of ${found.rounds}`, "rounds"], [found.clients.toLocaleString("en"), "clients"],
    [most < 0 ? "–" : `ε = ${most.toFixed(2)}`, "most that a group has spent in this run"]];
  $("facts").replaceChildren(...facts.map(([number, words]) => make("div", {}, make("b", {}, number), words)));
  $("notes").replaceChildren(...[found.note, ...found.remarks].filter(Boolean).map((note) => make("li", {}, `${note[0].toUpperCase()}${note.slice(1)}`)));
  $("how").textContent = `${found.method} on ${found.data}, seed ${found.seed}. δ = ${found.delta}. Plan ${found.digest.slice(0, 16)}.`;
  $("by").textContent = `ε after round ${found.done} by ${found.accountant}, at δ = ${found.delta}, of any client of the group.`;
  const words = { "report.html": "Report", "audit.html": "Audit", "plan.json": "plan.json", "summary.json": "summary.json", "comparison.html": "Comparison" };
  const links = found.files.map((name) => make("a", { href: `/runs/file?${query}&name=${name}` }, words[name]));
  const audit = found.audit ? [make("span", { className: "soft" }, `Audit: ${found.audit}`)] : [make("span", { className: "soft" }, "Not audited.")];
  $("files").replaceChildren(...links, make("a", { href: `/statement?${query}` }, "Privacy statement"), ...audit);
  $("groups-spent").tBodies[0].replaceChildren(...found.spent.map((one) =>
    line(one.group, one.clients.toLocaleString("en"), one.budget === null ? "no noise" : epsilon(one.epsilon), one.budget)));
  $("card-accounts").hidden = found.accounts.length === 0;
  $("rules").textContent = [...new Set(found.accounts.map((one) => one.account))].join("; ");
  $("accounts").tBodies[0].replaceChildren(...found.accounts.map((one) => line(one.group,
    ...["epsilon", "epsilon_earlier", "epsilon_here", "epsilon_spent", "epsilon_left"].map((key) => epsilon(one[key])))));
}

follow();
const events = new EventSource(`/runs/events?${query}`);
events.addEventListener("message", follow);
window.addEventListener("resize", follow);
