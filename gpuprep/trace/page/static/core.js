// What all views share: elements, figures, the state, the address. Texts of a profile become text nodes, never markup.
//
// A view is `page.views[name] = {title, place, shown?(state), render(container, state)}`; `place` is its rank in the
// navigation. The address is #/view?iterations=3-7&op=12: a view keeps in it what a reader may want to send to somebody.

const SVG = "http://www.w3.org/2000/svg";
// As gpuprep/untrusted: control characters, and those that turn a text around or take no room, are shown as escapes.
const UNSAFE = new RegExp("[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b-\\u200f\\u2028-\\u202e" +
  "\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb]|[\\ud800-\\udbff](?![\\udc00-\\udfff])|(?<![\\ud800-\\udbff])[\\udc00-\\udfff]", "g");
const escaped = letter => {
  const code = letter.charCodeAt(0);
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
};
page.plain = text => String(text).replace(UNSAFE, escaped);

const fill = (node, attributes, children) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : page.plain(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(page.plain(child)));
  }
  return node;
};

// el("button", {type: "button", onclick: f}, "text", node, [more]): attributes by name, on… as listeners.
page.el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
page.svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

page.set = (node, attributes) => fill(node, attributes, []);

// Figures. null and NaN are n/a: nothing is 0 that is not known.
const known = value => value !== null && value !== undefined && Number.isFinite(value);
const group = digits => new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const GROUPS = [0, 1, 2, 3].map(group);
page.figure = (value, digits = 0) => (known(value) ? GROUPS[digits].format(value) : "n/a");
page.percent = (value, digits = 1) => (known(value) ? `${GROUPS[digits].format(value)} %` : "n/a");
const TIMES = [[1e6, "s"], [1e3, "ms"], [1, "µs"], [1e-3, "ns"]];
page.unitOf = us => TIMES.find(([size]) => Math.abs(us) >= size) || (us ? TIMES[3] : TIMES[2]);
page.time = us => {
  if (!known(us)) return "n/a";
  if (us === 0) return "0 µs";
  const [size, unit] = page.unitOf(us);
  return `${GROUPS[unit === "ns" ? 0 : 2].format(us / size)} ${unit}`;
};
page.bytes = value => {
  if (!known(value)) return "n/a";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = value, unit = 0;
  while (Math.abs(size) >= 1024 && unit < 4) { size /= 1024; unit += 1; }
  return `${GROUPS[unit ? 1 : 0].format(size)} ${units[unit]}`;
};
page.yes = value => page.el("span", { class: value ? "yes" : "no" }, value ? "✓" : "✗",
  page.el("span", { class: "unseen" }, value ? "yes" : "no"));

// A word with a small i that explains it: on hover, on focus, and read out.
let words = 0;
page.word = (label, meaning) => {
  const id = `word-${++words}`;
  return page.el("span", { class: "word" }, label, " ",
    page.el("button", { type: "button", class: "info", "aria-label": `What is ${label}?`, "aria-describedby": id }, "i"),
    page.el("span", { class: "tip", role: "tooltip", id }, meaning));
};

page.panel = (title, ...children) => {
  const id = `panel-${++words}`;
  return page.el("section", { class: "panel", "aria-labelledby": id }, page.el("h2", { id }, title), ...children);
};

// "More…": a menu of views that show more of a panel.
page.more = (label, views) => page.el("details", { class: "more" },
  page.el("summary", { "aria-label": `More views of ${label}` }, "More…"),
  page.el("ul", {}, views.filter(name => page.views[name]).map(name => page.el("li", {}, page.link(name, {}, page.views[name].title)))));

// ---------------------------------------------------------------- the state and the address
//
// page.state: {document, data, tables, choice, params, view}
//   document   {file, summary, advice, roofs} of the JSON document: the file, and what was told about it
//   data       the unpacked profile (data.js)
//   choice     {start, stop, keyOp, domain}: what all tables are of; undefined: as the file was opened
//   tables     data.aggregate(choice)
//   rank       of a job's page: the rank whose profile all this is of; undefined: a page of one profile
//   params     of the address, for the view's own use: page.keep({op: 12}) changes them
//   range      [start, stop] of the iterations that the tables are of; keyOp: "" or its name; model: {document, data}
// page.choose({start, stop}) or ({keyOp}) or ({domain}) chooses anew, and everything is shown again.

