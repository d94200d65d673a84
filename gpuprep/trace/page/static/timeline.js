// The view "Timeline": threads with their ops above, streams with their kernels below, of one iteration or of all.
//
// Wheel, keys, drag and buttons move the view. The same events stand in a table below, for whoever cannot use a picture.

const { el } = page;
const ALL = -1;
const ROW = 18, HEAD = 26, GAP = 8, FONT = "11px system-ui, sans-serif";
const NARROW = 560, MOST_SIDE = 260; // on a narrow page names stand above their rows, else beside them
const MOST_DEPTH = 24, MOST_ROWS = 400; // rows of ops in one thread, and of the picture
const LEAST_NS = 50; // width of the closest view
const MOST_LISTED = 200000;
const KIND_WORDS = ["op", "annotation", "module"];

const limited = (value, low, high) => Math.min(Math.max(value, low), high);
const time = ns => page.time(ns / 1000);

// Where an event begins that is the first to end after `time`: rows of one lane do not lie inside each other.
const firstAt = (rows, start, time) => {
  let low = 0, high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[rows[middle]] < time) low = middle + 1; else high = middle;
  }
  return low;
};

// Rows of the picture: {label, kind, rows: events by start, start, end, longest}. `longest`: how far to look back.
const lanesOf = (data, from, to) => {
  const made = [], { ranges, events } = data;
  let left = 0;
  const longestOf = (rows, start, end) => rows.reduce((most, row) => Math.max(most, end[row] - start[row]), 0);
  if (ranges) {
    const threads = new Map();
    for (let i = 0; i < ranges.count; i++) {
      if (ranges.end[i] < from || ranges.start[i] > to) continue;
      const depths = threads.get(ranges.thread[i]) || [];
      threads.set(ranges.thread[i], depths);
      const depth = ranges.depth[i];
      if (depth >= MOST_DEPTH) { left += 1; continue; }
      while (depths.length <= depth) depths.push([]);
      depths[depth].push(i);
    }
    // The thread with most ops first.
    const size = depths => depths.reduce((sum, rows) => sum + rows.length, 0);
    for (const [thread, depths] of [...threads].sort((a, b) => size(b[1]) - size(a[1]))) {
      depths.filter(rows => rows.length).forEach((rows, depth) => {
        if (made.length >= MOST_ROWS) { left += rows.length; return; }
        made.push({ kind: "cpu", label: depth ? "" : `CPU ${ranges.threads[thread]}`, name: `CPU ${ranges.threads[thread]}`,
          rows, start: ranges.start, end: ranges.end, longest: longestOf(rows, ranges.start, ranges.end), first: depth === 0 });
      });
    }
  }
  events.lanes.forEach((lane, number) => {
    const rows = [];
    const [low, high] = data.laneRows()[number];
    for (let i = low; i < high; i++) if (events.end[i] >= from && events.start[i] <= to) rows.push(i);
    if (!rows.length) return;
    if (made.length >= MOST_ROWS) { left += rows.length; return; }
    const label = `GPU ${lane.device} stream ${lane.stream}`;
    made.push({ kind: "gpu", label, name: label, rows, start: events.start, end: events.end, longest: longestOf(rows, events.start, events.end), first: true });
  });
  return { lanes: made, left };
};

Object.defineProperties(page.Data.prototype, Object.getOwnPropertyDescriptors({
  laneRows() {
    return this.once("lane rows", () => {
      const { lanes, lane, count } = this.events, found = lanes.map(() => [0, 0]);
      for (let i = count - 1; i >= 0; i--) { found[lane[i]][0] = i; if (!found[lane[i]][1]) found[lane[i]][1] = i + 1; }
      return found;
    });
  },

  nameOf(kind, row) {
    return kind === "gpu" ? this.kernels[this.events.kernel[row]].name : this.rangeName(row);
  },
}));

