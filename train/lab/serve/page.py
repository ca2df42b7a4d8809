"""The page at `/`: what the models can do, tried by hand. It has no build step and loads nothing from elsewhere."""

import html
from collections.abc import Iterable

from train.files.strict_json import json_text
from train.lab.serve.abilities import Served

_HTML = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>tfm</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
script-src 'unsafe-inline'; connect-src 'self'; frame-src blob:">
<style>
:root { color-scheme: light dark; --line: #b8b8b8; --mark: #0072b2 }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52em; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.3em } h2 { font-size: 1.1em; margin: 0 }
nav { display: flex; flex-wrap: wrap; gap: .4em; margin: 1em 0 }
nav button[aria-selected=true] { border-color: var(--mark); box-shadow: inset 0 -3px var(--mark) }
button, textarea, input, select { font: inherit; padding: .4em .6em; border: 1px solid var(--line); border-radius: 4px }
button { cursor: pointer } textarea { width: 100%; box-sizing: border-box; resize: vertical }
:focus-visible { outline: 3px solid var(--mark); outline-offset: 1px }
label { display: block; margin: .6em 0 .2em } .row { display: flex; gap: 1em; flex-wrap: wrap; align-items: end }
.row label { margin: 0 } output { display: block; white-space: pre-wrap; border-left: 4px solid var(--mark);
padding: .4em .8em; margin: 1em 0; min-height: 1.5em } table { border-collapse: collapse }
td { padding: .1em .8em .1em 0 } iframe { width: 100%; height: 40em; border: 0; background: #fff }
.bar { display: inline-block; height: .7em; background: var(--mark) } .error { border-color: #d55e00 }
</style></head><body>
<h1>tfm <span id="names"></span></h1>
<p id="empty" hidden>The models here answer no requests of this page.</p>
<nav role="tablist" aria-label="what to try"></nav>
<main id="panel" role="tabpanel" aria-labelledby=""></main>
<script id="data" type="application/json">__DATA__</script>
<script>
"use strict";
const models = JSON.parse(document.getElementById("data").textContent), TOKEN = "tfm-token";
const make = (name, fields, ...children) => {
  const node = Object.assign(document.createElement(name), fields); node.append(...children); return node;
};
const lines = text => text.split("\\n").filter(line => line.trim());
const share = value => (100 * value).toFixed(1) + " %";
function table(rows) {
  const body = make("tbody", {});
  for (const [value, text, width] of rows) body.append(make("tr", {}, make("td", { textContent: value }),
    make("td", {}, make("span", { className: "bar", style: `width:${Math.max(0, width) * 8}em`, ariaHidden: "true" })),
    make("td", { textContent: text })));
  return make("table", {}, body);
}
async function post(path, fields, signal) {
  const headers = { "Content-Type": "application/json" }, token = sessionStorage.getItem(TOKEN);
  if (token) headers.Authorization = "Bearer " + token;
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(fields), signal });
  if (response.status === 401) {
    const entered = prompt("This server asks for its token:");
    if (entered) { sessionStorage.setItem(TOKEN, entered); return post(path, fields, signal); }
  }
  if (!response.ok) throw new Error((await response.json()).error.message);
  return response;
}
const ask = async (path, fields, signal) => (await post(path, fields, signal)).json();
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\\n\\n"); rest = parts.pop();
    for (const part of parts) if (part !== "data: [DONE]") yield JSON.parse(part.slice(6));
  }
}
async function write(path, fields, show, signal) {
  let text = "";
  for await (const event of events(await post(path, { ...fields, stream: true }, signal))) {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices[0]; text += choice.text ?? choice.delta.content; show(text);
  }
}
const drawing = values => ({ max_tokens: +values.tokens, temperature: +values.temperature });
const numbers = [["tokens", "new tokens", "number", 64, 1, 4096], ["temperature", "temperature", "number", 0.8, 0, 5]];
const KINDS = {
  complete: { title: "Write", fields: [["text", "A text to go on from", 5], ...numbers],
    run: (model, v, show, signal) => write("/v1/completions", { model, prompt: v.text, ...drawing(v) },
      text => show(v.text + text), signal) },
  chat: { title: "Talk", fields: [["text", "What you say", 4], ...numbers],
    run: (model, v, show, signal) => write("/v1/chat/completions",
      { model, messages: [{ role: "user", content: v.text }], ...drawing(v) }, show, signal) },
  fill: { title: "Fill a blank", fields: [["text", "A text with [MASK] where a word is missing", 3]],
    run: async (model, v, show, signal) => {
      const [blanks] = await ask("/fill", { model, texts: v.text, top_k: 8 }, signal);
      show(...blanks.map((blank, index) => make("section", {}, make("h2", { textContent: `blank ${index + 1}` }),
        table(blank.map(guess => [guess.token, share(guess.probability), guess.probability]))))); } },
  embed: { title: "Find", fields: [["text", "What you look for", 2], ["texts", "Texts, one a line", 8]], run: rank },
  rank: { title: "Rank", fields: [["text", "A question", 2], ["texts", "Texts, one a line", 8]], run: rank },
  classify: { title: "Classify", fields: [["text", "Texts, one a line", 4]],
    run: async (model, v, show, signal) => {
      const rows = await ask("/classify", { model, texts: lines(v.text) }, signal);
      show(...rows.map(row => make("section", {}, make("h2", { textContent: row.label }),
        table(Object.entries(row.probabilities).map(([name, value]) => [name, share(value), value]))))); } },
  translate: { title: "Translate", fields: [["text", "Sentences, one a line", 4]],
    run: async (model, v, show, signal) =>
      show((await ask("/translate", { model, texts: lines(v.text) }, signal)).join("\\n")) },
  look: { title: "Look at attention", fields: [["text", "A text", 3]],
    run: async (model, v, show, signal) => {
      const shown = await (await post("/attention", { model, texts: v.text }, signal)).blob();
      show(make("iframe", { title: "attention", src: URL.createObjectURL(shown) })); } },
};
async function rank(model, v, show, signal) {
  const rows = await ask("/rerank", { model, query: v.text, texts: lines(v.texts), return_text: true }, signal);
  show(table(rows.map(row => [row.score.toFixed(3), row.text, row.score])));
}
function field([name, label, kind, value, low, high]) {
  const id = "field-" + name;
  const input = kind === "number" ? make("input", { id, type: kind, value, min: low, max: high, step: "any" })
    : make("textarea", { id, rows: kind, required: true });
  return make("div", {}, make("label", { htmlFor: id, textContent: label }), input);
}
let running = null;
function open(model, ability, tab) {
  running?.abort();
  for (const other of document.querySelectorAll("[role=tab]")) {
    other.ariaSelected = String(other === tab); other.tabIndex = other === tab ? 0 : -1;
  }
  const kind = KINDS[ability], result = make("output", { ariaLive: "polite" });
  const button = make("button", { textContent: kind.title }), stop = make("button", { textContent: "Stop",
    type: "button", hidden: true, onclick: () => running?.abort() });
  const isNumber = item => item[2] === "number";
  const texts = kind.fields.filter(item => !isNumber(item)), rest = kind.fields.filter(isNumber);
  const form = make("form", {}, ...texts.map(field),
    make("div", { className: "row", style: "margin:.8em 0" }, ...rest.map(field), button, stop), result);
  form.onsubmit = async event => {
    event.preventDefault();
    running?.abort();
    const own = running = new AbortController();
    button.disabled = true; stop.hidden = false; result.className = ""; result.replaceChildren("…");
    const values = Object.fromEntries(kind.fields.map(([name]) => [name, form.querySelector("#field-" + name).value]));
    try { await kind.run(model, values, (...nodes) => result.replaceChildren(...nodes), own.signal); }
    catch (error) {
      if (error.name !== "AbortError") { result.className = "error"; result.replaceChildren(error.message); }
    } finally { button.disabled = false; stop.hidden = true; }
  };
  const panel = document.getElementById("panel");
  panel.setAttribute("aria-labelledby", tab.id); panel.replaceChildren(form);
}
const nav = document.querySelector("nav");
for (const { name, abilities } of models) for (const ability of Object.keys(KINDS)) {
  if (!abilities.includes(ability)) continue;
  const title = KINDS[ability].title + (models.length > 1 ? ` (${name})` : "");
  const tab = make("button", { id: `tab-${nav.children.length}`, textContent: title, role: "tab" });
  tab.setAttribute("aria-controls", "panel"); tab.setAttribute("role", "tab");
  tab.onclick = () => open(name, ability, tab);
  nav.append(tab);
}
nav.onkeydown = event => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], tabs = [...nav.children];
  if (!step) return;
  const next = tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length];
  next.click(); next.focus();
};
document.getElementById("names").textContent = models.map(model => model.name).join(", ");
if (nav.children.length) nav.children[0].click(); else document.getElementById("empty").hidden = false;
</script></body></html>
"""


def page(models: Iterable[Served]) -> str:
    """The page for these models."""
    data = json_text([{"name": model.name, "abilities": model.abilities} for model in models])
    return _HTML.replace("__DATA__", html.escape(data, quote=False).replace("&amp;", "&"))
