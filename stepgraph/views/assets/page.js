"use strict";
// Draws the data of the page. Text becomes text nodes and nothing else, so that no name can be markup.
const D = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const STATES = { kept: "runs", maybe: "may run: only the run will tell", pruned: "pruned", idle: "not due" };
const [COLUMN, LANE, LOAD, LABELS, NAMES] = [46, 22, 84, 92, 108];
let at = D.shown, step = D.step, pinned = null;

function make(space, tag, attributes, kids) {
  const node = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...[kids ?? []].flat());
  return node;
}
const svg = (tag, attributes, kids) => make(SVG, tag, attributes, kids);
const html = (tag, attributes, kids) => make(null, tag, attributes, kids);
const words = (x, y, text, kind, more) => svg("text", { x, y, class: kind || "", ...more }, text);
const rule = (x1, y1, x2, y2, kind) => svg("line", { x1, y1, x2, y2, class: kind || "rule" });
const amount = (gib) => {
  const [unit, per] = gib >= 1 || !gib ? ["GiB", 1] : gib * 1024 >= 1 ? ["MiB", 1024] : ["KiB", 1024 ** 2];
  return `${+(gib * per).toPrecision(3)} ${unit}`;
};
const time = (s) => (s >= 1 ? s.toFixed(1) : s.toPrecision(2)) + " s";

// ---- the graph

function curve(route) {
  let path = `M${route[0]} ${route[1]}`;
  for (let i = 2; i < route.length; i += 2) {
    const [x0, y0, x1, y1] = route.slice(i - 2, i + 2), half = (y0 + y1) / 2;
    path += x0 === x1 ? `V${y1}` : `C${x0} ${half} ${x1} ${half} ${x1} ${y1}`;
  }
  return path;
}

function drawGraph(picture, sheet) {
  const drawing = svg("svg", { width: sheet.width + 8, height: sheet.height + 20, class: "graph" });
  const all = svg("g", { transform: "translate(4 14)" });
  for (const [index, pruned] of picture.lines) {
    const [from, to, route] = sheet.routes[index], kind = pruned ? " pruned" : "";
    const tip = `M${route.at(-2)} ${route.at(-1)}l-3.5 -7h7z`;
    const ends = { "data-from": sheet.boxes[from].name, "data-to": sheet.boxes[to].name };
    all.append(svg("path", { class: "edge" + kind, d: curve(route), ...ends }));
    all.append(svg("path", { class: "tip" + kind, d: tip, ...ends }));
  }
  for (const box of picture.boxes) all.append(drawBox(box, sheet.boxes[box.at]));
  drawing.append(all);
  return drawing;
}

function drawBox(box, fixed) {
  const { name, kind, x, y, width, height } = fixed;
  const said = box.runs ? box.code : box.reason;
  const node = svg("g", {
    class: `box ${kind} ${box.state}${box.other ? " differs" : ""}`, transform: `translate(${x} ${y})`, tabindex: 0, role: "button",
    "data-name": name, "aria-label": `${name}, ${STATES[box.state]}: ${said}`,
  });
  const middle = { "text-anchor": "middle" };
  if (box.before) {
    node.append(svg("path", { class: "edge pruned", d: "M16 -13v9" }), svg("path", { class: "tip", d: "M16 0l-3 -6h6z" }));
  }
  node.append(svg("rect", { width, height, rx: kind === "work" ? 5 : height / 2 }));
  node.append(words(width / 2, 17, name, "n", middle), words(width / 2, 31, box.word, "s", middle));
  node.addEventListener("mouseenter", () => show(name));
  node.addEventListener("mouseleave", () => show(pinned));
  node.addEventListener("focus", () => show(name));
  node.addEventListener("blur", () => show(pinned));
  node.addEventListener("click", () => show((pinned = pinned === name ? null : name) ?? name));
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); show((pinned = pinned === name ? null : name) ?? name); }
    if (event.key === "Escape") show((pinned = null));
  });
  return node;
}

// ---- one phase