const named = lane => page.plain(lane.label).slice(0, 200);
// The begin of a name, as much as there is room for.
const fitting = (pen, name, room) => {
  if (pen.measureText(name).width <= room) return name;
  let letters = name.length;
  while (letters > 1 && pen.measureText(`${name.slice(0, letters)}…`).width > room) letters -= 1;
  return `${name.slice(0, letters)}…`;
};

class Timeline {
  constructor(state, iteration) {
    this.state = state;
    this.data = state.data;
    const { iterations } = state.tables.split;
    this.iteration = iteration;
    if (iteration === ALL) {
      const [start, stop] = state.range;
      this.low = iterations.first[start];
      this.high = iterations.until.slice(start, stop + 1).reduce((last, time) => Math.max(last, time));
    } else [this.low, this.high] = [iterations.first[iteration], iterations.until[iteration]];
    this.high = Math.max(this.high, this.low + LEAST_NS);
    [this.from, this.to] = [this.low, this.high];
    Object.assign(this, lanesOf(this.data, this.low, this.high));
    this.picked = null; // {lane, at}: a lane and a place in its rows
    this.named = ""; // of the picked event, until the view or the search says something else
    this.found = null; // {gpu: Set, cpu: Set, list}: what the search finds
    this.canvas = el("canvas", { tabindex: "0", role: "application", id: "timeline", "aria-describedby": "timeline-help timeline-shown",
      "aria-label": "Timeline of threads and streams" });
    this.tip = el("div", { class: "chart-tip", hidden: true });
    this.said = el("p", { class: "soft small", id: "timeline-shown", role: "status" });
    this.box = el("div", { class: "timeline", tabindex: "-1" }, this.canvas);
    this.place = el("div", { class: "draw" }, this.box, this.tip);
    this.listen();
  }

  get name() { return this.iteration === ALL ? "the chosen iterations" : `iteration ${this.iteration}`; }

  // ---------------------------------------------------------------- picture

  x(ns) { return this.side + ((ns - this.from) / (this.to - this.from)) * (this.width - this.side); }
  ns(x) { return this.from + ((x - this.side) / (this.width - this.side)) * (this.to - this.from); }

  layout() {
    this.width = Math.max(260, this.place.clientWidth || 640);
    this.pen = this.canvas.getContext("2d");
    this.pen.font = FONT;
    const above = this.width < NARROW, names = this.lanes.filter(lane => lane.label).map(lane => this.pen.measureText(named(lane)).width);
    this.side = above ? 0 : Math.min(MOST_SIDE, 14 + names.reduce((most, one) => Math.max(most, one), 0));
    let y = HEAD;
    for (const lane of this.lanes) {
      if (lane.first) y += above && lane.label ? ROW : GAP;
      lane.y = y;
      lane.named = above ? y - ROW / 2 : y + ROW / 2;
      y += ROW;
    }
    this.height = y + 6;
    const ratio = Math.min(window.devicePixelRatio || 1, 3);
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.draw();
  }

  colours() {
    const style = getComputedStyle(document.documentElement), get = name => style.getPropertyValue(`--${name}`).trim();
    return { card: get("card"), ink: get("ink"), soft: get("soft"), rule: get("rule"), tc: get("tc"), plain: get("eligible"),
      memory: get("memory"), unknown: get("told-not"), op: get("other"), annotation: get("link"), module: get("hint"), outside: get("idle") };
  }

  colourOf(lane, row, colours) {
    if (lane.kind === "cpu") return colours[KIND_WORDS[this.data.ranges.kind[row]]];
    const { split } = this.state.tables, kernel = this.data.kernels[this.data.events.kernel[row]];
    if (this.iteration !== ALL && split.event[row] !== this.iteration) return colours.outside;
    if (kernel.memory) return colours.memory;
    return { yes: colours.tc, no: colours.plain, unknown: colours.unknown }[kernel.tensor_cores];
  }

