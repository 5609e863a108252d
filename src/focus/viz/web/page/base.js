// Making elements and writing figures. Data enters the page as text only, never as markup.

function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  applyAttributes(element, attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  applyAttributes(element, attributes);
  element.append(...children);
  return element;
}

function applyAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "selected") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
}

function fraction(value, digits = 3) {
  return value === null || value === undefined ? "–" : value.toFixed(digits);
}

function signed(value, digits = 3) {
  if (value === null || value === undefined) return "–";
  const text = value.toFixed(digits);
  return Number(text) > 0 ? `+${text}` : Number(text) === 0 ? (0).toFixed(digits) : text.replace("-", "−");
}

function count(number) {
  if (number === null || number === undefined) return "–";
  return number.toLocaleString("en-US", { maximumFractionDigits: 3 });
}

// Characters that act instead of showing become signs; a line break keeps its break.
function visible(text) {
  return text
    .replace(/[\u0000-\u0009\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`)
    .replace(/\n/g, "⏎\n");
}

function oneLine(text, most) {
  const line = visible(text).replace(/\n/g, "");
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

function facts(rows) {
  return h("dl", { class: "facts" }, rows.filter(Boolean).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]).flat());
}

function table(titles, rows, caption) {
  const head = h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)));
  const body = rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", typeof cell === "string" && /^[+−–\d]/.test(cell) ? { class: "number" } : {}, cell))));
  return h("table", {}, caption ? h("caption", { class: "aside" }, caption) : null, h("thead", {}, head), h("tbody", {}, body));
}

function scrollable(label, ...children) {
  return h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": label }, ...children);
}

function choice(label, name, options, chosen, onchange) {
  const select = h("select", { name, "aria-label": label, onchange: (event) => onchange(event.target.value) },
    options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
  return h("label", {}, label, select);
}

function announce(text) {
  document.getElementById("announce").textContent = text;
}
