// The plan page: its state is the query of its address, and the same query asks the server for all that follows.
import { draw, ready } from "./charts.js";

const $ = (id) => document.getElementById(id);
const form = $("draft"), list = $("groups"), template = $("group");
const single = [...form.querySelectorAll("[name]")];
const PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F"];
const LITTLE = 0.1, MUCH = 1;
let asking, dragged, hasLedger = true;

function show(query) {
  const first = new URLSearchParams(form.dataset.first), given = new URLSearchParams(query);
  for (const input of single) input.value = given.get(input.name) ?? first.get(input.name);
  const groups = given.getAll("group");
  list.replaceChildren(...(groups.length ? groups : first.getAll("group")).map(row));
  colour();
}

function row(text) {
  const [clients, epsilon, ...name] = text.split(",");
  const item = template.content.cloneNode(true).firstElementChild;
  part(item, "name").value = name.join(",");
  part(item, "clients").value = clients;
  setEpsilon(item, epsilon);
  return item;
}

const part = (item, key) => item.querySelector(`[data-key=${key}]`);

function setEpsilon(item, epsilon) {
  part(item, "epsilon").value = epsilon;
  part(item, "slider").value = Math.log10(epsilon);
  part(item, "slider").setAttribute("aria-valuetext", `ε = ${epsilon}`);
}

function colour() {
  [...list.children].forEach((item, i) => {
    item.style.setProperty("--own", PALETTE[i % PALETTE.length]);
    for (const button of item.querySelectorAll("[data-move]")) {
      button.setAttribute("aria-label", `${button.title} ${part(item, "name").value}`);
    }
    part(item, "slider").setAttribute("aria-label", `ε of ${part(item, "name").value}, logarithmic`);
  });
  const chosen = $("target-of").selectedIndex;
  $("target-of").replaceChildren(...[...list.children].map((item) => new Option(part(item, "name").value)));
  $("target-of").selectedIndex = Math.max(0, Math.min(chosen, list.children.length - 1));
}

function query() {
  const values = single.map((input) => [input.name, input.value]);
  const groups = [...list.children].map((item) => ["group", ["clients", "epsilon", "name"].map((key) => part(item, key).value).join(",")]);
  return new URLSearchParams([...values, ...groups]).toString().replaceAll("%2C", ",");
}

async function ask(path, text, signal) {
  const response = await fetch(`${path}?${text}`, { signal });
  const answer = await response.json().catch(() => ({ wrong: { "": `The studio does not answer (${response.status}).` } }));
  if (!response.ok) throw Object.assign(new Error("refused"), { wrong: answer.wrong });
  return answer;
}

async function follow() {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking, text = query();
  history.replaceState(null, "", `?${text}`);
  for (const link of document.querySelectorAll("[data-export]")) link.href = `${link.dataset.export}?${text}`;
  $("verdict").textContent = "";
  try {
    const answer = await ask("/plan/answer", text, signal);
    say({});
    tell(answer);
    await ready();
    await drawAll(answer.charts);
    document.body.dataset.shown = text;
    const others = await ask("/plan/rivals", text, signal);
    compare(others);
    await drawAll(others.charts);
    document.body.dataset.compared = text;
    if (hasLedger) tellLeft((await ask("/ledger/left", text, signal)).sentences);
  } catch (error) {
    if (error.name === "AbortError") return;
    say(error.wrong ?? { "": "The studio does not answer: is it still running?" });
  }
}

const drawAll = (charts) => Promise.all(Object.entries(charts).map(([name, one]) => {
  $(`chart-${name}`).setAttribute("aria-label", one.gist);
  return draw($(`chart-${name}`), one.definition, one.rows);
}));

