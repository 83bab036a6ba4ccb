"use strict";
// The report's script: draws the plots, plays the baton, sorts tables, switches themes, saves files.
// It reads one block of JSON and asks the network for nothing. Text always goes in as text, never as HTML.

const DATA = JSON.parse(document.getElementById("report-data").textContent);
const DASHES = ["none", "7 3", "2 3", "9 3 2 3", "13 4", "4 2 1 2 1 2", "1 4", "16 3 4 3"];
const COLOURS = 8; // --c0 to --c7 in page.css
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const drawings = []; // functions that draw a plot again

// ------------------------------------------------------------------ small things

/** An element with attributes, listeners (on...) and children. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** The same for SVG. */
function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const said = document.getElementById("said");
/** Tell screen readers, politely. */
function say(text) {
  said.textContent = text;
}

const counted = (value) => value.toLocaleString("en-GB");
/** A number as a person reads it. */
function plain(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "none";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace("e+", "e");
  return Number.isInteger(value) ? counted(value) : String(Number(value.toPrecision(4)));
}

/** A choice of one out of several, with its name. */
function choice(name, options, change) {
  const select = make("select", { onchange: () => change(select.value) });
  for (const [value, text] of options) select.append(make("option", { value }, text));
  return { label: make("label", {}, name, select), select };
}

// ------------------------------------------------------------------ files, made here and saved from here

function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = make("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Rows as CSV: quoted where needed, and a cell that a spreadsheet would take for a formula is made text. */
function csv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text))) text = "'" + text;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

const KEPT = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity", "opacity", "font-size",
  "font-weight", "font-family", "text-anchor", "stroke-linecap", "stroke-linejoin", "paint-order"];

/** A drawing as a file of its own: every colour written out, on a ground of its own. */
function standalone(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll("*")];
  const to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, k) => {
    const style = getComputedStyle(element);
    for (const name of KEPT) to[k].setAttribute(name, style.getPropertyValue(name));
    to[k].removeAttribute("style");
    to[k].removeAttribute("class");
    if (style.display === "none") to[k].setAttribute("display", "none");
  });
  copy.querySelectorAll("style").forEach((style) => style.remove());
  const [left, top, width, height] = (svg.getAttribute("viewBox") || "").split(/[\s,]+/).map(Number);
  const ground = getComputedStyle(svg.closest(".stage") || svg.closest("section")).backgroundColor;
  copy.insertBefore(shape("rect", { x: left, y: top, width, height, fill: ground }), copy.firstChild);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

function savePng(svg, name) {
  const { text, width, height } = standalone(svg);
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.onload = () => {
    const canvas = make("canvas", { width: Math.round(width * 2), height: Math.round(height * 2) });
    const pen = canvas.getContext("2d");
    pen.scale(2, 2);
    pen.drawImage(image, 0, 0, width, height);
    URL.revokeObjectURL(address);
    canvas.toBlob((blob) => save(name, blob), "image/png");
  };
  image.src = address;
}

/** Buttons that save a drawing and its numbers. */
function savers(stem, svg, rows) {
  const tools = make("div", { class: "tools" });
  const add = (kind, what, act) => tools.append(make("button", { type: "button", "data-save": kind.toLowerCase(),
    "aria-label": `Save ${what} as ${kind}`, onclick: act }, kind));
  add("PNG", `the picture ${stem}`, () => savePng(svg(), `${stem}.png`));
  add("SVG", `the picture ${stem}`, () => save(`${stem}.svg`, new Blob([standalone(svg()).text], { type: "image/svg+xml" })));
  add("CSV", `the numbers of ${stem}`, () => save(`${stem}.csv`, new Blob([csv(rows())], { type: "text/csv" })));
  return tools;
}

// ------------------------------------------------------------------ plots