function reach(name, lines, from, to) {
  const found = new Set([name]);
  for (let grown = true; grown;) {
    grown = false;
    for (const line of lines) if (found.has(line[from]) && !found.has(line[to])) { found.add(line[to]); grown = true; }
  }
  return found;
}

function show(name) {
  const picture = D.pictures[at], sheet = D.sheets[picture.section];
  const box = picture.boxes.find((one) => sheet.boxes[one.at].name === name);
  const graph = document.querySelector(".graph");
  graph.classList.toggle("lit", Boolean(box));
  document.querySelectorAll(".here").forEach((node) => node.setAttribute("visibility", node.dataset.name === name ? "visible" : "hidden"));
  if (!box) return $("card").replaceChildren(...hint());
  const lines = [...graph.querySelectorAll(".edge[data-from]")].map((node) => [node.dataset.from, node.dataset.to]);
  const up = reach(name, lines, 1, 0), down = reach(name, lines, 0, 1);
  for (const node of graph.querySelectorAll(".box")) {
    node.classList.toggle("far", !up.has(node.dataset.name) && !down.has(node.dataset.name));
    node.classList.toggle("me", node.dataset.name === name);
  }
  for (const node of graph.querySelectorAll("[data-from]")) {
    const { from, to } = node.dataset, near = (up.has(from) && up.has(to)) || (down.has(from) && down.has(to));
    node.classList.toggle("near", near);
    node.classList.toggle("far", !near);
  }
  $("card").replaceChildren(...card(box, sheet.boxes[box.at]));
}

function hint() {
  return [html("h2", {}, "Point at a phase, or walk through them with Tab"),
    html("p", { class: "soft" }, "Solid blue: work. White: a handoff. Grey and dashed: it does not run in these steps, and the reason says why. "
  + "A short dashed arrow above a box: it also waits for something of an earlier step."
      + (D.pictures[at].side ? " Orange: it differs on the other side." : ""))];
}

function card(box, fixed) {
  const runs = box.runs, listed = html("dl");
  const rows = [
    ["use", fixed.use], ["does", box.does !== fixed.use && box.does], ["doc", fixed.doc],
    [runs ? "why" : "because", runs ? WHY(box.code) : box.reason], ["if", runs && box.reason], ["kept if", box.kept_if], ["without", box.dropped && box.dropped.join(", ")],
    ["waits for", box.after && box.after.join(", ")], ["and from earlier", box.before && box.before.join(", ")],
    ["the other", box.other], ["last step", box.ends && `pruned: ${box.ends}`],
    ["measured", D.measured && D.measured.seconds[fixed.name] !== undefined && `${time(D.measured.seconds[fixed.name])} (median)`],
  ];
  for (const [key, text] of rows) if (text) listed.append(html("dt", {}, key), html("dd", { class: "m" }, text));
  return [html("h2", {}, `${fixed.name}: ${fixed.kind}, ${STATES[box.state]}`), listed];
}

function WHY(code) {
  const [kind, who] = code.split(":");
  return { work: "work: it is due", feeds: `${who} wants what it gives`, next_step: `${who} wants it in a later step`,
    kept_at_end: "the run keeps what it gives" }[kind] || code;
}

// ---- who is where

function drawStrip(picture) {
  const strip = picture.strip, count = strip.phases.length, right = NAMES + COLUMN * count;
  if (!count || !strip.rows.length) return svg("svg", { width: 1, height: 1 });
  const lanes = LABELS + LANE * strip.rows.length, load = loads(strip);
  const drawing = svg("svg", { width: right + Math.max(70, 5.2 * strip.phases[count - 1].length), height: lanes + (load ? LOAD + 34 : 8), class: "strip" });
  strip.phases.forEach((name, i) => {
    const x = NAMES + COLUMN * i;
    drawing.append(svg("rect", { class: "here", "data-name": name, visibility: "hidden", x, y: LABELS, width: COLUMN, height: lanes - LABELS }));
    drawing.append(rule(x, LABELS, x, lanes));
    const turn = { transform: `rotate(-35 ${x + COLUMN / 2} ${LABELS - 6})` };
    drawing.append(words(x + COLUMN / 2, LABELS - 6, name, "s", turn));
  });
  strip.rows.forEach((row, i) => drawing.append(drawLane(row, LABELS + LANE * i)));
  if (load) drawing.append(drawLoad(strip, load, lanes + 14, right));
  return drawing;
}

