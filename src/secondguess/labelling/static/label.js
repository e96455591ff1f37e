// The labelling page. The server keeps all state; this script shows it, and sends what the person says.
// An answer that cannot be sent stays in localStorage and is sent again under the same key, so it counts once.
import { drawCurve } from "/curve.js";

const $ = id => document.getElementById(id);
const CSRF = document.querySelector("meta[name=csrf-token]").content;
const HERE = CSRF.slice(0, 12); // other sessions may once have been at the same address
const UNSENT = `secondguess.unsent.${HERE}`, NAME = `secondguess.annotator.${HERE}`;
const MANY = 20; // classes, from which on they can be searched
const SMALL = 256; // pixels, up to which an image is shown with hard edges
const LATEST_WAIT = 5000; // milliseconds between two tries to reach the server

const REASONS = {
  confidence: "model's confidence",
  distance: "change that flips it",
  residual: "residual at that confidence",
};

let session = null; // what does not change
let state = null; // question, verdict, progress
let annotator = "";
let chosen = null; // the set of classes in ambiguous mode, else null
let busy = false; // an action is on its way
let explainable = null; // the image that can be explained now

class Refused extends Error {
  constructor(status, text) { super(text); this.status = status; }
}

async function call(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": CSRF },
    body: JSON.stringify(body),
  };
  const response = await fetch(path, { ...options, credentials: "same-origin" });
  if (response.ok) return response.json();
  let text = response.statusText;
  try { text = (await response.json()).detail; } catch { /* not ours: keep the status */ }
  throw new Refused(response.status, typeof text === "string" ? text : "The server did not understand the page.");
}

// Calls until the server has heard it; a refusal is an answer, a lost connection or a failing server is not.
async function insist(path, body) {
  for (let wait = 300; ; wait = Math.min(wait * 2, LATEST_WAIT)) {
    try {
      const heard = await call(path, body);
      showOffline("");
      return heard;
    } catch (error) {
      if (error instanceof Refused && error.status < 500) { showOffline(""); throw error; }
      showOffline(`${error.status === 503 ? error.message : "The server cannot be reached."} ` +
        (body && body.key ? "Your last answer is kept in this browser and will be sent again." : "Trying again."));
      await new Promise(resolve => { setTimeout(resolve, wait); addEventListener("online", resolve, { once: true }); });
    }
  }
}

function showOffline(text) {
  $("offline").hidden = !text;
  $("offline").textContent = text;
}

async function act(path, fields) {
  if (busy) return;
  const unsent = { path, body: { annotator, key: crypto.randomUUID(), ...fields } };
  localStorage.setItem(UNSENT, JSON.stringify(unsent));
  await deliver(unsent);
}

async function deliver(unsent) {
  busy = true;
  document.body.setAttribute("aria-busy", "true");
  try {
    show(await insist(unsent.path, unsent.body));
    localStorage.removeItem(UNSENT);
  } catch (error) {
    // Without the cookie nothing is heard: what was said is kept until the link is opened again.
    if (![401, 403].includes(error.status)) localStorage.removeItem(UNSENT);
    if (error.status === 409) show(await insist("/api/next", { annotator })); // another tab was faster
    say(error.message, "differs");
  } finally {
    busy = false;
    document.body.removeAttribute("aria-busy");
  }
  refreshFindings();
}

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function picture(image, alt, lazy = false) {
  const element = make("img", { src: `${session.images}${image}.png`, alt });
  if (lazy) element.loading = "lazy";
  element.classList.toggle("crisp", Math.max(...session.shape.slice(1)) <= SMALL);
  return element;
}

// One digit more where it matters, and never a round 100 for less than that.
function percent(share) {
  const text = 100 * share > 99 ? (Math.floor(1000 * share) / 10).toFixed(share < 1 ? 1 : 0) : (100 * share).toFixed(0);
  return `${text}\u00a0%`;
}

function say(text, mood = "plain", about = null) {
  $("notice").className = text ? mood : "";
  $("notice").replaceChildren(...(about === null ? [] : [picture(about, "The image before:")]), text);
}

function show(now) {
  state = now;
  stopChoosing();
  const { question, verdict, progress } = state;
  showVerdict(question, verdict);
  showQuestion(question);
  showProgress(progress);
  explainable = session.show_answer ? question && question.image : verdict ? verdict.image : explainable;
  $("explain").disabled = explainable === null;
}

function showVerdict(question, verdict) {
  if (verdict) {
    say(`You said ${verdict.said}, the model said ${verdict.model} (${percent(verdict.confidence)}).`,
      verdict.wrong ? "differs" : "agrees", verdict.image);
  } else if (question && question.before) {
    say(`Taken back: ${question.before}.`);
  } else {
    say("");
  }
}

