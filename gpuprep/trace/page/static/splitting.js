// Iterations moved by a key op, and the work inside of annotations alone: the sums of data.js are made again from single
// ops and kernels, by the rules of trace/model, with the same figures.

const OUTSIDE = -1;
const YES = 1; // as data.js numbers the answers
const OP = 0, ANNOTATION = 1, MODULE = 2; // columns.OpKind
const LONGEST_PATH = 500; // characters, as the model keeps them

// Object.assign would call the getters.
const extend = methods => Object.defineProperties(page.Data.prototype, Object.getOwnPropertyDescriptors(methods));

// The row of the last start at or before a time; -1 before the first.
const rowAt = (starts, time) => {
  let low = 0, high = starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= time) low = middle + 1; else high = middle;
  }
  return low - 1;
};

// The iteration of a time; OUTSIDE for a time in none.
const iterationAt = ({ start, end }, time) => {
  const row = rowAt(start, time);
  return row >= 0 && time <= end[row] ? row : OUTSIDE;
};

// Intervals merged where they touch or overlap. `rows`: in the order of their starts.
const merged = (rows, start, end) => {
  const starts = [], ends = [], before = [0];
  for (const row of rows) {
    const last = ends.length - 1;
    if (last >= 0 && start[row] <= ends[last]) ends[last] = Math.max(ends[last], end[row]);
    else { starts.push(start[row]); ends.push(end[row]); }
  }
  for (let i = 0; i < starts.length; i++) before.push(before[i] + ends[i] - starts[i]);
  return { starts, ends, before };
};

// How much of merged intervals lies before a time.
const unionUntil = ({ starts, ends, before }, time) => {
  const row = rowAt(starts, time);
  return row < 0 ? 0 : before[row] + Math.min(time, ends[row]) - starts[row];
};

const mergeTwo = (a, b, start) => {
  const out = new Int32Array(a.length + b.length);
  let i = 0, j = 0, k = 0;
  while (i < a.length && j < b.length) out[k++] = start[b[j]] < start[a[i]] ? b[j++] : a[i++];
  while (i < a.length) out[k++] = a[i++];
  while (j < b.length) out[k++] = b[j++];
  return out;
};

// A name without its numbers: "ProfilerStep#12" and "ProfilerStep#13" are of one family.
const family = name => name.replace(/\d+/g, "#");