function drawLane(row, y) {
  const lane = svg("g", { transform: `translate(0 ${y})` }), really = D.measured && D.measured.gib[row.name];
  const size = row.gib === null ? "" : ` ${amount(row.gib)}`;
  lane.append(words(0, 15, row.name + size, "s"));
  for (const [first, end, place] of row.places) {
    const x = NAMES + (COLUMN / 2) * first, width = (COLUMN / 2) * (end - first);
    const title = svg("title", {}, `${row.name}: ${place}`);
    if (place.split(" or ").includes("device")) {
      const kind = (place === "device" ? "dev" : "either") + (really !== undefined && D.measured ? " really" : "");
      lane.append(svg("rect", { class: kind, x, y: 4, width, height: LANE - 8, rx: 2 }, title));
    } else if (place !== "none") lane.append(rule(x, LANE / 2, x + width, LANE / 2, "host"));
  }
  return lane;
}

function loads(strip) {
  const sum = (sizes) => Array.from({ length: 2 * strip.phases.length }, (_, i) => strip.rows
    .filter((row) => row.places.some(([a, b, place]) => a <= i && i < b && place.split(" or ").includes("device")))
    .reduce((total, row) => total + (sizes(row) ?? 0), 0));
  const planned = strip.rows.some((row) => row.gib !== null) ? sum((row) => row.gib) : null;
  const real = D.measured && Object.keys(D.measured.gib).length ? sum((row) => D.measured.gib[row.name]) : null;
  return planned || real ? { planned, real } : null;
}

function drawLoad(strip, { planned, real }, y, right) {
  const values = [...(planned || []), ...(real || [])], top = 1.1 * Math.max(...values, strip.capacity ?? 0, 1e-9);
  const all = svg("g", { transform: `translate(0 ${y})` }), high = (v) => LOAD * (1 - v / top);
  const points = (list) => list.map((v, i) => `${NAMES + (COLUMN / 2) * i} ${high(v)} ${NAMES + (COLUMN / 2) * (i + 1)} ${high(v)}`).join(" ");
  if (real) all.append(svg("path", { class: "really", d: `M${NAMES} ${LOAD} L${points(real)} ${right} ${LOAD}Z` }));
  if (planned) all.append(svg("path", { class: "load", d: `M${points(planned)}` }));
  all.append(rule(NAMES, LOAD, right, LOAD), words(0, 14, "on the device", "s"));
  const peak = (name, list) => `${name} peak ${amount(Math.max(...list))}`;
  const told = [planned && peak("planned", planned), real && peak("measured", real)].filter(Boolean).join(", ");
  const least = planned && strip.rows.some((row) => row.gib === null) ? ", at least: some sizes are unknown" : "";
  all.append(words(NAMES, LOAD + 14, told + least, "s"));
  if (strip.capacity !== null) {
    all.append(rule(NAMES, high(strip.capacity), right, high(strip.capacity), "limit"));
    all.append(words(right + 4, high(strip.capacity) + 4, amount(strip.capacity), "s limits"));
  }
  return all;
}

// ---- the steps of a run

function drawRun() {
  const run = D.measured, names = D.sheets.step ? D.sheets.step.boxes.map((box) => box.name) : [];
  const columns = Math.max(...Object.values(run.grid).map((row) => row.length), 0);
  const side = Math.max(6, Math.min(18, Math.floor(1000 / Math.max(columns, 1)))), left = 190;
  const drawing = svg("svg", { width: left + side * columns + 20, height: names.length * 16 + 22, class: "grid" });
  names.forEach((name, i) => {
    const usual = run.seconds[name], row = run.grid[name] || [];
    drawing.append(words(0, i * 16 + 12, name, "s"), words(left - 8, i * 16 + 12, usual === undefined ? "" : time(usual), "s", { "text-anchor": "end" }));
    for (let k = 0; k < columns; k++) drawing.append(cell(name, run.first + k * run.every, row[k] ?? null, usual, left + k * side, i * 16 + 2, side - 2));
  });
  for (let k = 0; k < columns; k += Math.max(1, Math.ceil(50 / side))) drawing.append(words(left + k * side, names.length * 16 + 14, String(run.first + k * run.every), "s"));
  return drawing;
}