function showQuestion(question) {
  $("image").hidden = !question;
  $("done").hidden = Boolean(question);
  $("frame").hidden = $("context").hidden = !question;
  for (const button of document.querySelectorAll("#classes button, #ambiguous, #invalid, #skip")) button.disabled = !question;
  $("why").replaceChildren();
  $("alike").replaceChildren();
  $("hint").textContent = "";
  if (!question) return;
  $("image").src = `${session.images}${question.image}.png`;
  $("image").alt = `Image ${question.image} of ${session.name}`;
  $("image").classList.toggle("crisp", Math.max(...session.shape.slice(1)) <= SMALL);
  if (question.prediction) {
    const [name, confidence] = question.prediction;
    $("hint").textContent = `The model says ${name} (${percent(confidence)}).`;
  } else {
    $("hint").textContent = "The model's answer is shown after yours.";
  }
  for (const [name, value] of Object.entries(question.why)) {
    $("why").append(make("dt", {}, REASONS[name] ?? name.replaceAll("_", " ")), make("dd", {}, readable(name, value)));
  }
  $("alike").append(...question.look_alikes.map(image => make("li", {}, picture(image, `Look-alike, image ${image}`))));
}

function readable(name, value) {
  if (typeof value !== "number") return value;
  if (name === "confidence") return percent(value);
  return Number.isInteger(value) ? String(value) : value.toPrecision(3);
}

function showProgress(progress) {
  const total = progress.goal ?? progress.pool;
  $("bar").max = Math.max(total, 1);
  $("bar").value = progress.labelled;
  const errors = `${progress.errors} ${progress.errors === 1 ? "error" : "errors"}`;
  const skipped = progress.skipped ? `, ${progress.skipped} skipped` : "";
  $("tally").textContent = `${progress.labelled} of ${total.toLocaleString("en")} labelled, ${errors} found${skipped}`;
  $("undo").disabled = !progress.can_undo;
  $("done-text").textContent = `${progress.labelled} images are labelled, ${progress.mine} answers are yours. ` +
    (progress.goal !== null && progress.labelled >= progress.goal
      ? "The goal is reached; start again with a larger --labels to go on."
      : "There is nothing left to ask you about.");
  $("ask-title").textContent = state.question ? "Which class is it?" : "Nothing left to ask";
}

let refreshing = false, outdated = false;

async function refreshFindings() { // one request at a time, however fast the person is
  outdated = true;
  if (refreshing) return;
  refreshing = true;
  try {
    while (outdated) {
      outdated = false;
      showFindings(await call("/api/findings"));
    }
  } catch { /* shown after the next answer */ } finally {
    refreshing = false;
  }
}

function showFindings(found) {
  drawCurve(found.curve, $("curve"), $("curve-text"));
  $("no-errors").hidden = found.errors.length > 0;
  $("errors").replaceChildren(...found.errors.map(error => {
    const text = `Image ${error.image}: ${error.said}, the model said ${error.model} (${percent(error.confidence)})`;
    const image = picture(error.image, text, true);
    let shown = image;
    if (session.explains) {
      shown = make("button", { type: "button", title: "Explain" }, image);
      shown.addEventListener("click", () => explain(error.image));
    }
    return make("li", { title: error.annotators.join(", ") }, shown,
      make("span", {}, `${error.said}, not `), make("b", {}, error.model), ` (${percent(error.confidence)})`);
  }));
}

function press(number) {
  if (!state || !state.question) return;
  if (chosen === null) { answer([number]); return; }
  chosen.has(number) ? chosen.delete(number) : chosen.add(number);
  classButton(number).setAttribute("aria-pressed", chosen.has(number));
  $("confirm").disabled = chosen.size < 2;
  const names = [...chosen].sort((a, b) => a - b).map(one => session.classes[one]);
  say(names.length ? `Chosen: ${names.join(" or ")}.` : "Nothing chosen.");
}

const classButton = number => document.querySelector(`#classes button[data-class="${number}"]`);
const answer = classes => act("/api/answer", { image: state.question.image, classes });

function startChoosing() {
  if (!state || !state.question) return;
  if (chosen !== null) { stopChoosing(); say(""); return; }
  chosen = new Set();
  $("ambiguous").setAttribute("aria-pressed", "true");
  $("several").hidden = false;
  $("confirm").disabled = true;
  for (const button of document.querySelectorAll("#classes button")) button.setAttribute("aria-pressed", "false");
  say("Ambiguous: choose all classes that are right, then press Enter.");
}

function stopChoosing() {
  chosen = null;
  $("ambiguous").setAttribute("aria-pressed", "false");
  $("several").hidden = true;
  for (const button of document.querySelectorAll("#classes button")) button.removeAttribute("aria-pressed");
}

const confirmChoice = () => chosen !== null && chosen.size > 1 && answer([...chosen]);

async function explain(image) {
  if (!session.explains || image === null) return;
  $("explanation-text").textContent = "Asking the model about parts of the image …";
  $("explanation-pictures").replaceChildren();
  if (!$("explanation").open) $("explanation").showModal();
  try {
    const found = await call(`/api/explanations/${image}`);
    $("explanation-text").textContent = found.text;
    $("explanation-pictures").append(...found.pictures.map(one => {
      const shown = make("img", { src: one.image, alt: one.caption });
      shown.className = "crisp";
      return make("figure", {}, shown, make("figcaption", {}, one.caption));
    }));
  } catch (error) {
    $("explanation-text").textContent = error.message;
  }
}