extend({
  // Per device in deviceOrder: rows of events in the order of their starts. Lanes are sorted already: they are merged.
  eventsByDevice() {
    return this.once("by device", () => {
      const { lanes, lane, count, start } = this.events, lists = lanes.map(() => [0, 0]);
      for (let i = 0; i < count; i++) {
        const one = lists[lane[i]];
        if (!one[1]) one[0] = i;
        one[1] = i + 1;
      }
      return this.deviceOrder.map(device => {
        let parts = lists.filter((_, i) => lanes[i].device === device)
          .map(([from, to]) => Int32Array.from({ length: to - from }, (_, i) => from + i));
        while (parts.length > 1) {
          const next = [];
          for (let i = 0; i < parts.length; i += 2)
            next.push(i + 1 < parts.length ? mergeTwo(parts[i], parts[i + 1], start) : parts[i]);
          parts = next;
        }
        return parts[0] || new Int32Array(0);
      });
    });
  },

  // When a single kernel was launched: that decides about its iteration. Without a call it is its own start.
  launchTime(event) {
    const { called, call, start } = this.events;
    return called[event] ? call[event] : start[event];
  },

  rangesNamed(matches) {
    const { count, what, names } = this.ranges, chosen = new Set(), rows = [];
    this.ops.forEach((op, id) => { if (matches(op.type)) chosen.add(id); });
    names.forEach((name, i) => { if (matches(name)) chosen.add(this.ops.length + i); });
    for (let i = 0; i < count; i++) if (chosen.has(what[i])) rows.push(i);
    return rows;
  },

  // Iterations from one call of the key op to the next; of the thread with most of them, none inside another.
  bordersOf(keyOp) {
    const { thread, start, end } = this.ranges, byThread = new Map();
    for (const row of this.rangesNamed(name => name === keyOp)) {
      if (!byThread.has(thread[row])) byThread.set(thread[row], []);
      byThread.get(thread[row]).push(row);
    }
    let best = [];
    for (const number of [...byThread.keys()].sort((a, b) => a - b))
      if (byThread.get(number).length > best.length) best = byThread.get(number);
    const kept = [];
    let reached = -Infinity, last = -Infinity;
    for (const row of best) {
      if (end[row] > reached && start[row] > last) kept.push(row);
      reached = Math.max(reached, end[row]);
      last = start[row];
    }
    const starts = Float64Array.from(kept, row => start[row]), count = kept.length;
    const ends = starts.map((_, i) => i + 1 < count ? starts[i + 1] - 1 : Math.max(this.header.last_moment, starts[i]));
    return { name: kept.map((_, i) => `${keyOp} ${i}`), how: `key op ${keyOp}`, count, start: starts, end: ends };
  },

  keyOps() {
    if (!this.has.ops || !this.has.kernels) return [];
    return this.once("key ops", () => {
      const { what, count, names } = this.ranges, calls = new Map();
      for (let i = 0; i < count; i++) {
        const name = what[i] < this.ops.length ? this.ops[what[i]].type : names[what[i] - this.ops.length];
        calls.set(name, (calls.get(name) || 0) + 1);
      }
      const rows = new Map([...calls].map(([name, number]) =>
        [name, { name, calls: number, eligible: false, using_tensor_cores: false, kernel_calls: 0, ids: [] }]));
      const { cells } = this.own;
      this.ops.forEach((op, id) => {
        const row = rows.get(op.type);
        if (row) { row.ids.push(id); row.eligible = row.eligible || op.eligible; }
      });
      for (let i = 0; i < cells.op.length; i++) {
        const row = rows.get(this.ops[cells.op[i]].type);
        if (!row || this.memoryKernel[cells.kernel[i]]) continue;
        row.kernel_calls += cells.calls[i];
        row.using_tensor_cores = row.using_tensor_cores || this.tensorKernel[cells.kernel[i]] === YES;
      }
      return [...rows.values()];
    });
  },

  domains() {
    if (!this.has.ops || !this.has.kernels) return [];
    return this.once("domains", () => {
      const { kind, count } = this.ranges, found = new Map();
      for (let i = 0; i < count; i++) {
        if (kind[i] !== ANNOTATION) continue;
        const name = family(this.rangeName(i));
        found.set(name, (found.get(name) || 0) + 1);
      }
      return [...found].map(([name, ranges]) => ({ name, ranges })).sort((a, b) => b.ranges - a.ranges);
    });
  },
});

// Rows with the same key as one: sorted by the key, which is a whole number; below 0 takes no part.
class Groups {
  constructor(count, keyOf) {
    const rows = new Map(), keys = [];
    this.of = new Int32Array(count).fill(-1);
    for (let i = 0; i < count; i++) {
      const key = keyOf(i);
      if (key < 0) continue;
      let row = rows.get(key);
      if (row === undefined) { rows.set(key, row = keys.length); keys.push(key); }
      this.of[i] = row;
    }
    this.keys = Float64Array.from(keys).sort();
    this.count = keys.length;
    const rank = new Int32Array(this.count);
    this.keys.forEach((key, i) => { rank[rows.get(key)] = i; });
    for (let i = 0; i < count; i++) if (this.of[i] >= 0) this.of[i] = rank[this.of[i]];
  }

  each(start, take) {
    const made = new Float64Array(this.count).fill(start);
    for (let i = 0; i < this.of.length; i++) if (this.of[i] >= 0) made[this.of[i]] = take(made[this.of[i]], i);
    return made;
  }

  size() { return this.each(0, sum => sum + 1); }
  sum(values) { return this.each(0, (sum, i) => sum + values[i]); }
  least(values) { return this.each(Infinity, (low, i) => Math.min(low, values[i])); }
  most(values) { return this.each(0, (high, i) => Math.max(high, values[i])); }
}