function say(wrong) {
  for (const place of document.querySelectorAll(".wrong")) place.textContent = "";
  for (const input of document.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  $("wrong-").hidden = true;
  document.querySelector(".results").classList.toggle("stale", Object.keys(wrong).length > 0);
  for (const [key, sentence] of Object.entries(wrong)) {
    const [, number, name] = key.match(/^group-(\d+)-(\w+)$/) ?? [];
    const place = number ? list.children[number].querySelector(".wrong") : $(`wrong-${key}`) ?? $("wrong-");
    place.textContent = sentence;
    place.hidden = false;
    const input = number ? part(list.children[number], name) : $(key);
    input?.setAttribute("aria-invalid", "true");
  }
}

const percent = (value) => `${(100 * value).toFixed(1)} %`;
const short = (value) => (value === null ? "–" : Number(value).toPrecision(3));

function cells(...values) {
  const line = document.createElement("tr");
  for (const value of values) {
    const cell = line.insertCell();
    cell.append(value);
  }
  return line;
}

function meter(right) {
  const bar = document.createElement("span"), mark = document.createElement("i"), both = document.createElement("span");
  bar.className = "meter";
  bar.setAttribute("aria-hidden", "true");
  mark.style.left = `${200 * (right - 0.5)}%`;
  bar.append(mark);
  both.append(`${(Math.ceil(1000 * right - 1e-6) / 10).toFixed(1)} % `, bar); // never below the truth
  return both;
}

function tell(answer) {
  $("told-delta").textContent = form.delta.value;
  $("told-accountant").textContent = answer.accountant;
  $("fact-noise").textContent = percent(answer.noise);
  $("fact-ratio").textContent = short(answer.ratio);
  $("fact-parameters").textContent = Number(form.parameters.value).toLocaleString("en");
  $("fact-clients").textContent = answer.clients.toLocaleString("en");
  $("verdict-ratio").textContent = answer.ratio <= LITTLE ? "At this ratio noise costs a few points of accuracy."
    : answer.ratio < MUCH ? "At this ratio noise costs a good part of the accuracy: a smaller model, more clients or larger budgets help."
    : "The noise is longer than any signal: this model will learn next to nothing.";
  $("remarks").replaceChildren(...answer.remarks.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  const known = Object.keys(answer.groups[0]?.colluding ?? {});
  const most = known.at(-1);
  $("head-colluding").textContent = most ? `ε against ${most} colluder${most === "1" ? "" : "s"}` : "ε against colluders";
  $("promises").tBodies[0].replaceChildren(...answer.groups.map((one) => cells(one.name, short(one.budget),
    one.epsilon.toFixed(3), meter(one.right), one.sampled, most ? one.colluding[most] : "–", "not asked",
    one.noise.map(short).join(" → "), one.clip.map(short).join(" → "))));
  answer.groups.forEach((one, i) => { list.children[i].querySelector(".said").textContent = one.words; });
}

function compare(answer) {
  $("told-memory").textContent = answer.memory;
  $("methods").tBodies[0].replaceChildren(...answer.methods.map((one) => {
    const line = cells(one.name === "idp-fedavg" ? "idp-fedavg (uniform)" : one.name, percent(one.noise), short(one.ratio));
    line.className = one.chosen ? "chosen" : "";
    return line;
  }));
}

function tellLeft(sentences) {
  hasLedger = sentences.length > 0;
  $("left").replaceChildren(...sentences.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
}

async function judge() {
  const text = query();
  $("verdict").textContent = "Judging by privacy loss distributions …";
  try {
    const found = await ask("/plan/verdict", text, asking.signal);
    found.groups.forEach((one, i) => {
      const line = $("promises").tBodies[0].rows[i];
      line.cells[3].replaceChildren(meter(one.right));
      line.cells[6].textContent = one.pld.toFixed(3);
      list.children[i].querySelector(".said").textContent = one.words;
    });
    $("verdict").textContent = `Nobody goes over budget. Plan ${found.digest.slice(0, 12)}.`;
  } catch (error) {
    if (error.name !== "AbortError") $("verdict").textContent = error.wrong?.[""] ?? "Mend what is marked first.";
  }
}

async function find() {
  const target = new URLSearchParams({ target: $("target").value, wanted: $("wanted").value, of: $("target-of").value });
  $("wrong-target").textContent = "";
  try {
    const found = await ask("/plan/target", `${query()}&${target}`);
    found.epsilon.forEach((epsilon, i) => setEpsilon(list.children[i], epsilon));
    follow();
  } catch (error) {
    $("wrong-target").textContent = Object.values(error.wrong ?? { "": "The studio does not answer." }).join(" ");
  }
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    $("copied").textContent = `${what} copied.`;
  } catch {
    $("copied").textContent = text;
  }
}

form.addEventListener("input", (event) => {
  const item = event.target.closest(".group"), key = event.target.dataset.key;
  if (key === "slider") setEpsilon(item, Number((10 ** event.target.value).toPrecision(3)));
  if (key === "epsilon" && Number(event.target.value) > 0) part(item, "slider").value = Math.log10(event.target.value);
  if (key === "name") colour();
  if (["target", "wanted", "target-of"].includes(event.target.id)) return;
  follow();
});
form.addEventListener("submit", (event) => event.preventDefault());
$("target").addEventListener("change", () => {
  $("target-group").hidden = $("target").value === "noise";
  $("wanted").value = $("target").value === "noise" ? LITTLE : 75;
});
$("add").addEventListener("click", () => {
  let number = list.children.length + 1;
  const names = [...list.children].map((item) => part(item, "name").value);
  while (names.includes(`group ${number}`)) number += 1;
  list.append(row(`10,10,group ${number}`));
  colour();
  follow();
  part(list.lastElementChild, "name").focus();
});
list.addEventListener("click", (event) => {
  const step = event.target.dataset.move, item = event.target.closest(".group");
  if (step === "-1") item.previousElementSibling?.before(item);
  if (step === "1") item.nextElementSibling?.after(item);
  if (step === "0" && list.children.length > 1) item.remove();
  if (step) { colour(); follow(); if (step !== "0") event.target.focus(); }
});
list.addEventListener("dragstart", (event) => {
  if (event.target.closest("input")) return event.preventDefault();
  dragged = event.target.closest(".group");
  dragged.classList.add("dragged");
});
list.addEventListener("dragover", (event) => {
  const over = event.target.closest(".group");
  if (!dragged || !over || over === dragged) return;
  event.preventDefault();
  const below = event.clientY > over.getBoundingClientRect().top + over.offsetHeight / 2;
  over[below ? "after" : "before"](dragged);
});
list.addEventListener("dragend", () => {
  dragged?.classList.remove("dragged");
  dragged = undefined;
  colour();
  follow();
});
$("judge").addEventListener("click", judge);
$("find").addEventListener("click", find);
$("copy-link").addEventListener("click", () => copy(location.href, "Link"));
$("copy-python").addEventListener("click", async () => copy(await (await fetch(`/plan/export/plan.py?${query()}`)).text(), "Python"));
window.addEventListener("popstate", () => { show(location.search); follow(); });
let resized;
window.addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(follow, 150); });
show(location.search);
follow();