async function download(kind) {
  try {
    const response = await fetch(`/export/labels.${kind}`, { credentials: "same-origin" });
    if (!response.ok) throw new Error((await response.json()).detail);
    const link = make("a", { href: URL.createObjectURL(await response.blob()), download: `labels.${kind}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    $("export-note").textContent = `labels.${kind} was saved.`;
  } catch (error) {
    $("export-note").textContent = error.message;
  }
}

function typed(event) {
  if (document.querySelector("dialog[open]")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if ((event.ctrlKey || event.metaKey) && !event.shiftKey && key === "z" && event.target !== $("filter")) {
    event.preventDefault();
    if (!$("undo").disabled) act("/api/undo", {});
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target === $("filter")) { typedInFilter(event, key); return; }
  if (key === "Escape" && chosen !== null) { stopChoosing(); say(""); return; }
  if (key === "Enter" && chosen !== null && chosen.size > 1) {
    event.preventDefault(); // not a click on the button in focus
    confirmChoice();
    return;
  }
  const commands = {
    a: startChoosing,
    i: () => state?.question && answer([]),
    s: () => state?.question && act("/api/skip", { image: state.question.image }),
    u: () => $("undo").disabled || act("/api/undo", {}),
    e: () => explain(explainable),
    "?": () => $("help").showModal(),
    "/": () => $("filter-row").hidden || $("filter").focus(),
  };
  const number = session ? session.shortcuts.indexOf(key) : -1;
  if (!(key in commands) && number < 0) return;
  event.preventDefault();
  if (key in commands) commands[key](); else press(number);
}

function typedInFilter(event, key) {
  if (key === "Escape") { $("filter").value = ""; narrow(); $("classes").focus(); }
  if (key !== "Enter") return;
  event.preventDefault();
  const first = document.querySelector("#classes button:not([hidden])");
  if (!first) return;
  first.click();
  if (chosen === null) { $("filter").value = ""; narrow(); }
}

function narrow() {
  const wanted = $("filter").value.trim().toLowerCase();
  for (const button of document.querySelectorAll("#classes button")) {
    button.hidden = !session.classes[button.dataset.class].toLowerCase().includes(wanted);
  }
}

function buildClasses() {
  $("classes").append(...session.classes.map((name, number) => {
    const button = make("button", { type: "button", "data-class": number }, make("span", {}, name));
    if (session.shortcuts[number]) button.append(make("kbd", {}, session.shortcuts[number]));
    button.addEventListener("click", () => press(number));
    return button;
  }));
  $("filter-row").hidden = $("help-filter").hidden = session.classes.length <= MANY;
}

function askName() {
  $("name").value = annotator || session.annotator;
  if (!$("who").open) $("who").showModal();
  $("name").select();
  return new Promise(resolve => $("who").addEventListener("close", () => resolve($("name").value.trim()), { once: true }));
}

async function settleName(again) {
  annotator = again ? annotator : localStorage.getItem(NAME) || session.annotator;
  while (again || !annotator) {
    annotator = await askName() || annotator;
    again = false;
  }
  localStorage.setItem(NAME, annotator);
  $("rename").textContent = annotator;
  $("rename").setAttribute("aria-label", `Annotator ${annotator}: change the name`);
}

// The annotator's image, asked for under a name that the server takes.
async function enter(again) {
  await settleName(again);
  try {
    show(await insist("/api/next", { annotator }));
    $("who-note").textContent = "";
  } catch (error) {
    if (error.status !== 400) throw error;
    $("who-note").textContent = error.message;
    await enter(true);
  }
}

function listen() {
  document.addEventListener("keydown", typed);
  $("filter").addEventListener("input", narrow);
  $("ambiguous").addEventListener("click", startChoosing);
  $("confirm").addEventListener("click", confirmChoice);
  $("cancel").addEventListener("click", () => { stopChoosing(); say(""); });
  $("invalid").addEventListener("click", () => answer([]));
  $("skip").addEventListener("click", () => act("/api/skip", { image: state.question.image }));
  $("undo").addEventListener("click", () => act("/api/undo", {}));
  $("explain").addEventListener("click", () => explain(explainable));
  $("help-open").addEventListener("click", () => $("help").showModal());
  $("rename").addEventListener("click", () => enter(true));
  for (const button of document.querySelectorAll("[data-export]")) {
    button.addEventListener("click", () => download(button.dataset.export));
  }
}

async function begin() {
  if (location.search) history.replaceState(null, "", location.pathname); // the token need not stand in the address
  session = await insist("/api/session");
  $("about").textContent = `${session.name} · ${session.search}`;
  $("explain").hidden = $("help-explain").hidden = !session.explains;
  $("explain").title = session.show_answer ? "Explain this image" : "Explain the image that you answered last";
  buildClasses();
  listen();
  const unsent = localStorage.getItem(UNSENT);
  if (unsent) {
    await settleName(false);
    await deliver(JSON.parse(unsent));
  }
  if (!state) await enter(false); // nothing was unsent, or it was refused
  refreshFindings();
}

begin().catch(error => showOffline(error.message));
