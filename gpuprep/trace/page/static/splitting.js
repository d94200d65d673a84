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

// The iteration of each time; OUTSIDE for a time in none, and for NaN. Most times lie in the iteration of the time
// before, or in the next one: these are tried before all are searched.
const iterationsAt = ({ start, end }, times) => {
  const made = new Int32Array(times.length), count = start.length;
  for (let i = 0, row = -1; i < times.length; i++) {
    const time = times[i];
    if (!(row >= 0 && start[row] <= time && !(start[row + 1] <= time))) {
      if (row + 1 < count && start[row + 1] <= time && !(start[row + 2] <= time)) row += 1;
      else row = rowAt(start, time);
    }
    made[i] = row >= 0 && time <= end[row] ? row : OUTSIDE;
  }
  return made;
};

// Intervals merged where they touch or overlap. `rows`: in the order of their starts.
const merged = (rows, start, end) => {
  const starts = new Float64Array(rows.length), ends = new Float64Array(rows.length);
  let count = 0;
  for (let i = 0; i < rows.length; i++) {
    const from = start[rows[i]], to = end[rows[i]];
    if (count && from <= ends[count - 1]) { if (to > ends[count - 1]) ends[count - 1] = to; }
    else { starts[count] = from; ends[count++] = to; }
  }
  const before = new Float64Array(count + 1);
  for (let i = 0; i < count; i++) before[i + 1] = before[i] + ends[i] - starts[i];
  return { starts: starts.subarray(0, count), ends: ends.subarray(0, count), before };
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
      const { kind, count, domain } = this.ranges, found = new Map();
      if (domain) for (const name of this.nvtxDomains()) found.set(name, 0);
      for (let i = 0; domain && i < count; i++) { const name = this.nvtxDomains()[domain[i]]; found.set(name, found.get(name) + 1); }
      const nvtx = [...found].map(([name, ranges]) => ({ name, ranges }));
      found.clear();
      for (let i = 0; i < count; i++) {
        if (kind[i] !== ANNOTATION) continue;
        const name = family(this.rangeName(i));
        found.set(name, (found.get(name) || 0) + 1);
      }
      return [...nvtx, ...[...found].map(([name, ranges]) => ({ name, ranges })).sort((a, b) => b.ranges - a.ranges)];
    });
  },
});

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
    split.event = keyOp ? iterationsAt(iterations, this.launchTimes) : events.iteration;
    split.range = keyOp ? iterationsAt(iterations, ranges.start) : ranges.iteration;
    if (inside) split.keep = Uint8Array.from(events.start, (_, i) => (holds(this.launchTime(i)) ? 1 : 0));
    if (keyOp) this.setWindows(split);
    split.cells = this.cellsOf(split);
    split.opcells = this.opcellsOf(split, holds);
    split.modulecells = this.modulecellsOf(split, holds);
    Object.assign(split, this.busyOf(split));
    if (!this.has.allOps) split.problems.push("Ops that launch nothing on a GPU are not in this page: CPU times are those of the others.");
    return split;
  },

  // A kernel is of the iteration in which it was launched; without a launch in the profile (NaN), of none. Where the
  // profile has no launches at all, its own start counts.
  get launchTimes() {
    return this.once("launch times", () => {
      const { count, called, call, start } = this.events, made = new Float64Array(count);
      if (!this.header.calls) return start;
      for (let i = 0; i < count; i++) made[i] = called[i] ? call[i] : NaN;
      return made;
    });
  },

  // The wall clock of an iteration: from its first op on the CPU to the last end of its ops or of its GPU work.
  setWindows({ iterations, event, range }) {
    const { count, start, end, kind } = this.ranges, { borders } = this, gpuEnd = this.events.end;
    const first = new Float64Array(iterations.count).fill(Infinity), until = new Float64Array(iterations.count).fill(-Infinity);
    for (let i = 0; i < count; i++) {
      const at = range[i];
      if (at < 0 || borders[i]) continue;
      if (kind[i] <= ANNOTATION && start[i] < first[at]) first[at] = start[i];
      if (kind[i] === OP && end[i] > until[at]) until[at] = end[i];
    }
    for (let i = 0; i < event.length; i++) {
      const at = event[i];
      if (at >= 0 && gpuEnd[i] > until[at]) until[at] = gpuEnd[i];
    }
    iterations.first = first.map((time, i) => (time > iterations.end[i] ? iterations.start[i] : time));
    iterations.until = until.map((time, i) => (time < iterations.first[i] ? iterations.end[i] : time));
  },

  // The ranges that are the iterations of the profile themselves (ProfilerStep#3): no work of the program.
  get borders() {
    return this.once("borders", () => {
      const { count, kind, start } = this.ranges, found = new Uint8Array(count);
      const starts = new Map(Array.from(this.iterations.start, (time, i) => [time, this.iterations.name[i]]));
      for (let i = 0; i < count; i++)
        if (kind[i] === ANNOTATION && starts.get(start[i]) === this.rangeName(i)) found[i] = 1;
      return found;
    });
  },

  // Of an export of Nsight Systems: the names of its NVTX domains, in the order of their numbers here.
  nvtxDomains() {
    return (this.header.domains || []).map(i => `NVTX domain: ${this.header.texts[i] || "default"}`);
  },

  domainUnion(domain) {
    const { kind, start, end, count, domain: of } = this.ranges, place = of ? this.nvtxDomains().indexOf(domain) : -1;
    if (place >= 0) return merged(Array.from({ length: count }, (_, i) => i).filter(i => of[i] === place).sort((a, b) => start[a] - start[b]), start, end);
    const rows = this.rangesNamed(name => family(name) === domain).filter(row => kind[row] === ANNOTATION);
    return merged(rows.sort((a, b) => start[a] - start[b]), start, end);
  },

  // Of each single kernel the number of its (op, kernel, device) among the different ones, which are sorted.
  get kinds() {
    return this.once("kinds", () => {
      const { op, kernel, device, count } = this.events, gpus = this.deviceOrder.length;
      const places = new Map(this.deviceOrder.map((number, i) => [number, i])), work = new Int32Array(count);
      for (let i = 0; i < count; i++) work[i] = kernel[i] * gpus + places.get(device[i]);
      const groups = new page.Groups(op, work, this.ops.length, this.kernels.length * gpus);
      return {
        of: groups.of, count: groups.count, op: groups.major, kernel: groups.minor.map(one => Math.floor(one / gpus)),
        device: groups.minor.map(one => this.deviceOrder[one % gpus]),
      };
    });
  },

  // Sums of single kernels by (iteration, op, kernel, device), in this order.
  cellsOf({ iterations, event, keep }) {
    const { kinds } = this, major = new Int32Array(event.length);
    for (let i = 0; i < major.length; i++) major[i] = keep && !keep[i] ? -1 : event[i] + 1;
    const groups = new page.Groups(major, kinds.of, iterations.count + 1, Math.max(1, kinds.count));
    const { sum, least, most } = groups.spreads(this.events.duration);
    return {
      iteration: groups.major.map(one => one - 1), op: groups.minor.map(one => kinds.op[one]), kernel: groups.minor.map(one => kinds.kernel[one]),
      device: groups.minor.map(one => kinds.device[one]), calls: groups.sizes(), total: sum, shortest: least, longest: most,
    };
  },

  // The ops among the ranges as a tree, and behind them the launches of graphs. `rows`: their rows among the ranges;
  // `position`: the other way round; `above`: position of the op around each; all others are columns of both.
  get tree() {
    return this.once("tree", () => {
      const { count, what, start, end, thread, children, calls, gpu_idle: gpuIdle } = this.ranges, graphs = this.graphCalls();
      const nOps = this.ops.length, position = new Int32Array(count).fill(-1), stack = [];
      let size = 0;
      for (let i = 0; i < count; i++) if (what[i] < nOps) position[i] = size++;
      const rows = new Int32Array(size), above = new Int32Array(size), all = size + graphs.op.length;
      const [begin, cpu, self, overhead, idle] = Array.from({ length: 5 }, () => new Float64Array(all)), op = new Int32Array(all);
      for (let i = 0; i < count; i++) {
        const at = position[i];
        if (at < 0) continue;
        rows[at] = i;
        if (at && thread[i] !== thread[rows[at - 1]]) stack.length = 0;
        while (stack.length && end[rows[stack[stack.length - 1]]] <= start[i]) stack.pop();
        above[at] = stack.length ? stack[stack.length - 1] : -1;
        stack.push(at);
        begin[at] = start[i];
        op[at] = what[i];
        cpu[at] = end[i] - start[i];
        self[at] = cpu[at] - children[i];
        idle[at] = gpuIdle[i];
      }
      for (let at = 0; at < size; at++)
        if (above[at] >= 0) self[above[at]] -= Math.min(end[rows[at]], end[rows[above[at]]]) - begin[at];
      for (let at = 0; at < size; at++) overhead[at] = self[at] - calls[rows[at]];
      begin.set(graphs.start, size);
      op.set(graphs.op, size);
      cpu.set(graphs.duration, size);
      self.set(graphs.duration, size);
      return { rows, position, above, begin, op, cpu, self, overhead, idle };
    });
  },

  // GPU time of each row of the tree: of its own kernels, and with those of the ops inside of it.
  treeWork(keep) {
    const { above, position, begin } = this.tree, { instance, duration, count } = this.events;
    const own = new Float64Array(begin.length);
    for (let i = 0; i < count; i++) {
      const at = instance[i] < 0 ? -1 : position[instance[i]];
      if (at >= 0 && (!keep || keep[i])) own[at] += duration[i];
    }
    const withInner = own.slice();
    for (let at = above.length - 1; at >= 0; at--) if (above[at] >= 0) withInner[above[at]] += withInner[at];
    return { own, withInner };
  },

  get wholeTreeWork() { return this.once("tree work", () => this.treeWork(null)); },

  // Sums of single ops by (iteration, op).
  opcellsOf({ iterations, range, keep }, holds) {
    const { rows, above, begin, op, cpu, self, overhead, idle } = this.tree, nOps = this.ops.length;
    const { own, withInner } = keep ? this.treeWork(keep) : this.wholeTreeWork;
    const major = new Int32Array(begin.length);
    major.set(iterationsAt(iterations, begin.subarray(rows.length)), rows.length);
    for (let at = 0; at < rows.length; at++) major[at] = range[rows[at]];
    for (let at = 0; at < major.length; at++) major[at] = keep && !holds(begin[at]) ? -1 : major[at] + 1;
    const groups = new page.Groups(major, op, iterations.count + 1, nOps), { of } = groups;
    // Where an op lies inside of one of its own row and iteration, its time is counted with that one.
    const outer = new Float64Array(begin.length), open = new Int32Array(groups.count), path = new Int32Array(rows.length);
    for (let at = 0, depth = 0; at < rows.length; at++) {
      while (depth && path[depth - 1] !== above[at]) {
        const left = of[path[--depth]];
        if (left >= 0) open[left] -= 1;
      }
      path[depth++] = at;
      const group = of[at];
      if (group < 0) continue;
      outer[at] = open[group] ? 0 : withInner[at];
      open[group] += 1;
    }
    const wall = groups.spreads(cpu), gpu = groups.spreads(own), over = groups.spreads(overhead), waits = groups.spreads(idle);
    return {
      iteration: groups.major.map(one => one - 1), op: groups.minor, calls: groups.sizes(), cpu_self: groups.sums(self), gpu_with_children: groups.sums(outer),
      cpu: wall.sum, cpu_shortest: wall.least, cpu_longest: wall.most, gpu: gpu.sum, gpu_shortest: gpu.least, gpu_longest: gpu.most,
      overhead: over.sum, overhead_shortest: over.least, overhead_longest: over.most,
      gpu_idle: waits.sum, gpu_idle_shortest: waits.least, gpu_idle_longest: waits.most,
    };
  },

  // Launches of CUDA graphs outside of every op, which are rows of the ops themselves.
  graphCalls() {
    return this.once("graphs", () => ("graph.start" in this.header.columns
      ? this.group("graph") : { op: new Int32Array(0), start: new Float64Array(0), duration: new Float64Array(0) }));
  },

  // Of each device the union of its events.
  get unions() {
    return this.once("unions", () => {
      const { start, end } = this.events;
      return this.eventsByDevice().map(rows => merged(rows, start, end));
    });
  },

  // Of each (iteration, device): the union of the device's events before the iteration's window, before its end, inside.
  busyOf({ iterations: { count, first, until }, keep }) {
    const { start, end } = this.events, devices = this.deviceOrder.length;
    const [busy, busyFirst, busyUntil] = Array.from({ length: 3 }, () => new Float64Array(count * devices));
    const unions = keep ? this.eventsByDevice().map(rows => merged(rows.filter(row => keep[row]), start, end)) : this.unions;
    unions.forEach((union, device) => {
      for (let i = 0; i < count; i++) {
        const at = i * devices + device;
        busyFirst[at] = unionUntil(union, first[i]);
        busyUntil[at] = unionUntil(union, Math.max(first[i], until[i]));
        busy[at] = busyUntil[at] - busyFirst[at];
      }
    });
    return { busy, busyFirst, busyUntil };
  },

  // Calls of modules that the profile's own tables name: rows among the ranges, number of the module, time on the CPU.
  get moduleCalls() {
    return this.once("module calls", () => {
      const { count, kind, start, end, thread } = this.ranges, numbers = new Map(this.modules.map((path, i) => [path, i]));
      const stack = [], rows = [], module = [];
      let last = -1;
      for (let i = 0; i < count; i++) {
        if (kind[i] !== MODULE) continue;
        if (last >= 0 && thread[i] !== thread[last]) stack.length = 0;
        last = i;
        while (stack.length && end[stack[stack.length - 1][0]] <= start[i]) stack.pop();
        const name = this.rangeName(i).replace(/^nn\.Module: /, ""), outer = stack.length ? stack[stack.length - 1][1] : null;
        const path = [...(outer === null ? name : `${outer}/${name}`)].slice(0, LONGEST_PATH).join("");
        stack.push([i, path]);
        if (!numbers.has(path)) continue;
        rows.push(i);
        module.push(numbers.get(path));
      }
      return { rows: Int32Array.from(rows), module: Int32Array.from(module), cpu: Float64Array.from(rows, row => end[row] - start[row]) };
    });
  },

  // Sums of single modules by (iteration, module).
  modulecellsOf({ iterations, range }, holds) {
    const { rows, module, cpu } = this.moduleCalls, { start } = this.ranges;
    const major = rows.map(row => (holds(start[row]) ? range[row] + 1 : -1));
    const groups = new page.Groups(major, module, iterations.count + 1, Math.max(1, this.modules.length));
    return { iteration: groups.major.map(one => one - 1), module: groups.minor, calls: groups.sizes(), cpu: groups.sums(cpu) };
  },

  // Makes what every other key op needs, once: a step each time when the browser has nothing else to do. Who chooses
  // before that gets the same, and waits for it.
  prepare() {
    return this.once("prepared", async () => {
      if (!this.has.ops || !this.has.kernels) return;
      // A page that is never idle, or that nobody sees, would wait for ever.
      const idle = window.requestIdleCallback ? step => requestIdleCallback(step, { timeout: 200 }) : setTimeout;
      for (const step of ["events", "ranges", "launchTimes", "kinds", "unions", "borders", "tree", "wholeTreeWork", "moduleCalls"]) {
        await new Promise(resolve => { idle(resolve); });
        void this[step];
      }
    });
  },
});
