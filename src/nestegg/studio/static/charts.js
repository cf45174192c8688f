// Charts: definitions come from the server, where reports have theirs from too.

const drawn = new Map();

/**
 * Draw a Vega-Lite definition in a place, as wide as the place is; what was there stays until the new one is ready.
 * If its rows are given apart, and nothing else has changed, they are exchanged in the drawing that is there.
 */
export async function draw(place, definition, rows) {
  if (!window.vegaEmbed) return;
  const text = JSON.stringify(definition) + place.clientWidth;
  const last = drawn.get(place);
  if (last?.text === text) {
    if (rows) await last.ready.then((result) => result.view.data("rows", rows).runAsync());
    return finished(place);
  }
  const spec = fitted(structuredClone(definition), place.clientWidth || 480);
  if (rows) spec.datasets = { rows };
  const stage = document.createElement("div");
  // "ast": expressions are interpreted, because the page's policy allows no code made from text.
  const ready = window.vegaEmbed(stage, spec, {
    renderer: "svg", actions: false, ast: true, defaultStyle: false, tooltip: { disableDefaultStyle: true },
  });
  drawn.set(place, { text, ready });
  const result = await ready;
  if (drawn.get(place)?.ready !== ready) return result.finalize();
  last?.ready.then((old) => old.finalize());
  place.replaceChildren(stage);
  finished(place);
}

function finished(place) {
  place.dataset.drawn = String(Number(place.dataset.drawn ?? 0) + 1);
}

function fitted(spec, width) {
  delete spec.title;
  spec.background = "transparent";
  spec.width = Math.max(180, width - 8);
  spec.height = Math.min(spec.height ?? 220, 220);
  spec.autosize = { type: "fit-x", contains: "padding" };
  spec.config = { ...spec.config, legend: { ...spec.config?.legend, orient: "bottom", columns: width < 420 ? 1 : 3 } };
  return spec;
}

let loading;

/** Resolve once Vega is there. It comes after the page, for the first time on a machine it takes some seconds. */
export function ready() {
  loading ??= new Promise((done, failed) => {
    const script = document.createElement("script");
    Object.assign(script, { src: "/static/vega.js", onload: done, onerror: failed });
    document.head.append(script);
  });
  return loading;
}