function startChart(figure) {
  const chart = DATA.charts[figure.dataset.chart];
  const state = { x: chart.x[0], y: chart.y[0], shown: chart.series.map((one) => one.shown) };
  const colour = (k) => `var(--c${k % COLOURS})`;
  const dash = (k) => DASHES[(k + Math.floor(k / COLOURS)) % DASHES.length];
  const rules = () => chart.rules.filter((rule) => !rule.measure || rule.measure === state.y.key);
  const has = (one) => one.columns[state.x.key] && one.columns[state.y.key];

  // what to choose
  const tools = make("div", { class: "tools" });
  const pick = (name, axes, key) => {
    if (axes.length < 2) return;
    const options = axes.map((axis) => [axis.key, axis.label]);
    tools.append(choice(name, options, (value) => {
      state[key] = axes.find((axis) => axis.key === value);
      draw();
    }).label);
  };
  pick("Show", chart.y, "y");
  pick("against", chart.x, "x");
  const legend = make("ul", { class: "legend", "aria-label": "Lines; press one to hide or show it" });
  const buttons = chart.series.map((one, k) => {
    const swatch = shape("svg", { width: 26, height: 10, "aria-hidden": "true" }, shape("line", { x1: 0, x2: 26, y1: 5, y2: 5,
      style: `stroke:${colour(k)};stroke-width:2.5;stroke-dasharray:${dash(k)}` }));
    const button = make("button", { type: "button", "aria-pressed": String(state.shown[k]), onclick: () => {
      state.shown[k] = !state.shown[k];
      button.setAttribute("aria-pressed", String(state.shown[k]));
      draw();
    } }, swatch, one.label);
    legend.append(make("li", {}, button));
    return button;
  });
  const drawing = make("div", { class: "drawing", role: "img" });
  const list = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Numbers: ${chart.title}` });
  const numbers = make("details", { class: "numbers", ontoggle: () => numbers.open && fill() },
    make("summary", {}, "The data as a table"), list);
  if (tools.childElementCount) figure.append(tools);
  figure.append(drawing);
  const hint = make("p", { class: "key" });
  if (chart.series.length > 1) figure.append(legend, hint);
  figure.append(savers(chart.key, () => drawing.querySelector("svg"), rows), numbers);

  const seen = () => chart.series.map((one, k) => ({ one, k })).filter(({ one, k }) => state.shown[k] && has(one));
  /** All points of the chosen axes, for the table and the file. */
  function rows() {
    const found = [["series", state.x.label, state.y.label]];
    for (const { one } of seen()) {
      one.columns[state.x.key].forEach((x, k) => found.push([one.label, x, one.columns[state.y.key][k]]));
    }
    for (const rule of rules()) found.push([rule.label, null, rule.y]);
    return found;
  }

  function fill() {
    const [head, ...all] = rows();
    const every = Math.ceil(all.length / 400); // a table of thousands helps nobody; the CSV file has all
    const kept = all.filter((_, k) => k % every === 0 || k === all.length - 1);
    const table = make("table", {}, make("caption", {}, every > 1 ? `Every ${every}th point; the CSV file has all.` : chart.title));
    table.append(make("thead", {}, make("tr", {}, ...head.map((name, k) => make("th", { scope: "col", class: k ? "number" : "words" }, name)))));
    table.append(make("tbody", {}, ...kept.map((row) => make("tr", {},
      make("th", { scope: "row", class: "words" }, row[0]), make("td", {}, plain(row[1])), make("td", {}, plain(row[2]))))));
    list.replaceChildren(table);
  }

  function draw() {
    const width = Math.floor(drawing.clientWidth);
    if (width < 40) return; // folded away: drawn when it opens
    const narrow = width < 520;
    const lines = seen().map(({ one, k }) => {
      const points = [];
      one.columns[state.x.key].forEach((x, n) => {
        const y = one.columns[state.y.key][n];
        const fits = x !== null && y !== null && (!state.y.log || y > 0);
        points.push({ x: fits ? x : NaN, y: fits ? y : NaN, label: one.label });
      });
      return { one, k, points };
    });
    const everything = lines.flatMap((line) => line.points).filter((point) => !Number.isNaN(point.x));
    const curve = chart.step ? "step-after" : "linear";
    const marks = [Plot.gridY({ stroke: "var(--rule)", strokeOpacity: 1, ...(state.y.log ? { ticks: decades(everything.map((point) => point.y)) } : { ticks: narrow ? 5 : 7 }) }), Plot.axisY({ label: null, tickSize: 0, ticks: narrow ? 5 : 7,
      ...(state.y.log ? { ticks: decades(everything.map((point) => point.y)), tickFormat: power } : {}) }),
      Plot.axisX({ label: null, ticks: narrow ? 4 : 8 }), Plot.ruleY([null])];
    for (const rule of rules()) {
      marks.push(Plot.ruleY([rule.y], { stroke: "var(--ink)", strokeWidth: 1.5, strokeDasharray: "3 3" }));
      marks.push(Plot.text([rule], { y: "y", frameAnchor: "left", textAnchor: "start", text: "label", dx: 6, dy: -8, fill: "var(--ink)",
        stroke: "var(--surface)", strokeWidth: 4 }));
    }
    for (const { one, k, points } of lines) {
      marks.push(Plot.line(points, { x: "x", y: "y", stroke: colour(k), strokeWidth: 2.2, strokeDasharray: dash(k), curve }));
      const last = points.filter((point) => !Number.isNaN(point.y)).slice(-1);
      if (one.end && last.length) marks.push(Plot.dot(last, { x: "x", y: "y", r: 5, fill: colour(k), stroke: "var(--surface)", strokeWidth: 1.5 }));
    }
    marks.push(Plot.tip(everything, Plot.pointer({ x: "x", y: "y", fill: "var(--surface)", stroke: "var(--edge)",
      title: (point) => `${point.label}\n${state.x.label}: ${plain(point.x)}\n${state.y.label}: ${plain(point.y)}` })));
    const levels = rules().map((rule) => rule.y);
    const svg = Plot.plot({
      width, height: narrow ? 270 : 360, marginLeft: narrow ? 46 : 54, marginRight: 18, marginTop: 34, marginBottom: 44,
      style: { background: "none", color: "inherit", fontFamily: "inherit", fontSize: "12px" },
      x: { nice: false },
      y: state.y.log ? { type: "log" } : { nice: true, domain: extent([...everything.map((point) => point.y), ...levels]) },
      marks,
    });
    svg.removeAttribute("role");
    svg.append(shape("text", { x: 2, y: 14, fill: "currentColor", "font-weight": 600, "text-anchor": "start" }, "↑ " + state.y.label));
    svg.append(shape("text", { x: width - 18, y: (narrow ? 270 : 360) - 6, fill: "currentColor", "font-weight": 600, "text-anchor": "end" },
      state.x.label + " →"));
    drawing.replaceChildren(svg);
    buttons.forEach((button, k) => { button.parentElement.hidden = !has(chart.series[k]); });
    const able = chart.series.filter(has).length;
    hint.textContent = lines.length < able ? `${lines.length} of ${able} lines are drawn; press a name to add or remove its line.` : "";
    const ends = lines.slice(0, 8).map(({ one, points }) => {
      const last = points.filter((point) => !Number.isNaN(point.y)).slice(-1)[0];
      return last ? `${one.label} ends at ${plain(last.y)}` : `${one.label} has no values`;
    });
    drawing.setAttribute("aria-label", `Line chart: ${state.y.label} against ${state.x.label}. ${ends.join("; ")}.`);
    if (numbers.open) fill();
  }
  drawings.push(draw);
  new ResizeObserver(() => requestAnimationFrame(draw)).observe(drawing);
  draw();
}

/** Room above and below, so that no line lies on the frame. */
function extent(values) {
  const known = values.filter(Number.isFinite);
  const low = Math.min(...known), high = Math.max(...known);
  const room = (high - low || Math.abs(high) || 1) * 0.04;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

/** Ticks of a logarithmic axis: powers of ten, at most eight; with 2 and 5 between where there are fewer than three. */
function decades(values) {
  const known = values.filter((value) => Number.isFinite(value) && value > 0);
  if (!known.length) return [];
  const low = Math.min(...known), high = Math.max(...known), found = [];
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const within = (value) => value >= low * 0.999 && value <= high * 1.001;
  const every = Math.max(1, Math.ceil((last - first) / 8));
  for (let n = first; n <= last; n += every) if (within(10 ** n)) found.push(10 ** n);
  if (found.length >= 3) return found;
  const more = [];
  for (let n = first; n <= last; n++) for (const digit of [1, 2, 5]) if (within(digit * 10 ** n)) more.push(digit * 10 ** n);
  return more.length > 1 ? more : d3.ticks(low, high, 5);
}

/** 0.001 to 1,000 in full, others with a power of ten. */
function power(value) {
  const n = Math.floor(Math.log10(value) + 1e-9), digit = Number((value / 10 ** n).toPrecision(3));
  if (n >= -3 && n <= 3) return String(Number(value.toPrecision(3)));
  const raised = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
  return (digit === 1 ? "10" : `${digit}·10`) + [...String(n)].map((letter) => raised[letter]).join("");
}

// ------------------------------------------------------------------ the baton, played

const TRAIL = 7; // hops that can still be seen
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

function startPlayer(box) {
  const path = DATA.travels[box.dataset.travels];
  const { agents, frames, unit } = path;
  const holder = bytes(path.holder);
  const bits = path.acts === null ? null : bytes(path.acts);
  const bit = (k) => bits === null || ((bits[k >> 3] >> (k & 7)) & 1) === 1;
  const hopOf = (frame) => (frame === 0 ? 0 : path.hop === null ? frame : path.hop[frame - 1]);
  const spentBy = (agent, acts) => (path.spent === null ? null : path.spent[path.curve_of[agent]][Math.min(acts, path.spent[path.curve_of[agent]].length - 1)]);
  const most = new Int32Array(agents); // activations at the end: what a full tank is, where there is no budget
  tally(most, 0, frames);
  const top = Math.max(...most, 1);

  // counts after `now` frames, kept by walking on from where we are
  let now = 0, counts = new Int32Array(agents), timer = null, carry = 0, before = 0;
  function tally(into, from, to) {
    for (let frame = from; frame < to; frame++) {
      if (path.rounds) { for (let i = 0; i < agents; i++) if (bit(frame * agents + i)) into[i]++; }
      else if (bit(frame)) into[holder[frame]]++;
    }
  }
  function go(frame, aloud = true) {
    const to = Math.max(0, Math.min(frames, frame));
    if (to < now) { counts.fill(0); now = 0; }
    tally(counts, now, to);
    now = to;
    show();
    if (aloud) say(sentence());
  }

  // the picture, laid out for the width there is
  const many = agents > 24, crowd = agents > 60;
  const svg = shape("svg", { role: "img" });
  const trail = shape("g"), pearl = shape("circle", { class: "pearl", r: crowd ? 5 : 8 });
  let at = [], drawn = [], radius = 0, narrow = null;
  function build(small) {
    narrow = small;
    const wide = small ? 400 : 760, high = small ? 430 : many ? 540 : 470;
    radius = crowd ? 9 : many ? (small ? 12 : 15) : small ? 24 : 29;
    const side = radius + (many ? 14 : small ? 26 : 60), above = radius + 16, below = radius + (many ? 16 : 48);
    at = path.x.map((x, i) => [side + x * (wide - 2 * side), above + path.y[i] * (high - above - below)]);
    svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    const links = shape("g", { "stroke-width": crowd ? 0.7 : 1.6 });
    for (const [i, j] of path.edges) links.append(shape("line", { class: "link", x1: at[i][0], y1: at[i][1], x2: at[j][0], y2: at[j][1] }));
    const nodes = shape("g"), words = shape("g");
    drawn = at.map(([x, y], i) => {
      const clip = shape("clipPath", { id: `${box.id}-clip-${i}` }, shape("circle", { cx: x, cy: y, r: radius }));
      const tank = shape("rect", { class: "tank", x: x - radius, width: 2 * radius, y: y + radius, height: 0, "clip-path": `url(#${box.id}-clip-${i})` });
      const ring = shape("circle", { class: "ring", cx: x, cy: y, r: radius });
      const group = shape("g", {}, clip, shape("circle", { class: "back", cx: x, cy: y, r: radius }), tank, ring);
      if (!crowd) group.append(shape("text", { x, y: y + (many ? 4 : 6), "font-size": many ? 11 : 18, "font-weight": 650 }, String(i)));
      nodes.append(group);
      let lines = null;
      if (!many) {
        lines = [1, 2].map((line) => shape("text", { class: "small", x, y: y + radius + 2 + 15 * line, "font-size": 13 }));
        words.append(...lines);
      }
      return { group, tank, ring, lines, y };
    });
    svg.replaceChildren(links, trail, nodes, pearl, words);
  }
  const how = `${path.rounds ? "Rounds" : "Baton"} player. Space plays and pauses, arrow keys step, Home and End jump.`;
  const stage = make("div", { class: "stage", tabindex: 0, role: "group", "aria-label": how }, svg);
  new ResizeObserver(() => {
    const small = stage.clientWidth < 560;
    if (stage.clientWidth && small !== narrow) { build(small); show(); }
  }).observe(stage);

  // who holds the baton after `frame` hops, and who acted in the last of them
  const holds = (frame) => holder[Math.min(frame, holder.length - 1)];
  function senders(frame) {
    if (frame === 0) return [];
    if (!path.rounds) return bit(frame - 1) ? [holder[frame - 1]] : [];
    return [...Array(agents).keys()].filter((i) => bit((frame - 1) * agents + i));
  }
  function sentence() {
    const where = `${unit[0].toUpperCase()}${unit.slice(1)} ${counted(hopOf(now))} of ${counted(path.total)}`;
    if (path.rounds) {
      const sent = senders(now);
      const who = sent.length === agents ? "all agents send" : sent.length > 8 ? `${sent.length} agents send` : `agents ${sent.join(", ")} send`;
      return now === 0 ? `${where}: nobody has sent yet.` : `${where}: ${who}. ${leader()}`;
    }
    const who = holds(now);
    const cost = path.spent === null ? "" : ` and has spent epsilon ${plain(spentBy(who, counts[who]))}`;
    const times = counts[who] === 1 ? "once" : `${counted(counts[who])} times`;
    return `${where}: agent ${who} holds the baton. It has used its records ${times}${cost}.`;
  }
  function leader() {
    const busiest = counts.indexOf(Math.max(...counts));
    const cost = path.spent === null ? "" : `, at most epsilon ${plain(Math.max(...Array.from(counts, (c, i) => spentBy(i, c))))} spent`;
    return `Records used up to ${counted(counts[busiest])} times${cost}.`;
  }

  const where = make("p", { class: "where" });
  function show() {
    const sending = new Set(path.rounds ? senders(now) : [holds(now)]);
    drawn.forEach(({ group, tank, ring, lines, y }, i) => {
      const spent = spentBy(i, counts[i]);
      const share = Math.min(1, spent === null ? counts[i] / top : spent / path.limits[i]);
      tank.setAttribute("y", y + radius - 2 * radius * share);
      tank.setAttribute("height", 2 * radius * share);
      group.classList.toggle("holds", sending.has(i));
      ring.setAttribute("stroke-width", (sending.has(i) ? 2.4 : 1) * (crowd ? 1.2 : 2));
      if (lines) {
        lines[0].textContent = `${counted(counts[i])}×`;
        lines[1].textContent = spent === null ? "" : `ε ${spent.toFixed(3)}`;
      }
    });
    const steps = [];
    if (path.rounds) {
      pearl.setAttribute("display", "none");
      for (const [i, j] of path.edges) {
        if (sending.has(i) || sending.has(j)) steps.push(shape("line", { class: "trail", x1: at[i][0], y1: at[i][1], x2: at[j][0], y2: at[j][1], "stroke-width": 2.4, "stroke-opacity": 0.6 }));
      }
    } else {
      for (let back = Math.min(TRAIL, now); back >= 1; back--) {
        const [from, to] = [at[holder[now - back]], at[holder[now - back + 1]]];
        steps.push(shape("line", { class: "trail", x1: from[0], y1: from[1], x2: to[0], y2: to[1], "stroke-width": crowd ? 2 : 4.5, "stroke-opacity": (1 - (back - 1) / TRAIL).toFixed(2) }));
      }
      const [x, y] = at[holds(now)];
      pearl.setAttribute("cx", x + radius * 0.72);
      pearl.setAttribute("cy", y - radius * 0.72);
    }
    trail.replaceChildren(...steps);
    const text = sentence(), cut = text.indexOf(":") + 1;
    where.replaceChildren(make("b", {}, text.slice(0, cut)), text.slice(cut));
    slider.value = now;
    slider.setAttribute("aria-valuetext", `${unit} ${hopOf(now)} of ${path.total}`);
    svg.setAttribute("aria-label", `Graph of ${agents} agents. ${text}`);
  }

  // the controls
  const rates = [[2, "2 a second"], [8, "8 a second"], [40, "40 a second"], [200, "200 a second"], [1000, "1,000 a second"]];
  let rate = calm.matches ? 2 : 8;
  const play = make("button", { type: "button", class: "main", onclick: toggle }, "Play");
  const slider = make("input", { type: "range", min: 0, max: frames, step: 1, value: 0, "aria-label": `Which ${unit}`, oninput: () => { pause(false); go(Number(slider.value), false); }, onchange: () => say(sentence()) });
  const speed = choice("Speed", rates.map(([value, text]) => [value, text]), (value) => { rate = Number(value); });
  speed.select.value = String(rate);
  function pause(aloud = true) {
    if (timer === null) return;
    cancelAnimationFrame(timer);
    timer = null;
    play.textContent = "Play";
    if (aloud) say(sentence());
  }
  function tick(time) {
    carry += Math.min(time - before, 250) * rate / 1000;
    before = time;
    const whole = Math.floor(carry);
    if (whole > 0) { carry -= whole; go(now + whole, false); } // silent while it plays
    if (now >= frames) pause();
    else timer = requestAnimationFrame(tick);
  }
  function toggle() {
    if (timer !== null) { pause(); return; }
    if (now >= frames) go(0, false);
    play.textContent = "Pause";
    carry = 0;
    before = performance.now();
    timer = requestAnimationFrame(tick);
  }
  const step = (by) => { pause(false); go(now + by); };
  box.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const own = event.target.closest("button, select, input"); // these have keys of their own
    const act = { ArrowRight: () => step(1), ArrowLeft: () => step(-1), Home: () => { pause(false); go(0); }, End: () => { pause(false); go(frames); }, " ": toggle }[event.key];
    if (!act || (own && (own !== play || event.key === " "))) return;
    event.preventDefault();
    act();
  });
  const button = (text, name, by) => make("button", { type: "button", "aria-label": name, onclick: () => step(by) }, text);
  const table = () => [["agent", "activations", "epsilon spent"], ...[...counts].map((count, i) => [i, count, spentBy(i, count)])];
  const rows = () => {
    const found = [path.rounds ? ["round", "agents that acted"] : ["hop", "holder", "next holder", "used its records"]];
    for (let k = 0; k < frames; k++) {
      if (path.rounds) found.push([hopOf(k + 1), senders(k + 1).join(" ")]);
      else found.push([hopOf(k + 1), holder[k], holder[k + 1], bit(k) ? 1 : 0]);
    }
    return found;
  };
  const list = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Every agent now" });
  const numbers = make("details", { class: "numbers", ontoggle: () => numbers.open && fill() }, make("summary", {}, "Every agent now, as a table"), list);
  function fill() {
    const [head, ...all] = table();
    const t = make("table", {}, make("caption", {}, sentence()), make("thead", {}, make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)))));
    t.append(make("tbody", {}, ...all.map(([i, count, spent]) => make("tr", {}, make("th", { scope: "row" }, String(i)), make("td", {}, counted(count)), make("td", {}, plain(spent))))));
    list.replaceChildren(t);
  }
  box.append(where, stage,
    make("div", { class: "run" }, play, button("◀", "One back", -1), button("▶", "One forward", 1), slider, speed.label),
    make("p", { class: "key" }, path.spent === null ? "A tank fills with the uses of an agent's records. × counts them." : "A tank fills as an agent spends its epsilon, up to its limit. × counts uses of its records."),
    savers("path", () => svg, rows), numbers);
  box.addEventListener("toggle", () => numbers.open && fill(), true);
  build(false);
  go(0, false);
}