page.state = {
  document: null, data: null, tables: null, rank: undefined, choice: {}, params: new URLSearchParams(), view: "",
  get range() { return page.range(); },
  get keyOp() { return this.choice.keyOp || ""; },
  get model() { return this; },
};

const address = (view, params) => {
  const all = new URLSearchParams(params), { start, stop, keyOp, domain } = page.state.choice;
  for (const name of ["rank", "iterations", "key", "domain", "kept"]) all.delete(name);
  if (page.state.rank !== undefined) all.set("rank", page.state.rank);
  if (page.kept.text()) all.set("kept", page.kept.text());
  if (start !== undefined) all.set("iterations", `${start}-${stop}`);
  if (keyOp) all.set("key", keyOp);
  if (domain) all.set("domain", domain);
  const text = all.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
};
page.link = (view, params, ...children) => page.el("a", { href: address(view, params), "data-view": view }, ...children);
page.go = (view, params = {}) => { location.hash = address(view, params); };
// The address tells what is chosen now, without a step back in the browser's history for each.
page.keep = params => {
  const all = new URLSearchParams(page.state.params);
  for (const [name, value] of Object.entries(params))
    if (value === null || value === "") all.delete(name); else all.set(name, value);
  page.state.params = all;
  history.replaceState(null, "", address(page.state.view, all));
};

page.choose = change => {
  const state = page.state, moved = "keyOp" in change || "domain" in change; // then the iterations are others
  const all = { ...state.choice, ...(moved ? { start: undefined, stop: undefined } : {}), ...change };
  const choice = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined && value !== ""));
  state.tables = state.data.aggregate(choice);
  state.choice = choice;
  page.kept.add(state.tables.choice);
  history.replaceState(null, "", address(state.view, state.params));
  page.render();
};

// A whole choice instead of a change of it; the focus goes to the element with this id.
page.chooseAll = (choice, id) => {
  page.state.choice = {};
  page.choose(choice);
  document.getElementById(id)?.focus();
};

const parsed = () => {
  const [, view, query] = /^#\/([a-z-]*)(?:\?(.*))?$/.exec(location.hash) || [null, "", ""];
  return [view, new URLSearchParams(query || "")];
};
const chosen = params => {
  const range = /^(\d{1,7})-(\d{1,7})$/.exec(params.get("iterations") || ""), choice = {};
  if (range && Number(range[1]) <= Number(range[2])) [choice.start, choice.stop] = [Number(range[1]), Number(range[2])];
  if (params.get("key")) choice.keyOp = params.get("key");
  if (params.get("domain")) choice.domain = params.get("domain");
  return choice;
};

// Reads the address: the rank first, what is chosen next, then the view.
page.route = async () => {
  const state = page.state, asked = location.hash, [view, params] = parsed(), choice = chosen(params);
  const rank = page.rankOf(params);
  if (!state.data || rank !== state.rank) {
    const found = await page.profileOf(rank);
    if (location.hash !== asked) return; // another address came meanwhile
    Object.assign(state, found, { rank, tables: null });
    page.kept.list = [];
  }
  if (!state.tables || JSON.stringify(choice) !== JSON.stringify(state.choice)) {
    state.tables = state.data.aggregate(choice);
    state.choice = choice;
  }
  page.kept.read(params.get("kept"));
  page.kept.add(state.tables.choice);
  const open = name => Object.hasOwn(page.views, name) && (!page.views[name].shown || page.views[name].shown(state));
  state.view = open(view) ? view : "dashboard";
  state.params = params;
  page.render();
};

page.render = () => {
  const state = page.state, view = page.views[state.view], content = document.getElementById("content");
  page.frame(state);
  document.title = `${view.title} – ${page.profileName()} – gpuprep trace`;
  const back = state.view === "dashboard" ? "" : page.el("p", { class: "back" }, page.link("dashboard", {}, "← Dashboard"));
  content.replaceChildren(back, page.el("h1", {}, view.title));
  view.render(content, state);
};

page.profileName = () => {
  const file = page.state.document.file;
  return page.plain(file.profile_name || file.name);
};
// [start, stop] of the iterations that the tables are of.
page.range = () => [page.state.tables.summary.start_iteration, page.state.tables.summary.stop_iteration];
