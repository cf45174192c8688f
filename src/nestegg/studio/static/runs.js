// The table of runs follows the server's events; which runs are ticked is the query of the page's address.
import { draw, ready } from "./charts.js";
import { $, ask, complain, epsilon, line, make } from "./page.js";

const body = $("runs").tBodies[0];
const rows = new Map();
let asking, drawn = "";

const chosen = () => new URLSearchParams(location.search).getAll("run");

function choose(paths) {
  const query = new URLSearchParams(paths.map((path) => ["run", path])).toString();
  history.replaceState(null, "", query ? `?${query}` : location.pathname);
  for (const [path, row] of rows) row.querySelector("input").checked = paths.includes(path);
  compare();
}

function show(table) {
  const live = table.runs.filter((run) => run.state === "running").length;
  $("live").textContent = `${table.runs.length} found, ${live} running${table.all ? "" : "; there are too many folders to look into all of them"}`;
  $("empty").hidden = table.runs.length > 0;
  for (const path of [...rows.keys()].filter((known) => !table.runs.some((run) => run.path === known))) {
    rows.get(path).remove();
    rows.delete(path);
  }
  table.runs.forEach((run, i) => {
    const text = JSON.stringify(run);
    if (rows.get(run.path)?.dataset.text !== text) {
      const fresh = rowOf(run);
      fresh.dataset.text = text;
      rows.get(run.path)?.replaceWith(fresh);
      rows.set(run.path, fresh);
    }
    if (body.rows[i] !== rows.get(run.path)) body.insertBefore(rows.get(run.path), body.rows[i] ?? null);
  });
  filter();
  compare(table.runs.filter((run) => chosen().includes(run.path)).map((run) => `${run.path} ${run.done}`).join());
}

function rowOf(run) {
  const tick = make("input", { type: "checkbox", checked: chosen().includes(run.path), disabled: run.state === "damaged" });
  tick.setAttribute("aria-label", `Compare ${run.path}`);
  tick.addEventListener("change", () => choose(tick.checked ? [...chosen(), run.path] : chosen().filter((path) => path !== run.path)));
  const link = make("a", { href: `/runs/show?${new URLSearchParams({ run: run.path })}` }, run.path);
  const notes = [...(run.note ? [make("small", { title: run.note }, "not for release")] : []), ...run.remarks.map((remark) => make("small", {}, remark))];
  const state = make("span", { className: `state ${run.state}` }, run.state);
  const noised = run.spent.filter((one) => one.budget !== null);
  const spent = noised.slice(0, 4).map((one) => make("span", { className: "spent" }, `${one.group}: ${epsilon(one.epsilon)} of ${one.budget}`));
  if (noised.length > 4) spent.push(make("small", {}, `and ${noised.length - 4} more groups`));
  const round = run.rounds === null ? "–" : [make("span", {}, `${run.done} of ${run.rounds}`), progress(run)];
  return line([tick], [link, ...notes], run.state === "running" || run.state === "finished" ? [state] : [state, make("small", {}, run.said)],
    round, [run.quality, make("small", {}, run.measure)], spent.length ? spent : run.rounds === null ? "–" : "no noise, no bound", run.left || "–",
    [run.method, make("small", {}, run.seed === null ? "" : `${run.data}, seed ${run.seed}`)]);
}

function progress(run) {
  const bar = make("progress", { max: run.rounds, value: run.done });
  bar.setAttribute("aria-label", `Rounds of ${run.path}`);
  return bar;
}

function filter() {
  const wanted = $("filter").value.trim().toLowerCase();
  for (const row of rows.values()) row.hidden = !row.textContent.toLowerCase().includes(wanted);
}

async function compare(come) {
  const paths = chosen(), text = paths.join("\n") + (come ?? "");
  if (come !== undefined && text === drawn) return;
  drawn = text;
  $("comparison").hidden = paths.length === 0;
  asking?.abort();
  if (paths.length === 0) return complain();
  asking = new AbortController();
  try {
    const found = await ask(`/runs/compare?${new URLSearchParams(paths.map((path) => ["run", path]))}`, asking.signal);
    complain();
    $("said").replaceChildren(...found.said.map((sentence) => make("li", {}, sentence)));
    const heads = found.heads.map((head) => Object.assign(make("th", {}, head), { scope: "col" }));
    $("finals").tHead.replaceChildren(make("tr", {}, ...heads));
    $("finals").tBodies[0].replaceChildren(...found.rows.map((row) => line(...row)));
    await ready();
    await draw($("chart-comparison"), found.charts.comparison);
    document.body.dataset.compared = location.search;
  } catch (error) {
    if (error.name === "AbortError") return;
    $("comparison").hidden = true;
    complain(error.message);
  }
}

$("filter").addEventListener("input", filter);
$("all").addEventListener("click", () => choose([...rows].filter(([, row]) => !row.hidden && !row.querySelector("input").disabled).map(([path]) => path)));
$("none").addEventListener("click", () => choose([]));
window.addEventListener("resize", () => compare());
const events = new EventSource("/runs/events");
events.addEventListener("message", (event) => show(JSON.parse(event.data)));
events.addEventListener("error", () => { $("live").textContent = "The studio does not answer: is it still running?"; });
