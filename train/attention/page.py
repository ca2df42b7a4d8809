"""The page of attention: its text, its style and its program; data stand where it says __DATA__."""

HTML = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Attention</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
script-src 'unsafe-inline'">
<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.2em; color: #202020; background: #fff }
h1 { font-size: 1.1em; margin: 0 0 .3em } p { color: #606060; margin: .2em 0 .8em }
main { display: flex; flex-wrap: wrap; gap: 2em; align-items: flex-start }
#grid { display: grid; gap: 3px; align-items: center; overflow: auto; max-width: 100%; max-height: 85vh }
#grid span { font-size: 11px; color: #606060; text-align: center }
canvas { width: 56px; height: 56px; image-rendering: pixelated; border: 1px solid #d0d0d0; cursor: pointer }
canvas.chosen { border-color: #d55e00; outline: 2px solid #d55e00 }
svg text { font: 13px ui-monospace, monospace; cursor: pointer } svg text.chosen { fill: #d55e00; font-weight: bold }
svg .share { fill: #0072b2; font-size: 11px; cursor: default }
select { font: inherit; margin-right: 1em }
</style></head><body>
<h1 id="title"></h1>
<div><label>map <select id="map"></select></label><label>layer <select id="layer"></select></label>
<label>head <select id="head"></select></label><span id="now"></span></div>
<p>A row of the grid is a layer, a column a head. Choose one, then a word at the left: lines lead to the words that it
reads, thick where its weight is large. Choose the word again, and all lines return. Arrow keys change layer and
head.</p>
<main><div id="grid"></div><div id="lines"></div></main>
<script id="data" type="application/json">__DATA__</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id), SVG = "http://www.w3.org/2000/svg", STEP = 21;
for (const map of data.maps) for (const layer of map.layers)
  layer.bytes = Uint8Array.from(atob(layer.weights), letter => letter.charCodeAt(0));
let state = { map: 0, layer: 0, head: 0, word: -1 };

function read() {  // #map,layer,head,word, counted from 0; a word of -1 is all words
  const parts = location.hash.slice(1).split(",").map(Number);
  const within = (value, count) => Math.min(Math.max(value | 0, 0), count - 1);
  state.map = within(parts[0], data.maps.length);
  const map = data.maps[state.map];
  state.layer = within(parts[1], map.layers.length);
  state.head = within(parts[2], map.layers[state.layer].heads);
  state.word = parts.length > 3 ? Math.max(-1, Math.min(parts[3] | 0, map.queries.length - 1)) : -1;
}
function go(change) {
  const next = { ...state, ...change };
  location.hash = [next.map, next.layer, next.head, next.word].join(",");
}
function weight(map, layer, head, i, j) {
  return layer.bytes[(head * map.queries.length + i) * map.keys.length + j] / 255;
}
function choices(id, names, chosen) {
  at(id).replaceChildren(...names.map((name, index) => new Option(name, index, false, index === chosen)));
}
function thumbnail(map, layer, head) {
  const canvas = document.createElement("canvas"), rows = map.queries.length, columns = map.keys.length;
  canvas.width = columns; canvas.height = rows;
  const picture = new ImageData(columns, rows);
  for (let i = 0; i < rows; i++) for (let j = 0; j < columns; j++) {
    const share = Math.sqrt(weight(map, layer, head, i, j)), pixel = 4 * (i * columns + j);
    picture.data.set([255 - 255 * share, 255 - 141 * share, 255 - 77 * share, 255], pixel);
  }
  canvas.getContext("2d").putImageData(picture, 0, 0);
  return canvas;
}
function grid(map) {
  const columns = Math.max(...map.layers.map(layer => layer.heads)), cells = [document.createElement("span")];
  const label = text => Object.assign(document.createElement("span"), { textContent: text });
  at("grid").style.gridTemplateColumns = `2.5em repeat(${columns}, 60px)`;
  for (let head = 0; head < columns; head++) cells.push(label(head + 1));
  map.layers.forEach((layer, index) => {
    cells.push(label(layer.layer));
    for (let head = 0; head < columns; head++) {
      if (head >= layer.heads) { cells.push(label("")); continue; }
      const canvas = thumbnail(map, layer, head);
      canvas.dataset.place = `${index},${head}`;
      canvas.title = `layer ${layer.layer}, head ${head + 1}`;
      canvas.onclick = () => go({ layer: index, head });
      cells.push(canvas);
    }
  });
  at("grid").replaceChildren(...cells);
  at("grid").dataset.map = state.map;
}
function element(name, fields, text) {
  const made = document.createElementNS(SVG, name);
  for (const field in fields) made.setAttribute(field, fields[field]);
  if (text !== undefined) made.textContent = text;
  return made;
}
function lines(map, layer) {
  const longest = words => Math.min(30, Math.max(...words.map(word => word.length), 1)) * 8;
  const left = longest(map.queries) + 10, right = left + 260, width = right + longest(map.keys) + 70;
  const height = STEP * Math.max(map.queries.length, map.keys.length) + 10, y = index => STEP * index + 16;
  const drawing = element("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  map.queries.forEach((word, i) => {
    if (state.word >= 0 && state.word !== i) return;
    map.keys.forEach((key, j) => {
      const share = weight(map, layer, state.head, i, j);
      if (share < 0.02) return;
      drawing.append(element("line", { x1: left + 5, y1: y(i) - 4, x2: right - 5, y2: y(j) - 4,
        stroke: "#0072b2", "stroke-width": 0.5 + 5 * share, "stroke-opacity": 0.15 + 0.85 * share }));
      if (state.word >= 0) drawing.append(element("text", { x: width - 62, y: y(j), class: "share" },
        `${(100 * share).toFixed(0)} %`));
    });
  });
  map.queries.forEach((word, i) => {
    const text = element("text", { x: left, y: y(i), "text-anchor": "end", class: i === state.word ? "chosen" : "" });
    text.textContent = word.slice(0, 30);
    text.onclick = () => go({ word: i === state.word ? -1 : i });
    drawing.append(text);
  });
  map.keys.forEach((key, j) => drawing.append(element("text", { x: right, y: y(j) }, key.slice(0, 30))));
  at("lines").replaceChildren(drawing);
}
function show() {
  read();
  const map = data.maps[state.map], layer = map.layers[state.layer];
  choices("map", data.maps.map(map => map.title), state.map);
  choices("layer", map.layers.map(layer => layer.layer), state.layer);
  choices("head", Array.from({ length: layer.heads }, (_, head) => head + 1), state.head);
  if (at("grid").dataset.map !== String(state.map)) grid(map);
  for (const canvas of document.querySelectorAll("canvas"))
    canvas.classList.toggle("chosen", canvas.dataset.place === `${state.layer},${state.head}`);
  at("now").textContent = state.word < 0 ? "all words" : `word ${state.word + 1}: ${map.queries[state.word]}`;
  lines(map, layer);
}
at("title").textContent = document.title = data.title;
at("map").onchange = () => go({ map: at("map").selectedIndex, layer: 0, head: 0, word: -1 });
at("layer").onchange = () => go({ layer: at("layer").selectedIndex });
at("head").onchange = () => go({ head: at("head").selectedIndex });
addEventListener("hashchange", show);
addEventListener("keydown", event => {
  const step = { ArrowUp: ["layer", -1], ArrowDown: ["layer", 1], ArrowLeft: ["head", -1], ArrowRight: ["head", 1] };
  if (!(event.key in step) || event.target.tagName === "SELECT") return;
  event.preventDefault();
  go({ [step[event.key][0]]: Math.max(0, state[step[event.key][0]] + step[event.key][1]) });
});
show();
</script></body></html>
"""
