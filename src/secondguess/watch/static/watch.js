// The watch page. The server reads the records and does the sums; this script draws them, every two seconds.
"use strict";

const $ = id => document.getElementById(id);
const EVERY = 2000; // milliseconds between two looks
const HEIGHT = 240, LEFT = 46, RIGHT = 12, TOP = 16, BOTTOM = 26; // of a chart, in pixels
const CALM = "nominal";

let span = "all", paused = false, state = null, shown = ""; // shown: the numbers of the alarms on the page

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const count = (number, thing) => `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;

function percent(share) {
  const points = 100 * share;
  const digits = points === 0 || points >= 9.95 ? 0 : points >= 0.095 ? 1 : 2;
  return `${Number(points.toFixed(points >= 99.5 && points < 100 ? 1 : digits))}\u00a0%`;
}

const between = one => `95\u00a0%: ${percent(one.low)} to ${percent(one.high)}`;

function moment(time, wide = true) {
  const date = new Date(time);
  const clock = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: wide ? "2-digit" : undefined, hourCycle: "h23" });
  const today = date.toDateString() === new Date().toDateString();
  return today ? clock : `${date.toLocaleDateString([], { day: "numeric", month: "short" })}, ${clock}`;
}

async function look() {
  let text = "The watch page's server cannot be reached; trying again.";
  try {
    const response = await fetch(`/api/watch?span=${span}`, { credentials: "same-origin" });
    if (response.ok) {
      state = await response.json();
      show();
      text = "";
    } else {
      text = (await response.json()).detail || text;
    }
  } catch { /* no answer: the banner says so */ }
  $("offline").hidden = !text;
  $("offline").textContent = text;
}

async function follow() {
  if (!paused && !document.hidden) await look();
  setTimeout(follow, EVERY);
}

function show() {
  showAbout();
  const empty = state.images === 0;
  for (const id of ["rate-box", "mix-box", "alarms-box", "numbers-box"]) $(id).hidden = empty;
  if (empty) {
    say("calm", "Nothing recorded yet", "The page fills as soon as the service has judged an image.");
    $("tiles").replaceChildren();
    return;
  }
  showStatus();
  showTiles();
  showRate();
  showMix();
  showMissed();
  showAlarms();
  showNumbers();
}

function showAbout() {
  const guard = state.guard;
  $("about").textContent = guard
    ? `${guard.model}: ${count(state.images, "image")} judged since the guard came on duty, ${moment(guard.begun)}`
    : "No service has written records here yet.";
}

function say(mood, title, text) {
  $("status").className = mood;
  if ($("status-title").textContent !== title) $("status-title").textContent = title; // read aloud only when it is new
  $("status-text").textContent = text;
}

function showStatus() {
  const change = state.change;
  const sure = `If nothing changes, the probability that a change is ever announced is at most ${percent(change.alpha)}.`;
  if (change.since) {
    const now = state.recent.high < change.rate ? "The latest images are back below it. " : "";
    say("changed", `Something changed, around ${moment(change.since)}`,
      `Alarms have become more frequent than the ${percent(change.rate)} that calibration leaves room for; noticed at ` +
      `${moment(change.noticed)}. ${now}${sure} Look at the alarms below; if these images are what the model will see ` +
      "from now on, recalibrate the guard or train the model on them.");
  } else {
    say("calm", "Nothing has changed, as far as alarms tell",
      `A rate above ${percent(change.rate)} would be announced here as soon as it is certain. ${sure}`);
  }
}

function showTiles() {
  const { recent, guard, estimates } = state;
  const promised = guard.false_alarms;
  const tiles = [
    [`Alarms among the latest ${count(recent.n, "image")}`, percent(recent.value), `${between(recent)}; ${recent.alarms} in number`],
    ["Expected on nominal images", percent(promised.value), `${between(promised)}; calibrated on ${count(promised.n, "image")}`],
  ];
  for (const one of estimates || []) {
    tiles.push(["Accuracy now, estimated without labels", percent(one.value), `${between(one)}; ${one.method}`]);
  }
  if (estimates && !estimates.length) tiles.push(["Accuracy now", "–", "more images are needed for an estimate"]);
  $("tiles").replaceChildren(...tiles.map(([what, value, more]) =>
    make("div", {}, make("dd", {}, value, make("span", {}, more)), make("dt", {}, what))));
}

// The frame of a chart: where times and shares lie, with axes and their labels.
function frame(box, top, label) {
  const width = Math.max(240, box.clientWidth);
  const { start, last } = state;
  const length = Math.max(1000, last - start);
  const x = time => LEFT + (width - LEFT - RIGHT) * Math.min(1, Math.max(0, (time - start) / length));
  const y = share => TOP + (HEIGHT - TOP - BOTTOM) * (1 - Math.min(1, share / top));
  const svg = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const part of [0, 0.5, 1]) {
    svg.append(draw("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(part * top), y2: y(part * top) }));
    svg.append(draw("text", { x: LEFT - 6, y: y(part * top) + 4, "text-anchor": "end" }, percent(part * top)));
  }
  const close = length < 120_000; // then minutes do not tell the ends apart
  svg.append(draw("text", { x: LEFT, y: HEIGHT - 6 }, moment(start, close)));
  svg.append(draw("text", { x: width - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, moment(last, close)));
  box.replaceChildren(svg);
  return { svg, x, y, width };
}

// A round number a little above the largest share.
function ceiling(share) {
  const steps = [0.01, 0.02, 0.04, 0.06, 0.1, 0.2, 0.4, 0.6, 0.8, 1];
  return steps.find(step => step >= Math.min(1, share)) || 1;
}

const middle = one => (one.start + Math.min(one.end, state.last)) / 2;

function showRate() {
  const { intervals, guard, change } = state;
  const promised = guard.false_alarms;
  const top = ceiling(1.15 * Math.max(promised.high, ...intervals.map(one => one.rate)));
  const busiest = Math.max(...intervals.map(one => one.rate));
  const { svg, x, y, width } = frame($("rate"), top,
    `Alarm rate over time: at most ${percent(busiest)} in an interval, ${percent(promised.value)} expected`);
  svg.append(draw("rect", { class: "promised", x: LEFT, width: width - LEFT - RIGHT, y: y(promised.high), height: y(promised.low) - y(promised.high) }));
  svg.append(draw("line", { class: "calibrated", x1: LEFT, x2: width - RIGHT, y1: y(promised.value), y2: y(promised.value) }));
  for (const run of runs(intervals)) {
    const line = run.map(one => `${x(middle(one))},${y(one.rate)}`);
    const above = run.map(one => `${x(middle(one))},${y(one.high)}`), below = run.map(one => `${x(middle(one))},${y(one.low)}`);
    svg.append(draw("polygon", { class: "band", points: [...above, ...below.reverse()].join(" ") }));
    svg.append(draw("polyline", { class: "line", points: line.join(" ") }));
    if (run.length === 1) svg.append(draw("circle", { class: "dot", cx: x(middle(run[0])), cy: y(run[0].rate), r: 3 }));
  }
  if (change.since >= state.start) {
    const at = x(change.since), far = at > width - 90;
    svg.append(draw("line", { class: "since", x1: at, x2: at, y1: TOP - 8, y2: HEIGHT - BOTTOM }));
    svg.append(draw("text", { class: "since-text", x: at + (far ? -5 : 5), y: TOP - 2, "text-anchor": far ? "end" : "start" }, "changed"));
  }
  $("rate-text").textContent = "Line: share of images with an alarm, with its 95\u00a0% interval in grey. Green: what calibration promises for nominal images.";
}

// Neighbouring intervals belong to one line; where there were no images, the line is broken.
function runs(intervals) {
  const found = [];
  for (const one of intervals) {
    const last = found.length && found[found.length - 1];
    if (last && last[last.length - 1].end === one.start) last.push(one);
    else found.push([one]);
  }
  return found;
}

function showMix() {
  const { intervals, order } = state;
  const kinds = order.filter(kind => kind !== CALM);
  const share = one => 1 - (one.verdicts[CALM] || 0) / one.images;
  const totals = Object.fromEntries(kinds.map(kind => [kind, intervals.reduce((sum, one) => sum + (one.verdicts[kind] || 0), 0)]));
  const seen = kinds.filter(kind => totals[kind]);
  const { svg, x, y } = frame($("mix"), ceiling(1.05 * Math.max(0.005, ...intervals.map(share))),
    `Verdicts over time: ${seen.map(kind => `${totals[kind]} ${kind}`).join(", ") || "no alarm"}`);
  for (const one of intervals) {
    const from = x(one.start), wide = Math.max(2, x(one.end) - from - 1);
    let below = 0;
    for (const kind of seen) {
      const part = (one.verdicts[kind] || 0) / one.images;
      if (!part) continue;
      svg.append(draw("rect", { "data-kind": kind, x: from, width: wide, y: y(below + part), height: y(below) - y(below + part) },
        draw("title", {}, `${kind}: ${one.verdicts[kind]} of ${count(one.images, "image")}, ${moment(one.start)}`)));
      below += part;
    }
  }
  $("legend").replaceChildren(...seen.map(kind =>
    make("li", { "data-kind": kind }, make("i", {}), `${kind} `, make("b", {}, totals[kind].toLocaleString("en")))));
}

function showMissed() {
  const missed = state.missed || [];
  $("missed").hidden = !missed.length;
  $("missed").textContent = `An image without an alarm may still be anomalous. Detected less than half of the time: ${missed.join(", ")}.`;
}

function showAlarms() {
  const alarms = state.alarms, numbers = alarms.map(one => one.number).join();
  $("no-alarms").hidden = alarms.length > 0;
  if (numbers === shown) return; // what has the focus keeps it
  shown = numbers;
  const pictured = alarms.some(one => one.pictured);
  $("alarms").classList.toggle("bare", !pictured);
  $("no-pictures").hidden = pictured || !alarms.length;
  $("alarms").replaceChildren(...alarms.map(card));
}

function card(one) {
  const kinds = one.verdict.split(" or ");
  const kind = kinds.length > 1 ? "two kinds" : one.verdict;
  const [, second] = JSON.parse(one.likeliest);
  const rival = second && second[1] >= 0.1 ? `, or ${state.guard.class_names[second[0]]} (${percent(second[1])})` : "";
  const picture = one.pictured
    ? make("img", { src: `/thumbnails/${one.number}.png`, alt: `Alarm ${one.number}: ${one.verdict}`, loading: "lazy" })
    : make("div", { class: "blank small" }, "no picture kept");
  return make("li", { "data-kind": kind }, picture,
    make("p", {}, make("i", {}), make("b", {}, one.verdict)),
    make("p", {}, `${one.label} (${percent(one.confidence)})${rival}`),
    make("p", { class: "small" }, `p ${one.p_value.toPrecision(2)}, ${one.action}`),
    make("p", { class: "small" }, moment(one.time)));
}

function showNumbers() {
  const { intervals, order } = state;
  const seen = order.filter(kind => intervals.some(one => one.verdicts[kind]));
  const head = ["from", "images", "alarm rate", ...seen].map(text => make("th", { scope: "col" }, text));
  const rows = intervals.map(one => make("tr", {},
    make("th", { scope: "row" }, moment(one.start)), make("td", {}, one.images.toLocaleString("en")), make("td", {}, percent(one.rate)),
    ...seen.map(kind => make("td", {}, String(one.verdicts[kind] || 0)))));
  $("numbers").replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

if (location.search) history.replaceState(null, "", location.pathname); // the token need not stand in the address
for (const button of document.querySelectorAll("[data-span]")) {
  button.addEventListener("click", () => {
    span = button.dataset.span;
    for (const other of document.querySelectorAll("[data-span]")) other.setAttribute("aria-pressed", String(other === button));
    look();
  });
}
$("pause").addEventListener("click", () => {
  paused = !paused;
  $("pause").textContent = paused ? "Go on" : "Pause";
  $("pause").setAttribute("aria-pressed", String(paused));
  if (!paused) look();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) look(); });
addEventListener("resize", () => { if (state && state.images) { showRate(); showMix(); } });
follow();