  draw() {
    if (!this.pen) return;
    const { pen, width, height } = this, colours = this.colours();
    pen.fillStyle = colours.card;
    pen.fillRect(0, 0, width, height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.fillStyle = colours.soft;
    pen.strokeStyle = colours.rule;
    pen.lineWidth = 1;
    const [low, high] = [(this.from - this.low) / 1000, (this.to - this.low) / 1000], [size, unit] = page.unitOf(high);
    for (const us of page.ticks(low, high, Math.max(2, Math.floor((width - this.side) / 90)))) {
      const x = this.x(this.low + us * 1000);
      pen.beginPath(); pen.moveTo(x, HEAD - 6); pen.lineTo(x, height); pen.stroke();
      const words = `${Number((us / size).toPrecision(7))} ${unit}`, half = pen.measureText(words).width / 2;
      pen.textAlign = "center";
      pen.fillText(words, limited(x, half + 3, width - half - 3), 11);
    }
    this.shown = 0;
    pen.textAlign = "left";
    for (const lane of this.lanes) this.drawLane(lane, colours);
    if (this.side) {
      pen.fillStyle = colours.card;
      pen.fillRect(0, HEAD - 8, this.side - 2, height);
    }
    pen.fillStyle = colours.ink;
    for (const lane of this.lanes) if (lane.label) pen.fillText(fitting(pen, named(lane), (this.side || width) - 12), 6, lane.named);
    this.drawPicked(colours);
    // What was picked stays said when the page is drawn again at another width, as the open details make it.
    const words = this.named || `Shown of ${this.name}: ${time(this.from - this.low)} to ${time(this.to - this.low)}, ${page.figure(this.shown)} events` +
      (this.left ? `; ${page.figure(this.left)} lie deeper than this picture` : "") +
      (this.found ? `; found by the search: ${page.figure(this.found.list.length)}` : "");
    if (this.said.textContent !== words) this.said.textContent = words;
  }

  drawLane(lane, colours) {
    const { pen } = this, { rows, start, end } = lane, width = this.width;
    let reached = -1;
    for (let at = firstAt(rows, start, this.from - lane.longest); at < rows.length; at++) {
      const row = rows[at];
      if (start[row] > this.to) break;
      if (end[row] < this.from) continue;
      this.shown += 1;
      const left = Math.max(this.x(start[row]), this.side - 2), right = Math.min(this.x(end[row]), width);
      const hit = !this.found || this.found[lane.kind].has(this.key(lane, row));
      // Many events in one pixel are one line; what the search finds is drawn always.
      if (right - left < 0.6 && left < reached && !(this.found && hit)) continue;
      const wide = Math.max(right - left, 0.8);
      reached = left + 0.8;
      pen.globalAlpha = hit ? 1 : 0.18;
      pen.fillStyle = this.colourOf(lane, row, colours);
      pen.fillRect(left, lane.y + 1, wide - (wide > 3 ? 0.5 : 0), ROW - 2);
      if (wide > 34 && hit) {
        pen.save();
        pen.beginPath(); pen.rect(left, lane.y, wide - 3, ROW); pen.clip();
        pen.fillStyle = colours.card;
        pen.fillText(page.plain(this.data.nameOf(lane.kind, row)).slice(0, 200), left + 4, lane.y + ROW / 2 + 0.5);
        pen.restore();
      }
    }
    pen.globalAlpha = 1;
  }

  drawPicked(colours) {
    if (!this.picked) return;
    const { pen } = this, box = (lane, row) => [this.x(lane.start[row]), lane.y + 1, Math.max(this.x(lane.end[row]) - this.x(lane.start[row]), 2), ROW - 2];
    pen.save();
    pen.beginPath(); pen.rect(this.side - 2, 0, this.width, this.height); pen.clip();
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 2;
    const { lane, at } = this.picked, row = lane.rows[at], mine = box(lane, row);
    pen.strokeRect(...mine);
    // From the op that launched it to the kernel.
    const launcher = lane.kind === "gpu" ? this.data.events.instance[row] : -1;
    const from = launcher >= 0 && this.lanes.find(one => one.kind === "cpu" && one.rows.includes(launcher));
    if (from) {
      const other = box(from, launcher);
      pen.strokeRect(...other);
      pen.beginPath();
      pen.moveTo(this.x(this.data.launchTime(row)), other[1] + ROW - 2);
      pen.lineTo(mine[0], mine[1]);
      pen.lineWidth = 1;
      pen.stroke();
    }
    pen.restore();
  }

  // ---------------------------------------------------------------- moving

  view(from, to, named = "") {
    const whole = this.high - this.low, width = limited(to - from, Math.min(LEAST_NS, whole), whole);
    this.from = limited(from + (to - from - width) / 2, this.low, this.high - width);
    this.to = this.from + width;
    this.named = named;
    this.draw();
    this.remember();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.view(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.view(this.from + by, this.to + by);
  }

  remember() {
    const whole = this.from === this.low && this.to === this.high;
    this.wait = this.wait || page.later(200, () => this.canvas.isConnected &&
      page.keep({ from: this.memo[0], to: this.memo[1] }));
    this.memo = whole ? [null, null] : [Math.round(this.from - this.low), Math.round(this.to - this.low)];
    this.wait();
  }

  eventAt(x, y) {
    if (x < this.side) return null;
    const lane = this.lanes.find(one => y >= one.y && y < one.y + ROW);
    if (!lane) return null;
    const { rows, start, end } = lane, slack = (this.to - this.from) / (this.width - this.side) * 3;
    const ns = this.ns(x);
    let best = null, distance = slack;
    for (let at = firstAt(rows, start, ns - lane.longest - slack); at < rows.length && start[rows[at]] <= ns + slack; at++) {
      const off = Math.max(start[rows[at]] - ns, ns - end[rows[at]], 0);
      if (off < distance || (off === 0 && distance === 0)) { best = { lane, at }; distance = off; }
    }
    return best;
  }

  pick(picked, show) {
    this.picked = picked;
    const { lane, at } = picked, row = lane.rows[at], [start, end] = [lane.start[row], lane.end[row]];
    const width = this.to - this.from;
    const named = show ? "" : `${page.plain(this.data.nameOf(lane.kind, row))}, ${lane.name}, ${time(end - start)}. Enter shows more.`;
    if (end < this.from || start > this.to) this.view(start - width * 0.4, start + width * 0.6, named);
    else { this.named = named; this.draw(); }
    const top = lane.y, { box } = this;
    if (top < box.scrollTop || top + ROW > box.scrollTop + box.clientHeight) box.scrollTop = top - box.clientHeight / 2;
    if (show) this.details();
  }

  step(by) {
    if (!this.picked) { const lane = this.lanes[0]; if (lane) this.pick({ lane, at: Math.min(firstAt(lane.rows, lane.start, this.from), lane.rows.length - 1) }); return; }
    const { lane, at } = this.picked;
    this.pick({ lane, at: limited(at + by, 0, lane.rows.length - 1) });
  }

  otherLane(by) {
    if (!this.picked) { this.step(0); return; }
    const { lane, at } = this.picked, next = this.lanes[limited(this.lanes.indexOf(lane) + by, 0, this.lanes.length - 1)];
    this.pick({ lane: next, at: limited(firstAt(next.rows, next.start, lane.start[lane.rows[at]]), 0, next.rows.length - 1) });
  }

  listen() {
    const { canvas } = this, at = event => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    let drag = null;
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(Math.sign(event.deltaX || event.deltaY) * 0.15);
      else this.zoom(event.deltaY < 0 ? 0.7 : 1 / 0.7, this.ns(limited(at(event)[0], this.side, this.width)));
    }, { passive: false });
    canvas.addEventListener("pointerdown", event => {
      if (event.button) return;
      const [x, y] = at(event);
      drag = { x, y, from: this.from, to: this.to, moved: false, select: event.shiftKey };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", event => {
      const [x, y] = at(event);
      if (!drag) { this.hover(this.eventAt(x, y), x, y); return; }
      if (Math.abs(x - drag.x) > 3) drag.moved = true;
      if (!drag.moved) return;
      this.tip.hidden = true;
      const scale = (drag.to - drag.from) / (this.width - this.side);
      if (!drag.select) { this.view(drag.from - (x - drag.x) * scale, drag.to - (x - drag.x) * scale); return; }
      this.draw();
      this.pen.globalAlpha = 0.25;
      this.pen.fillStyle = this.colours().annotation;
      this.pen.fillRect(Math.min(x, drag.x), HEAD, Math.abs(x - drag.x), this.height);
      this.pen.globalAlpha = 1;
    });
    canvas.addEventListener("pointerup", event => {
      const [x, y] = at(event), was = drag;
      drag = null;
      if (!was) return;
      if (was.moved) { if (was.select) this.view(...[this.ns(was.x), this.ns(x)].sort((a, b) => a - b)); return; }
      const found = this.eventAt(x, y);
      if (found) this.pick(found, true);
    });
    canvas.addEventListener("pointercancel", () => { drag = null; this.draw(); });
    canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    canvas.addEventListener("dblclick", event => { this.zoom(0.3, this.ns(at(event)[0])); });
    canvas.addEventListener("keydown", event => {
      const keys = {
        ArrowLeft: () => (event.shiftKey ? this.step(-1) : this.pan(-0.2)), ArrowRight: () => (event.shiftKey ? this.step(1) : this.pan(0.2)),
        ArrowUp: () => this.otherLane(-1), ArrowDown: () => this.otherLane(1), "+": () => this.zoom(0.6), "=": () => this.zoom(0.6),
        "-": () => this.zoom(1 / 0.6), 0: () => this.view(this.low, this.high), Home: () => this.view(this.low, this.high),
        n: () => this.match(1), p: () => this.match(-1), Enter: () => { if (this.picked) this.details(); },
      };
      const run = keys[event.key];
      if (!run || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      run();
    });
    let width = 0;
    new ResizeObserver(() => {
      if (!this.place.isConnected || this.place.clientWidth === width) return;
      width = this.place.clientWidth;
      this.layout();
    }).observe(this.place);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const again = () => { if (this.place.isConnected) this.draw(); else dark.removeEventListener("change", again); };
    dark.addEventListener("change", again);
  }

  hover(found, x, y) {
    this.tip.hidden = !found;
    if (!found) return;
    const { lane, at } = found, row = lane.rows[at];
    this.tip.replaceChildren(el("strong", {}, this.data.nameOf(lane.kind, row).slice(0, 300)),
      el("div", {}, `${lane.name}: ${time(lane.end[row] - lane.start[row])}, at ${time(lane.start[row] - this.low)}`));
    this.tip.style.setProperty("left", `${limited(x + 14, 0, Math.max(0, this.width - 320))}px`);
    this.tip.style.setProperty("top", `${limited(y - this.box.scrollTop + 14, 0, Math.max(0, this.box.clientHeight - 60))}px`);
  }

  // ---------------------------------------------------------------- search and details

  key(lane, row) { return lane.kind === "gpu" ? this.data.events.kernel[row] : this.data.ranges.what[row]; }

  search(text) {
    const words = text.trim().toLowerCase();
    if (words === (this.words || "")) return; // Enter may have searched already, and stands at a match
    this.words = words;
    this.named = "";
    this.found = null;
    if (words) {
      const has = name => name.toLowerCase().includes(words), { data } = this;
      const gpu = new Set(data.kernels.filter(one => has(one.name)).map(one => one.id)), cpu = new Set();
      if (data.ranges) {
        data.ops.forEach(one => { if (has(one.type) || has(one.name)) cpu.add(one.id); });
        data.ranges.names.forEach((name, i) => { if (has(name)) cpu.add(data.ops.length + i); });
      }
      const list = [];
      for (const lane of this.lanes) lane.rows.forEach((row, at) => {
        if ({ gpu, cpu }[lane.kind].has(this.key(lane, row))) list.push({ lane, at, start: lane.start[row] });
      });
      this.found = { gpu, cpu, list: list.sort((a, b) => a.start - b.start) };
      this.matched = -1;
    }
    this.draw();
  }

  match(by) {
    const list = this.found ? this.found.list : [];
    if (!list.length) return;
    this.matched = (this.matched + by + list.length) % list.length;
    this.pick(list[this.matched]);
  }

  details() {
    const { lane, at } = this.picked, row = lane.rows[at], { data } = this, facts = [];
    const put = (name, value) => { if (value !== null && value !== undefined && value !== "") facts.push([name, value]); };
    put("Where", lane.name);
    put("Start", `${time(lane.start[row] - this.low)} after ${this.name} began`);
    put("Duration", time(lane.end[row] - lane.start[row]));
    if (lane.kind === "gpu") {
      const kernel = data.kernels[data.events.kernel[row]], op = data.ops[data.events.op[row]], launch = data.launch(row);
      const size = three => (three.some(one => one < 0) ? "" : three.join(" × "));
      put("Op", op.name);
      if (data.events.called[row]) {
        put("Launched", `${time(data.events.call[row] - this.low)} after it began`);
        put("From launch to start", time(lane.start[row] - data.events.call[row]));
      } else put("Launched", "not in this profile");
      if (kernel.memory) put("Bytes", page.bytes(data.events.bytes[row]));
      else {
        put("Uses Tensor Cores", kernel.tensor_cores + (kernel.rule ? ` (${kernel.rule})` : ""));
        put("Grid", size(launch.slice(0, 3)));
        put("Block", size(launch.slice(3, 6)));
        if (launch[6] >= 0) put("Registers a thread", launch[6]);
        if (launch[7] >= 0) put("Shared memory", page.bytes(launch[7]));
      }
      const iteration = this.state.tables.split.event[row];
      put("Iteration", iteration < 0 ? "none" : iteration);
    } else {
      const what = data.ranges.what[row], op = data.ops[what];
      put("Kind", KIND_WORDS[data.ranges.kind[row]]);
      if (op) { put("Direction", op.direction); put("Module", op.module); put("Data types", op.dtypes); put("Shapes", op.shapes); put("Could use Tensor Cores", `${op.eligible ? "yes" : "no"}${op.why ? ` (${op.why})` : ""}`); }
      if (op && op.stack.length) put("Stack", op.stack.join("\n"));
    }
    page.details(data.nameOf(lane.kind, row).slice(0, 500), el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, typeof value === "string" ? page.long(value) : value)])));
  }

  // The events of the picture as rows of a table.
  list() {
    const found = [];
    for (const lane of this.lanes) lane.rows.forEach((row, at) => { if (found.length < MOST_LISTED) found.push({ lane, at, row }); });
    return found.sort((a, b) => a.lane.start[a.row] - b.lane.start[b.row]);
  }
}