extend({
  // The profile's own split, as Python summed it.
  get own() {
    return this.once("own", () => ({
      iterations: this.iterations, cells: this.group("cell"), opcells: this.group("opcell"), modulecells: this.group("modulecell"),
      busy: this.column("busy.inside"),
      busyFirst: this.column("busy.first"), busyUntil: this.column("busy.until"), problems: [], range: null, keep: null, event: this.has.kernels ? this.events.iteration : null,
    }));
  },

  // All tables of a choice. Without `start` and `stop`: of the iterations that the file was opened with.
  aggregate({ start, stop, keyOp = "", domain = "" } = {}) {
    const split = this.split(keyOp, domain), last = Math.max(split.iterations.count - 1, 0), opened = page.state.document;
    const summary = !keyOp && opened ? opened.summary : { start_iteration: 0, stop_iteration: last };
    const to = Math.min(stop ?? summary.stop_iteration, last), from = Math.min(Math.max(start ?? summary.start_iteration, 0), to);
    return this.once(`tables ${JSON.stringify([from, to, keyOp, domain])}`,
      () => new page.Tables(this, split, { start: from, stop: to, keyOp, domain }, from, to));
  },

  split(keyOp, domain) {
    if (!keyOp && !domain) return this.own;
    return this.once(`split ${JSON.stringify([keyOp, domain])}`, () => this.splitAgain(keyOp, domain));
  },

  splitAgain(keyOp, domain) {
    const events = this.events, ranges = this.ranges;
    if (!events || !ranges) return { ...this.own, problems: ["Single kernels and ops are not in this page: nothing else can be chosen."] };
    const iterations = keyOp ? this.bordersOf(keyOp) : this.iterations;
    if (!iterations.count) return { ...this.own, problems: [`${keyOp} is not in this profile.`] };
    const inside = domain ? this.domainUnion(domain) : null;
    const holds = time => {
      if (!inside) return true;
      const row = rowAt(inside.starts, time);
      return row >= 0 && time < inside.ends[row];
    };
    const split = { iterations, problems: [], keep: null };
    split.event = keyOp ? this.iterationsOfEvents(iterations) : events.iteration;
    split.range = keyOp ? Int32Array.from(ranges.start, time => iterationAt(iterations, time)) : ranges.iteration;
    if (inside) split.keep = Uint8Array.from(events.start, (_, i) => (holds(this.launchTime(i)) ? 1 : 0));
    if (keyOp) this.setWindows(split);
    split.cells = this.cellsOf(split);
    split.opcells = this.opcellsOf(split, holds);
    split.modulecells = this.modulecellsOf(split, holds);
    Object.assign(split, this.busyOf(split));
    if (!this.has.allOps) split.problems.push("Ops that launch nothing on a GPU are not in this page: CPU times are those of the others.");
    return split;
  },

  // A kernel is of the iteration in which it was launched; without a launch in the profile, of none.
  iterationsOfEvents(iterations) {
    const { count, called, call, start } = this.events, anyCalls = this.header.calls > 0;
    const made = new Int32Array(count);
    for (let i = 0; i < count; i++)
      made[i] = anyCalls ? (called[i] ? iterationAt(iterations, call[i]) : OUTSIDE) : iterationAt(iterations, start[i]);
    return made;
  },

  // The wall clock of an iteration: from its first op on the CPU to the last end of its ops or of its GPU work.
  setWindows(split) {
    const { iterations, event, range } = split, { count, start, end, kind } = this.ranges;
    const first = new Float64Array(iterations.count).fill(Infinity), until = new Float64Array(iterations.count).fill(-Infinity);
    const border = this.borderRanges();
    for (let i = 0; i < count; i++) {
      const at = range[i];
      if (at < 0 || border.has(i)) continue;
      if (kind[i] <= ANNOTATION && start[i] < first[at]) first[at] = start[i];
      if (kind[i] === OP && end[i] > until[at]) until[at] = end[i];
    }
    for (let i = 0; i < event.length; i++)
      if (event[i] >= 0 && this.events.end[i] > until[event[i]]) until[event[i]] = this.events.end[i];
    iterations.first = first.map((time, i) => (time > iterations.end[i] ? iterations.start[i] : time));
    iterations.until = until.map((time, i) => (time < iterations.first[i] ? iterations.end[i] : time));
  },

  // The ranges that are the iterations of the profile themselves (ProfilerStep#3): no work of the program.
  borderRanges() {
    return this.once("borders", () => {
      const { count, kind, start } = this.ranges, rows = new Set();
      const starts = new Map(Array.from(this.iterations.start, (time, i) => [time, this.iterations.name[i]]));
      for (let i = 0; i < count; i++)
        if (kind[i] === ANNOTATION && starts.get(start[i]) === this.rangeName(i)) rows.add(i);
      return rows;
    });
  },

  domainUnion(domain) {
    const { kind, start, end } = this.ranges;
    const rows = this.rangesNamed(name => family(name) === domain).filter(row => kind[row] === ANNOTATION);
    return merged(rows.sort((a, b) => start[a] - start[b]), start, end);
  },

  // Sums of single kernels by (iteration, op, kernel, device), in this order.
  cellsOf({ event, keep }) {
    const { op, kernel, device, duration, count } = this.events;
    const nOps = this.ops.length, nKernels = this.kernels.length;
    const places = new Map(this.deviceOrder.map((number, i) => [number, i])), nDevices = places.size;
    const groups = new Groups(count, i => (keep && !keep[i] ? -1
      : (((event[i] + 1) * nOps + op[i]) * nKernels + kernel[i]) * nDevices + places.get(device[i])));
    const cells = Object.fromEntries(["iteration", "op", "kernel", "device"].map(name => [name, new Int32Array(groups.count)]));
    groups.keys.forEach((key, i) => {
      cells.device[i] = this.deviceOrder[key % nDevices];
      const rest = Math.floor(key / nDevices), more = Math.floor(rest / nKernels);
      cells.kernel[i] = rest % nKernels;
      cells.op[i] = more % nOps;
      cells.iteration[i] = Math.floor(more / nOps) - 1;
    });
    return { ...cells, calls: groups.size(), total: groups.sum(duration), shortest: groups.least(duration), longest: groups.most(duration) };
  },

  // The ops among the ranges, as a tree: position in `rows`, position of the op around each, and its times.
  get tree() {
    return this.once("tree", () => {
      const { count, what, start, end, thread, children, calls, gpu_idle: idle } = this.ranges;
      const rows = [], position = new Int32Array(count).fill(-1), above = [], stack = [];
      for (let i = 0; i < count; i++) {
        if (what[i] >= this.ops.length) continue;
        if (rows.length && thread[i] !== thread[rows[rows.length - 1]]) stack.length = 0;
        while (stack.length && end[rows[stack[stack.length - 1]]] <= start[i]) stack.pop();
        position[i] = rows.length;
        above.push(stack.length ? stack[stack.length - 1] : -1);
        stack.push(rows.length);
        rows.push(i);
      }
      const pick = get => Float64Array.from(rows, get);
      const cpu = pick(i => end[i] - start[i]), self = pick(i => end[i] - start[i] - children[i]);
      // Where an op lies inside of one of its own row, its time is counted with that one.
      const inside = new Uint8Array(rows.length), open = new Map(), path = [];
      for (let at = 0; at < rows.length; at++) {
        while (path.length && path[path.length - 1] !== above[at]) open.set(what[rows[path[path.length - 1]]], open.get(what[rows[path.pop()]]) - 1);
        const row = what[rows[at]], depth = open.get(row) || 0;
        inside[at] = depth ? 1 : 0;
        open.set(row, depth + 1);
        path.push(at);
      }
      return { rows, position, above, inside, cpu, self, overhead: pick(i => end[i] - start[i] - children[i] - calls[i]), idle: pick(i => idle[i]) };
    });
  },

  // Sums of single ops by (iteration, op).
  opcellsOf({ iterations, range, keep }, holds) {
    const { rows, position, above, inside, cpu, self, overhead, idle } = this.tree, events = this.events;
    const { what, start } = this.ranges, nOps = this.ops.length, graphs = this.graphCalls();
    const graphIteration = Int32Array.from(graphs.start, time => iterationAt(iterations, time));
    const gpu = new Float64Array(rows.length);
    for (let i = 0; i < events.count; i++) {
      const at = events.instance[i] < 0 ? -1 : position[events.instance[i]];
      if (at >= 0 && (!keep || keep[i])) gpu[at] += events.duration[i];
    }
    const withInner = Float64Array.from(gpu);
    for (let at = rows.length - 1; at >= 0; at--) if (above[at] >= 0) withInner[above[at]] += withInner[at];
    const count = rows.length + graphs.op.length;
    const both = (one, other) => { const all = new Float64Array(count); all.set(one); if (other) all.set(other, one.length); return all; };
    const groups = new Groups(count, at => {
      const time = at < rows.length ? start[rows[at]] : graphs.start[at - rows.length];
      if (!holds(time)) return -1;
      if (at < rows.length) return (range[rows[at]] + 1) * nOps + what[rows[at]];
      return (graphIteration[at - rows.length] + 1) * nOps + graphs.op[at - rows.length];
    });
    const outer = withInner.map((time, at) => (inside[at] ? 0 : time));
    const all = { cpu: both(cpu, graphs.duration), cpu_self: both(self, graphs.duration), overhead: both(overhead), gpu_idle: both(idle), gpu: both(gpu) };
    return {
      iteration: Int32Array.from(groups.keys, key => Math.floor(key / nOps) - 1), op: Int32Array.from(groups.keys, key => key % nOps),
      calls: groups.size(), cpu: groups.sum(all.cpu), cpu_self: groups.sum(all.cpu_self), overhead: groups.sum(all.overhead),
      gpu_idle: groups.sum(all.gpu_idle), cpu_shortest: groups.least(all.cpu), cpu_longest: groups.most(all.cpu),
      gpu_with_children: groups.sum(both(outer)), gpu_shortest: groups.least(all.gpu), gpu_longest: groups.most(all.gpu),
      overhead_shortest: groups.least(all.overhead), overhead_longest: groups.most(all.overhead),
      gpu_idle_shortest: groups.least(all.gpu_idle), gpu_idle_longest: groups.most(all.gpu_idle),
    };
  },

  // Launches of CUDA graphs outside of every op, which are rows of the ops themselves.
  graphCalls() {
    return this.once("graphs", () => ("graph.start" in this.header.columns
      ? this.group("graph") : { op: new Int32Array(0), start: new Float64Array(0), duration: new Float64Array(0) }));
  },

  // Of each (iteration, device): the union of the device's events before the iteration's window, before its end, inside.
  busyOf({ iterations, keep }) {
    const { start, end } = this.events, devices = this.deviceOrder.length;
    const made = Object.fromEntries(["busy", "busyFirst", "busyUntil"].map(name => [name, new Float64Array(iterations.count * devices)]));
    this.eventsByDevice().forEach((rows, device) => {
      const union = merged(keep ? rows.filter(row => keep[row]) : rows, start, end);
      for (let i = 0; i < iterations.count; i++) {
        const at = i * devices + device, { first, until } = iterations;
        made.busyFirst[at] = unionUntil(union, first[i]);
        made.busyUntil[at] = unionUntil(union, Math.max(first[i], until[i]));
        made.busy[at] = made.busyUntil[at] - made.busyFirst[at];
      }
    });
    return made;
  },

  // Sums of single modules by (iteration, module).
  modulecellsOf({ range }, holds) {
    const { count, kind, start, end, thread } = this.ranges, numbers = new Map(this.modules.map((path, i) => [path, i]));
    const stack = [], rows = [], module = [], n = Math.max(1, this.modules.length);
    for (let i = 0; i < count; i++) {
      if (kind[i] !== MODULE) continue;
      if (rows.length && thread[i] !== thread[rows[rows.length - 1]]) stack.length = 0;
      while (stack.length && end[stack[stack.length - 1][0]] <= start[i]) stack.pop();
      const name = this.rangeName(i).replace(/^nn\.Module: /, ""), outer = stack.length ? stack[stack.length - 1][1] : null;
      const path = [...(outer === null ? name : `${outer}/${name}`)].slice(0, LONGEST_PATH).join("");
      stack.push([i, path]);
      rows.push(i);
      module.push(numbers.get(path) ?? -1);
    }
    const groups = new Groups(rows.length, at => (module[at] < 0 || !holds(start[rows[at]]) ? -1 : (range[rows[at]] + 1) * n + module[at]));
    return {
      iteration: Int32Array.from(groups.keys, key => Math.floor(key / n) - 1), module: Int32Array.from(groups.keys, key => key % n),
      calls: groups.size(), cpu: groups.sum(Float64Array.from(rows, i => end[i] - start[i])),
    };
  },
});
