// What all pages need: asking the server, and small pieces of a page. Text is always text, never markup.

export const $ = (id) => document.getElementById(id);

/** Ask for JSON; a refusal is thrown with its sentence. */
export async function ask(path, signal) {
  let response;
  try {
    response = await fetch(path, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The studio does not answer: is it still running?");
  }
  const answer = await response.json().catch(() => ({ wrong: { "": `The studio does not answer (${response.status}).` } }));
  if (!response.ok) throw new Error(Object.values(answer.wrong).join(" "));
  return answer;
}

/** Make an element with properties and children. */
export function make(kind, properties = {}, ...children) {
  const element = Object.assign(document.createElement(kind), properties);
  element.append(...children);
  return element;
}

/** Make a row of a table; its first cell names it. */
export function line(...values) {
  return make("tr", {}, ...values.map((value) => make("td", {}, ...(Array.isArray(value) ? value : [value ?? "–"]))));
}

export const epsilon = (value) => (value === null || value === undefined ? "–" : Number(value).toFixed(3));

/** Say what is wrong in the page's own place for it, or that nothing is. */
export function complain(sentence) {
  $("wrong").textContent = sentence ?? "";
  $("wrong").hidden = !sentence;
}