function cell(name, k, seconds, usual, x, y, width) {
  const steps = D.measured.every > 1 ? `steps ${k}-${k + D.measured.every - 1}` : `step ${k}`;
  if (seconds !== null) {
    const ratio = usual ? seconds / usual : 1, slow = ratio > 2;
    const title = svg("title", {}, `${name}, ${steps}: ${time(seconds)}, ${ratio.toFixed(1)} x its median`);
    return svg("rect", { class: slow ? "slow" : "cell", x, y, width, height: 12, opacity: Math.max(0.25, Math.min(1, ratio / 2)).toFixed(2) }, title);
  }
  const picture = D.pictures[pictureOf(k)], box = picture && picture.boxes.find((one) => D.sheets.step.boxes[one.at].name === name);
  const title = svg("title", {}, `${name}, ${steps}: ${box && !box.runs ? box.reason : "did not run"}`);
  if (box && box.state === "pruned") return svg("g", {}, [rule(x + 1, y + 6, x + width - 1, y + 6, "dash"), title]);
  return svg("rect", { class: "hollow", x: x + 0.5, y: y + 0.5, width: width - 1, height: 11, "pointer-events": "all" }, title);
}

// ---- the page

function pictureOf(k) {
  const side = D.pictures[at].side;
  return D.pictures.findIndex((one) => one.side === side && one.spans.some(([first, last, every]) => first <= k && k <= last && (k - first) % every === 0));
}

function turnTo(index, chosen) {
  [at, step, pinned] = [index, chosen, null];
  const picture = D.pictures[at], sheet = D.sheets[picture.section];
  $("graph").replaceChildren(drawGraph(picture, sheet));
  $("strip").replaceChildren(drawStrip(picture));
  $("what").textContent = (step === null ? "" : `Step ${step}: `) + picture.title;
  $("step").value = step ?? "";
  const gone = picture.boxes.filter((box) => !box.runs);
  $("gone").replaceChildren(...gone.map((box) => html("li", {}, [html("code", {}, sheet.boxes[box.at].name), ` ${box.reason}`])));
  $("none").hidden = gone.length > 0;
  const other = picture.boxes.filter((box) => box.other);
  $("others").hidden = !picture.side;
  $("other").replaceChildren(...other.map((box) => html("li", {}, [html("code", {}, sheet.boxes[box.at].name), ` ${box.other}`])));
  [...$("variants").children].forEach((button, i) => button.setAttribute("aria-pressed", String(i === at)));
  show(null);
}

function begin() {
  D.pictures.forEach((picture, i) => {
    const short = picture.variant > 0 ? picture.title.split(" (")[0] : picture.title.split(": before")[0].split(": after")[0];
    const button = html("button", { type: "button", "aria-pressed": "false", title: picture.title }, short);
    button.addEventListener("click", () => turnTo(i, null));
    $("variants").append(button);
  });
  [$("step").min, $("step").max] = [D.first, D.steps - 1];
  $("step").addEventListener("input", () => {
    const k = $("step").valueAsNumber, found = Number.isInteger(k) ? pictureOf(k) : -1;
    if (found >= 0) { turnTo(found, k); location.replace(`#step=${k}`); } else $("what").textContent = `There is no picture of step ${$("step").value}`;
  });
  $("hide").addEventListener("change", () => document.body.classList.toggle("hide", $("hide").checked));
  if (D.measured) { $("run").hidden = false; $("cells").append(drawRun()); }
  const asked = /^#step=(\d+)$/.exec(location.hash), found = asked ? pictureOf(+asked[1]) : -1;
  if (found >= 0) turnTo(found, +asked[1]); else turnTo(at, step);
}
begin();