// ------------------------------------------------------------------ tables, themes, certificates

/** Each heading becomes a button. Empty cells stay at the end, whichever way it is sorted. */
function startTable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = make("button", { type: "button", onclick: () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      const numeric = head.classList.contains("number");
      const value = (row) => row.cells[column].dataset.value;
      const order = [...body.rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const apart = numeric ? Number(x) - Number(y) : x.localeCompare(y, "en-GB", { numeric: true });
        return down ? -apart : apart;
      });
      body.append(...order);
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      say(`Sorted by ${button.textContent}, ${down ? "largest" : "smallest"} first.`);
    } }, head.textContent);
    head.replaceChildren(button);
  });
}

/** A table as it stands now, with the full numbers behind its cells. */
function tableRows(table) {
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  return [heads, ...[...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => {
    const text = cell.dataset.value;
    return text !== "" && cell.classList.contains("number") ? Number(text) : text;
  }))];
}

function startTheme(place) {
  // No storage: a page opened from a folder may not have any. The choice lasts as long as the page is open.
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const button = make("button", { type: "button", id: "switch-theme", onclick: () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
  } });
  const label = () => {
    button.textContent = isDark() ? "Light theme" : "Dark theme";
  };
  dark.addEventListener("change", label);
  label();
  place.append(button);
}

startTheme(document.getElementById("theme"));
document.querySelectorAll("table.sortable").forEach(startTable);
document.querySelectorAll("figure.chart").forEach(startChart);
document.querySelectorAll(".player").forEach(startPlayer);
document.querySelectorAll("[data-table-tools]").forEach((tools) => {
  const table = tools.previousElementSibling.querySelector("table");
  const name = `${tools.dataset.tableTools}-${table.dataset.table}.csv`;
  tools.append(make("button", { type: "button", "data-save": "csv", "aria-label": `Save the table ${name}`,
    onclick: () => save(name, new Blob([csv(tableRows(table))], { type: "text/csv" })) }, "CSV"));
});
document.querySelectorAll("[data-certificate]").forEach((tools) => {
  const { name, content } = DATA.certificates[tools.dataset.certificate];
  tools.append(make("button", { type: "button", "data-save": "json",
    onclick: () => save(name, new Blob([JSON.stringify(content, null, 2)], { type: "application/json" })) }, "Save the certificate (JSON)"));
});
addEventListener("beforeprint", () => {
  document.querySelectorAll("details.group").forEach((group) => { group.open = true; });
  drawings.forEach((draw) => draw());
});