const table = (container, line) => {
  const rows = line.list();
  page.table(container, {
    name: "events", title: `Events of ${line.name}`, count: rows.length, order: ["start", "asc"],
    lead: rows.length >= MOST_LISTED ? `The first ${page.figure(MOST_LISTED)} of them; choose one iteration for all.` : "",
    columns: [
      { key: "where", title: "Where", get: i => rows[i].lane.name },
      { key: "name", title: "Name", get: i => line.data.nameOf(rows[i].lane.kind, rows[i].row) },
      { key: "start", title: "Start", unit: "ns", kind: "number", get: i => rows[i].lane.start[rows[i].row] - line.low },
      { key: "duration", title: "Duration", unit: "ns", kind: "number", get: i => rows[i].lane.end[rows[i].row] - rows[i].lane.start[rows[i].row] },
    ],
    pick: { head: "Show", label: i => `Show in the timeline: ${line.data.nameOf(rows[i].lane.kind, rows[i].row).slice(0, 80)}`, picked: null,
      on: i => line.pick({ lane: rows[i].lane, at: rows[i].at }, true) },
  });
};

page.views.timeline = {
  title: "Timeline",
  place: 55,
  render(container, state) {
    const { data, tables } = state;
    if (!data.has.kernels || !tables.iterations.length) {
      container.append(el("p", {}, data.has.kernels || !data.deviceOrder.length ? "This profile has no GPU events." : "Single kernels are not in this page, which would be too large with them. ",
      data.has.kernels || !data.deviceOrder.length ? "" : page.whereKernelsAre(state)), page.perfetto(state));
      return;
    }
    const last = tables.iterations.length - 1, asked = state.params.get("it");
    const iteration = asked === "all" ? ALL : limited(/^\d{1,7}$/.test(asked || "") ? Number(asked) : state.range[0], 0, last);
    const line = new Timeline(state, iteration);
    const open = next => { page.keep({ it: next === ALL ? "all" : String(next), from: null, to: null }); page.render(); document.getElementById("timeline-iteration")?.focus(); };
    const number = el("input", { type: "number", id: "timeline-iteration", min: 0, max: last, value: iteration === ALL ? "" : iteration,
      onchange: event => { const next = Math.round(Number(event.target.value)); if (Number.isFinite(next)) open(limited(next, 0, last)); } });
    const button = (label, words, run) => el("button", { type: "button", "aria-label": words, title: words, onclick: run }, label);
    const search = el("input", { type: "search", id: "timeline-search", placeholder: "Name of an op or kernel", value: state.params.get("find") || "" });
    const find = page.later(120, () => { line.search(search.value); page.keep({ find: search.value }); });
    search.addEventListener("input", find);
    search.addEventListener("keydown", event => { if (event.key === "Enter") { line.search(search.value); line.match(1); } });
    container.append(
      el("div", { class: "tools fields" },
        el("label", {}, el("span", {}, "Iteration"), number),
        button("All chosen", "Show all chosen iterations", () => open(ALL)),
        el("label", {}, el("span", {}, "Search"), search),
        button("‹", "Previous match", () => line.match(-1)), button("›", "Next match", () => line.match(1)),
        button("+", "Zoom in", () => line.zoom(0.5)), button("−", "Zoom out", () => line.zoom(2)),
        button("←", "Earlier", () => line.pan(-0.3)), button("→", "Later", () => line.pan(0.3)),
        button("Whole", "Show the whole iteration", () => line.view(line.low, line.high))),
      line.place, line.said,
      el("p", { class: "soft small", id: "timeline-help" }, "Wheel: zoom. Drag: move; with Shift: zoom to what is marked. Keys: ← → move, + − zoom, 0 whole, ↑ ↓ row, " +
        "Shift ← → event, Enter details, n p match."),
      el("ul", { class: "swatches" }, [["tc", "Kernel using Tensor Cores"], ["eligible", "not using them"], ["told-not", "name does not tell"], ["memory", "memory operation"],
        ["other", "op on the CPU"], ["annotation", "annotation"], ["module", "module"], ["idle", "of another iteration"]].map(([name, label]) => el("li", {}, el("span", { class: `swatch key ${name}` }), label))));
    for (const sentence of data.leftOut) container.append(el("p", { class: "soft small" }, `Not in this page: ${sentence}.`));
    const [from, to] = ["from", "to"].map(name => state.params.get(name)).map(value => (/^\d{1,16}$/.test(value || "") ? Number(value) : NaN));
    line.layout();
    if (from < to) line.view(line.low + from, line.low + to);
    if (search.value) line.search(search.value);
    const place = el("div", {});
    const show = el("button", { type: "button", "aria-expanded": "false", onclick: () => { show.setAttribute("aria-expanded", "true"); show.disabled = true; table(place, line); } }, "Show these events as a table");
    container.append(show, place, page.perfetto(state));
  },
};
