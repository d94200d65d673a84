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
    const chosen = new Set();
    this.ops.forEach((op, id) => { if (matches(op.type)) chosen.add(id); });
    this.ranges.names.forEach((name, i) => { if (matches(name)) chosen.add(this.ops.length + i); });
    return this.rangesOf(chosen);
  },

  rangesOf(chosen) {
    const { count, what } = this.ranges, rows = [];
    for (let i = 0; i < count; i++) if (chosen.has(what[i])) rows.push(i);
    return rows;
  },

  // Iterations from one call of the key op to the next; of the thread with most of them, none inside another.
  bordersOf(keyOp) {
    const { thread, start, end } = this.ranges, byThread = new Map();
    let calls = this.rangesNamed(name => name === keyOp);
    if (!calls.length) calls = this.rangesOf(new Set(this.ops.filter(op => op.name === keyOp).map(op => op.id)));
    for (const row of calls) {
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

  // What can be a key op: types of ops, ops by their whole name, annotations and modules.
  keyOps() {
    if (!this.has.ops || !this.has.kernels) return [];
    return this.once("key ops", () => {
      const { what, kind, count, names } = this.ranges, nOps = this.ops.length, rows = new Map(), { cells } = this.own;
      const line = (name, type) => {
        if (!rows.has(name)) rows.set(name, { name, type, calls: 0, eligible: false, using_tensor_cores: false, kernel_calls: 0 });
        return rows.get(name);
      };
      const calls = new Float64Array(nOps + names.length), kinds = new Uint8Array(calls.length);
      for (let i = 0; i < count; i++) { calls[what[i]] += 1; kinds[what[i]] = kind[i]; }
      // A name that is a type, too, means the type.
      const lines = this.ops.map(op => (calls[op.id] ? [line(op.type, "all of this type")] : []));
      const types = new Set(rows.keys());
      this.ops.forEach(op => { if (calls[op.id] && !types.has(op.name)) lines[op.id].push(line(op.name, op.type)); });
      this.ops.forEach(op => lines[op.id].forEach(one => { one.calls += calls[op.id]; one.eligible = one.eligible || op.eligible; }));
      names.forEach((name, i) => {
        if (calls[nOps + i]) line(name, kinds[nOps + i] === MODULE ? "module" : "annotation").calls += calls[nOps + i];
      });
      for (let i = 0; i < cells.op.length; i++) {
        if (this.memoryKernel[cells.kernel[i]]) continue;
        for (const one of lines[cells.op[i]]) {
          one.kernel_calls += cells.calls[i];
          one.using_tensor_cores = one.using_tensor_cores || this.tensorKernel[cells.kernel[i]] === YES;
        }
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

const filled = (count, get, Kind = Float64Array) => {
  const made = new Kind(count);
  for (let i = 0; i < count; i++) made[i] = get(i);
  return made;
};

// Rows with the same key as one: sorted by the key, which is a whole number below `limit`; below 0 takes no part.
const DENSE = 1 << 25; // keys that a table holds; more are looked up one by one
class Groups {
  constructor(keys, limit) {
    const count = keys.length, of = new Int32Array(count).fill(-1);
    if (limit <= DENSE) {
      const rank = new Int32Array(limit).fill(-1), found = [];
      for (let i = 0; i < count; i++) if (keys[i] >= 0) rank[keys[i]] = 0;
      for (let key = 0; key < limit; key++) if (rank[key] === 0) { rank[key] = found.length; found.push(key); }
      for (let i = 0; i < count; i++) if (keys[i] >= 0) of[i] = rank[keys[i]];
      this.keys = Float64Array.from(found);
    } else {
      const rows = new Map();
      for (let i = 0; i < count; i++) if (keys[i] >= 0) rows.set(keys[i], 0);
      this.keys = Float64Array.from(rows.keys()).sort();
      this.keys.forEach((key, i) => rows.set(key, i));
      for (let i = 0; i < count; i++) if (keys[i] >= 0) of[i] = rows.get(keys[i]);
    }
    this.of = of;
    this.count = this.keys.length;
  }

  size() {
    const { of } = this, made = new Float64Array(this.count);
    for (let i = 0; i < of.length; i++) if (of[i] >= 0) made[of[i]] += 1;
    return made;
  }

  sum(values) {
    const { of } = this, made = new Float64Array(this.count);
    for (let i = 0; i < of.length; i++) if (of[i] >= 0) made[of[i]] += values[i];
    return made;
  }

  least(values) {
    const { of } = this, made = new Float64Array(this.count).fill(Infinity);
    for (let i = 0; i < of.length; i++) if (of[i] >= 0 && values[i] < made[of[i]]) made[of[i]] = values[i];
    return made;
  }

  most(values) {
    const { of } = this, made = new Float64Array(this.count);
    for (let i = 0; i < of.length; i++) if (of[i] >= 0 && values[i] > made[of[i]]) made[of[i]] = values[i];
    return made;
  }

  parts(get, Kind = Int32Array) { return filled(this.count, i => get(this.keys[i]), Kind); }
}

extend({
  // The profile's own split, as Python summed it.
  get own() {
    const data = this;
    return this.once("own", () => ({
      iterations: this.iterations, cells: this.group("cell"), opcells: this.group("opcell"), modulecells: this.group("modulecell"),
      busy: this.column("busy.inside"), busyFirst: this.column("busy.first"), busyUntil: this.column("busy.until"),
      problems: [], range: null, keep: null,
      get event() { return data.has.kernels ? data.events.iteration : null; },
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
    split.range = keyOp ? filled(ranges.count, i => iterationAt(iterations, ranges.start[i]), Int32Array) : ranges.iteration;
    if (inside) split.keep = filled(events.count, i => (holds(this.launchTime(i)) ? 1 : 0), Uint8Array);
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

  // Of each single kernel the number of its (op, kernel, device) among the different ones, which are sorted.
  get kinds() {
    return this.once("kinds", () => {
      const { op, kernel, device, count } = this.events, nKernels = this.kernels.length;
      const places = new Map(this.deviceOrder.map((number, i) => [number, i])), nDevices = places.size;
      const limit = this.ops.length * nKernels * nDevices;
      const groups = new Groups(filled(count, i => (op[i] * nKernels + kernel[i]) * nDevices + places.get(device[i])), limit);
      return {
        of: groups.of, count: groups.count, op: groups.parts(key => Math.floor(key / nDevices / nKernels)),
        kernel: groups.parts(key => Math.floor(key / nDevices) % nKernels), device: groups.parts(key => this.deviceOrder[key % nDevices]),
      };
    });
  },

  // Sums of single kernels by (iteration, op, kernel, device), in this order.
  cellsOf({ iterations, event, keep }) {
    const { duration, count } = this.events, { kinds } = this, n = Math.max(1, kinds.count);
    const groups = new Groups(filled(count, i => (keep && !keep[i] ? -1 : (event[i] + 1) * n + kinds.of[i])), (iterations.count + 1) * n);
    const kind = groups.parts(key => key % n);
    return {
      iteration: groups.parts(key => Math.floor(key / n) - 1), op: kind.map(one => kinds.op[one]), kernel: kind.map(one => kinds.kernel[one]),
      device: kind.map(one => kinds.device[one]), calls: groups.size(), total: groups.sum(duration), shortest: groups.least(duration), longest: groups.most(duration),
    };
  },

  // The ops among the ranges, as a tree: position in `rows`, position of the op around each, and its times.
  get tree() {
    return this.once("tree", () => {
      const { count, what, start, end, thread, children, calls, gpu_idle: idle } = this.ranges;
      const nOps = this.ops.length, position = new Int32Array(count).fill(-1), stack = [];
      let size = 0;
      for (let i = 0; i < count; i++) if (what[i] < nOps) position[i] = size++;
      const rows = new Int32Array(size), above = new Int32Array(size);
      for (let i = 0; i < count; i++) {
        const at = position[i];
        if (at < 0) continue;
        rows[at] = i;
        if (at && thread[i] !== thread[rows[at - 1]]) stack.length = 0;
        while (stack.length && end[rows[stack[stack.length - 1]]] <= start[i]) stack.pop();
        above[at] = stack.length ? stack[stack.length - 1] : -1;
        stack.push(at);
      }
      const pick = get => filled(size, at => get(rows[at]));
      const cpu = pick(i => end[i] - start[i]), self = pick(i => end[i] - start[i] - children[i]);
      for (let at = 0; at < size; at++)
        if (above[at] >= 0) self[above[at]] -= Math.min(end[rows[at]], end[rows[above[at]]]) - start[rows[at]];
      return { rows, position, above, cpu, self, overhead: filled(size, at => self[at] - calls[rows[at]]), idle: pick(i => idle[i]) };
    });
  },

  // Sums of single ops by (iteration, op).
  opcellsOf({ iterations, range, keep }, holds) {
    const { rows, position, above, cpu, self, overhead, idle } = this.tree, events = this.events;
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
    const keys = filled(count, at => {
      if (!holds(at < rows.length ? start[rows[at]] : graphs.start[at - rows.length])) return -1;
      if (at < rows.length) return (range[rows[at]] + 1) * nOps + what[rows[at]];
      return (graphIteration[at - rows.length] + 1) * nOps + graphs.op[at - rows.length];
    });
    const groups = new Groups(keys, (iterations.count + 1) * nOps);
    // Where an op lies inside of one of its own row and iteration, its time is counted with that one.
    const outer = new Float64Array(rows.length), open = new Int32Array(groups.count), path = [];
    for (let at = 0; at < rows.length; at++) {
      while (path.length && path[path.length - 1] !== above[at]) {
        const left = groups.of[path.pop()];
        if (left >= 0) open[left] -= 1;
      }
      path.push(at);
      const group = groups.of[at];
      if (group < 0) continue;
      outer[at] = open[group] ? 0 : withInner[at];
      open[group] += 1;
    }
    const all = { cpu: both(cpu, graphs.duration), cpu_self: both(self, graphs.duration), overhead: both(overhead), gpu_idle: both(idle), gpu: both(gpu) };
    return {
      iteration: groups.parts(key => Math.floor(key / nOps) - 1), op: groups.parts(key => key % nOps),
      calls: groups.size(), cpu: groups.sum(all.cpu), cpu_self: groups.sum(all.cpu_self), overhead: groups.sum(all.overhead),
      gpu_idle: groups.sum(all.gpu_idle), cpu_shortest: groups.least(all.cpu), cpu_longest: groups.most(all.cpu),
      gpu: groups.sum(all.gpu), gpu_with_children: groups.sum(both(outer)), gpu_shortest: groups.least(all.gpu), gpu_longest: groups.most(all.gpu),
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
  modulecellsOf({ iterations, range }, holds) {
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
    const keys = filled(rows.length, at => (module[at] < 0 || !holds(start[rows[at]]) ? -1 : (range[rows[at]] + 1) * n + module[at]));
    const groups = new Groups(keys, (iterations.count + 1) * n);
    return {
      iteration: groups.parts(key => Math.floor(key / n) - 1), module: groups.parts(key => key % n),
      calls: groups.size(), cpu: groups.sum(filled(rows.length, at => end[rows[at]] - start[rows[at]])),
    };
  },
});
