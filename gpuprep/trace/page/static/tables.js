// All tables of a range of iterations, from the sums of data.js: what trace/tables makes in Python, with the same figures.

const us = ns => ns / 1000;
const percent = (part, whole) => (whole > 0 ? (100 * part) / whole : null);
const YES = 1, UNKNOWN = 2; // as data.js numbers the answers

// Sums of `values` of the rows [low, high) by `of`; `which(row)` leaves rows out.
const total = (of, values, count, [low, high], which) => {
  const sums = new Float64Array(count);
  for (let i = low; i < high; i++) if (!which || which(i)) sums[of[i]] += values[i];
  return sums;
};
const lowest = (of, values, count, [low, high]) => {
  const made = new Float64Array(count).fill(Infinity);
  for (let i = low; i < high; i++) if (values[i] < made[of[i]]) made[of[i]] = values[i];
  return made;
};
const highest = (of, values, count, [low, high]) => {
  const made = new Float64Array(count);
  for (let i = low; i < high; i++) if (values[i] > made[of[i]]) made[of[i]] = values[i];
  return made;
};
const falling = (count, ...keys) => Array.from({ length: count }, (_, i) => i).sort((a, b) => {
  for (const key of keys) if (key[a] !== key[b]) return key[b] - key[a];
  return a - b;
});
const add = values => values.reduce((sum, value) => sum + value, 0);

// Rows of sums that are sorted by their iteration: [low, high) of those from `start` to `stop`.
const between = (iteration, start, stop) => {
  const at = wanted => {
    let low = 0, high = iteration.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (iteration[middle] < wanted) low = middle + 1; else high = middle;
    }
    return low;
  };
  return [at(start), at(stop + 1)];
};

// Paths of modules as a tree, numbers in names by their value: as trace/tables.py sorts them.
const placeOf = path => path.split("/").map(name => (name.match(/[0-9]+|[^0-9]+/g) || []).map(piece => {
  if (!/^[0-9]/.test(piece)) return [2 ** 30, piece];
  const digits = piece.replace(/^0+/, "");
  return [digits.length, digits];
}));
// Below 0 where `a` comes first. Lists in lists; a list that is the begin of another comes first.
const before = (a, b) => {
  if (!Array.isArray(a)) return a < b ? -1 : a > b ? 1 : 0;
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const order = before(a[i], b[i]);
    if (order) return order;
  }
  return a.length - b.length;
};

class Tables {
  constructor(data, split, choice, start, stop) {
    Object.assign(this, { data, split, choice, start, stop, problems: split.problems });
    const { iterations, cells, opcells, modulecells } = split;
    this.part = between(cells.iteration, start, stop);
    this.opPart = between(opcells.iteration, start, stop);
    this.modulePart = between(modulecells.iteration, start, stop);
    // The wall clock: from the first op of the first iteration to the last end on CPU or GPU.
    let last = start;
    for (let i = start; i <= stop && i < iterations.count; i++) if (iterations.until[i] > iterations.until[last]) last = i;
    this.wall = iterations.count ? iterations.until[last] - iterations.first[start] : 0;
    const gpus = data.deviceOrder.length;
    this.busy = data.deviceOrder.map((_, device) => (iterations.count
      ? split.busyUntil[last * gpus + device] - split.busyFirst[start * gpus + device] : 0));
    this.made = {};
    this.is = {
      memory: i => data.memoryKernel[cells.kernel[i]] === 1,
      kernel: i => data.memoryKernel[cells.kernel[i]] === 0,
      tensor: i => data.tensorKernel[cells.kernel[i]] === YES,
      unknown: i => data.tensorKernel[cells.kernel[i]] === UNKNOWN && data.memoryKernel[cells.kernel[i]] === 0,
    };
  }

  once(name, make) {
    if (!(name in this.made)) this.made[name] = make();
    return this.made[name];
  }

  // An iteration, the mean: from begin to end on the CPU; from end to end where the GPU's work is behind it.
  get step() {
    const { start, end, until } = this.split.iterations, count = this.stop - this.start + 1;
    if (count < 2) return this.wall;
    const last = until.slice(this.start, this.stop + 1).reduce((latest, time) => Math.max(latest, time));
    return Math.max(Math.min(this.wall / count, (last - until[this.start]) / (count - 1)), (end[this.stop] - start[this.start]) / count);
  }

  // Sums by op, of the chosen iterations.
  get byOp() {
    return this.once("byOp", () => {
      const { cells, opcells } = this.split, count = this.data.ops.length, { kernel, tensor } = this.is;
      const sum = (values, which) => total(cells.op, values, count, this.part, which);
      const own = values => total(opcells.op, values, count, this.opPart);
      return {
        gpu: sum(cells.total), work: sum(cells.calls), kernels: sum(cells.calls, kernel), tensor: sum(cells.calls, tensor),
        tensorTime: sum(cells.total, tensor), calls: own(opcells.calls), inner: own(opcells.gpu_with_children), self: own(opcells.gpu),
        cpu: own(opcells.cpu), overhead: own(opcells.overhead), idle: own(opcells.gpu_idle),
      };
    });
  }

  get summary() {
    return this.once("summary", () => {
      const { cells, opcells, iterations } = this.split, { ops } = this.data, { gpu, tensor, tensorTime, work } = this.byOp;
      const sum = (values, which) => total(new Uint8Array(cells.op.length), values, 1, this.part, which)[0];
      const called = new Uint8Array(ops.length);
      for (let i = this.opPart[0]; i < this.opPart[1]; i++) called[opcells.op[i]] = 1;
      const made = { using: [0, 0], notUsing: [0, 0], other: [0, 0] };
      let eligible = 0, eligibleTensor = 0, elsewhere = 0;
      ops.forEach((op, id) => {
        if (op.eligible) { eligible += gpu[id]; eligibleTensor += tensorTime[id]; } else elsewhere += tensorTime[id];
        const kind = tensor[id] > 0 ? made.using : op.eligible && work[id] > 0 ? made.notUsing : called[id] || work[id] > 0 ? made.other : null;
        if (kind) { kind[0] += 1; kind[1] += gpu[id]; }
      });
      const busy = this.busy.length ? add(this.busy) / this.busy.length : 0, count = this.stop - this.start + 1;
      const { memory, kernel, tensor: isTensor, unknown } = this.is;
      return {
        start_iteration: this.start, stop_iteration: this.stop, iterations: count, total_iterations: iterations.count,
        split_by: iterations.how, wall_us: us(this.wall), gpu_busy_us: us(busy),
        gpu_utilization_percent: this.busy.length ? percent(busy, this.wall) : null, average_iteration_us: us(this.step),
        kernels: sum(cells.calls, kernel), kernel_time_us: us(sum(cells.total, kernel)),
        memory_operations: sum(cells.calls, memory), memory_time_us: us(sum(cells.total, memory)),
        tensor_core_kernels: sum(cells.calls, isTensor), tensor_core_kernel_time_us: us(sum(cells.total, isTensor)),
        unknown_kernel_time_us: us(sum(cells.total, unknown)), eligible_op_time_us: us(eligible),
        tensor_core_efficiency_percent: percent(eligibleTensor, eligible), tensor_core_time_elsewhere_us: us(elsewhere),
        ops_using_tensor_cores: made.using[0], ops_using_tensor_cores_time_us: us(made.using[1]),
        ops_eligible_not_using: made.notUsing[0], ops_eligible_not_using_time_us: us(made.notUsing[1]),
        other_ops: made.other[0], other_ops_time_us: us(made.other[1]),
      };
    });
  }

  // Sums by iteration: the same for every range.
  get perIteration() {
    const { split, data } = this;
    if (split.perIteration) return split.perIteration;
    const { cells, iterations: { count } } = split, [low, high] = between(cells.iteration, 0, count - 1);
    const made = Object.fromEntries(["kernels", "tensorKernels", "tensorTime", "memoryTime", "otherTime"].map(name => [name, new Float64Array(count)]));
    for (let i = low; i < high; i++) {
      const kernel = cells.kernel[i], at = cells.iteration[i];
      if (data.memoryKernel[kernel]) { made.memoryTime[at] += cells.total[i]; continue; }
      made.kernels[at] += cells.calls[i];
      if (data.tensorKernel[kernel] === YES) {
        made.tensorKernels[at] += cells.calls[i];
        made.tensorTime[at] += cells.total[i];
      } else made.otherTime[at] += cells.total[i];
    }
    split.perIteration = made;
    return made;
  }

  // All of the profile, with those that are not chosen.
  get iterations() {
    return this.once("iterations", () => {
      const { iterations, busy } = this.split, { count } = iterations, gpus = Math.max(this.data.deviceOrder.length, 1);
      const { kernels, tensorKernels, tensorTime, memoryTime, otherTime } = this.perIteration;
      return Array.from({ length: count }, (_, i) => ({
        index: i, name: iterations.name[i], start_us: us(iterations.first[i]), wall_us: us(iterations.until[i] - iterations.first[i]),
        profiled: this.start <= i && i <= this.stop, kernels: kernels[i], tensor_core_kernels: tensorKernels[i],
        gpu_time_us: us(tensorTime[i] + memoryTime[i] + otherTime[i]) / gpus, tensor_core_time_us: us(tensorTime[i]) / gpus,
        other_kernel_time_us: us(otherTime[i]) / gpus, memory_time_us: us(memoryTime[i]) / gpus,
        busy_us: us(add(this.data.deviceOrder.map((_, device) => busy[i * this.data.deviceOrder.length + device])) / gpus),
      }));
    });
  }

  get ops() {
    return this.once("ops", () => {
      const { gpu, work, kernels, tensor, calls, inner, self, cpu, overhead, idle } = this.byOp;
      return falling(this.data.ops.length, gpu, cpu).filter(id => calls[id] || work[id]).map(id => {
        const op = this.data.ops[id];
        return {
          id, name: op.name, type: op.type, direction: op.direction, module: op.module, dtypes: op.dtypes, shapes: op.shapes,
          stack: op.stack, calls: calls[id], kernel_calls: kernels[id], eligible: op.eligible, why: op.why,
          using_tensor_cores: tensor[id] > 0, gpu_us: us(gpu[id]), gpu_with_children_us: us(gpu[id] + inner[id] - self[id]),
          cpu_us: us(cpu[id]), cpu_overhead_us: us(overhead[id]), gpu_idle_us: us(idle[id]), flops: op.flops,
          tflops: op.flops && gpu[id] ? (op.flops * calls[id]) / gpu[id] / 1000 : null,
        };
      });
    });
  }

  get op_types() {
    return this.once("op_types", () => {
      const { cells, opcells } = this.split, { ops } = this.data, names = new Map();
      const typeOf = Int32Array.from(ops, op => { if (!names.has(op.type)) names.set(op.type, names.size); return names.get(op.type); });
      const of = opcells.op.map(op => typeOf[op]), ofCell = cells.op.map(op => typeOf[op]), count = names.size, part = this.opPart;
      const gpu = total(ofCell, cells.total, count, this.part), own = values => total(of, values, count, part), calls = own(opcells.calls);
      const seen = new Set(), rows = new Int32Array(count);
      const see = (op, type) => { if (!seen.has(op)) { seen.add(op); rows[type] += 1; } };
      for (let i = part[0]; i < part[1]; i++) see(opcells.op[i], of[i]);
      for (let i = this.part[0]; i < this.part[1]; i++) see(cells.op[i], ofCell[i]);
      const spread = (sums, number, low, high, single = sums) => i => ({
        total: us(sums[i]), average: us(single[i] / Math.max(number[i], 1)), shortest: number[i] ? us(low[i]) : 0, longest: us(high[i]),
      });
      const simple = name => spread(own(opcells[name]), calls, lowest(of, opcells[`${name}_shortest`], count, part), highest(of, opcells[`${name}_longest`], count, part));
      // GPU work that no call of an op launched: the spread is that of its kernels.
      const launched = total(ofCell, cells.calls, count, this.part), single = own(opcells.gpu);
      const low = lowest(of, opcells.gpu_shortest, count, part), high = highest(of, opcells.gpu_longest, count, part);
      for (let i = this.part[0]; i < this.part[1]; i++) {
        const type = ofCell[i];
        if (calls[type]) continue;
        low[type] = Math.min(low[type], cells.shortest[i]);
        high[type] = Math.max(high[type], cells.longest[i]);
        single[type] = gpu[type];
      }
      const launches = calls.map((number, i) => number || launched[i]);
      const cpu = simple("cpu"), work = spread(gpu, launches, low, high, single), overhead = simple("overhead"), idle = simple("gpu_idle");
      const texts = [...names.keys()];
      return falling(count, gpu).filter(i => rows[i]).map(i => ({
        type: texts[i], ops: rows[i], calls: calls[i], cpu_us: cpu(i), gpu_us: work(i), cpu_overhead_us: overhead(i), gpu_idle_us: idle(i),
      }));
    });
  }

  kernelLines(which) {
    const { cells } = this.split, count = this.data.kernels.length;
    let [low, high] = this.part, rows = cells;
    if (which) {
      const kept = [];
      for (let i = low; i < high; i++) if (which(i)) kept.push(i);
      rows = Object.fromEntries(["kernel", "total", "calls", "shortest", "longest"].map(name => [name, kept.map(i => cells[name][i])]));
      [low, high] = [0, kept.length];
    }
    const sums = total(rows.kernel, rows.total, count, [low, high]), calls = total(rows.kernel, rows.calls, count, [low, high]);
    const least = lowest(rows.kernel, rows.shortest, count, [low, high]), most = highest(rows.kernel, rows.longest, count, [low, high]);
    return falling(count, sums).filter(id => calls[id]).map(id => {
      const { name, memory, tensor_cores: tensorCores, rule } = this.data.kernels[id];
      return {
        id, name, memory, tensor_cores: tensorCores, rule, calls: calls[id], total_us: us(sums[id]), average_us: us(sums[id]) / calls[id],
        shortest_us: us(least[id]), longest_us: us(most[id]),
      };
    });
  }

  get kernels() {
    return this.once("kernels", () => this.kernelLines());
  }

  kernelsOfOp(op) {
    return this.kernelLines(i => this.split.cells.op[i] === op);
  }

  opsOfKernel(kernel) {
    const { cells } = this.split, found = new Set();
    for (let i = this.part[0]; i < this.part[1]; i++) if (cells.kernel[i] === kernel) found.add(cells.op[i]);
    return [...found].sort((a, b) => a - b);
  }

  // A row for each module with all modules inside of it, above those.
  get modules() {
    return this.once("modules", () => {
      const { gpu, tensorTime } = this.byOp, { modulecells } = this.split, { modules } = this.data, lines = new Map();
      const line = path => { if (!lines.has(path)) lines.set(path, [0, 0, 0, 0]); return lines.get(path); };
      this.data.ops.forEach((op, id) => {
        if (!op.module || !(gpu[id] || lines.has(op.module))) return;
        const parts = op.module.split("/");
        for (let depth = 1; depth <= parts.length; depth++) {
          const one = line(parts.slice(0, depth).join("/"));
          one[1] += gpu[id];
          one[2] += tensorTime[id];
        }
      });
      const calls = total(modulecells.module, modulecells.calls, modules.length, this.modulePart);
      const cpu = total(modulecells.module, modulecells.cpu, modules.length, this.modulePart);
      modules.forEach((path, i) => { if (calls[i]) { const one = line(path); one[0] += calls[i]; one[3] += cpu[i]; } });
      const sorted = [...lines].map(([path, sums]) => [placeOf(path), path, sums]).sort((a, b) => before(a[0], b[0]) || (a[1] < b[1] ? -1 : 1));
      return sorted.map(([, module, [n, g, t, c]]) =>
        ({ module, calls: n, gpu_us: us(g), tensor_core_time_us: us(t), cpu_us: us(c) }));
    });
  }

  // As file.devices of the document: sums of the whole file; utilization of the chosen iterations.
  get devices() {
    return this.once("devices", () => {
      const { data } = this, { cells } = data.own, told = new Map(data.devices.map(device => [device.device, device]));
      return data.deviceOrder.map((device, i) => {
        const sums = [0, 0, 0, 0];
        for (let row = 0; row < cells.device.length; row++) {
          if (cells.device[row] !== device) continue;
          const memory = data.memoryKernel[cells.kernel[row]] ? 2 : 0;
          sums[memory] += cells.calls[row];
          sums[memory + 1] += cells.total[row];
        }
        return {
          ...(told.get(device) || { device, name: "", compute_capability: "", sms: null, memory_bytes: null }),
          kernels: sums[0], kernel_time_us: us(sums[1]), memory_operations: sums[2], memory_time_us: us(sums[3]),
          busy_us: us(data.wholeBusy[i]), span_us: us(data.wholeSpan[i]), utilization_percent: percent(this.busy[i], this.wall),
        };
      });
    });
  }

  // ---------------------------------------------------------------- one iteration

  opsIn(iteration) {
    return this.once(`ops in ${iteration}`, () => {
      const { data, split } = this, { cells, opcells } = split, count = data.ops.length, { kernel, tensor } = this.is;
      const part = between(cells.iteration, iteration, iteration), own = between(opcells.iteration, iteration, iteration);
      const sum = (values, which) => total(cells.op, values, count, part, which);
      const gpu = sum(cells.total), work = sum(cells.calls), kernels = sum(cells.calls, kernel);
      const tensorKernels = sum(cells.calls, tensor), tensorTime = sum(cells.total, tensor);
      const calls = total(opcells.op, opcells.calls, count, own), starts = this.opStarts(iteration);
      return falling(count, gpu).filter(id => calls[id] || work[id]).map(id => {
        const { name, type, direction, dtypes, shapes, stack, module } = data.ops[id];
        return {
          op: id, name, type, direction, module, start_us: starts && starts[id] < Infinity ? us(starts[id]) : null, calls: calls[id],
          kernels: kernels[id], tensor_core_kernels: tensorKernels[id], gpu_us: us(gpu[id]), tensor_core_time_us: us(tensorTime[id]),
          dtypes, shapes, stack,
        };
      });
    });
  }

  // The first start of each op in an iteration; null where single ops are not in the page.
  opStarts(iteration) {
    const { ranges } = this.data;
    if (!ranges) return null;
    const { count, what, start } = ranges, of = this.split.range || ranges.iteration, nOps = this.data.ops.length;
    const starts = new Float64Array(nOps).fill(Infinity);
    for (let i = 0; i < count; i++) if (of[i] === iteration && what[i] < nOps && start[i] < starts[what[i]]) starts[what[i]] = start[i];
    return starts;
  }

  kernelsIn(iteration, op) {
    const { data, split } = this, { events } = data;
    if (!events) return null;
    const rows = [], size = three => (three.some(value => value < 0) ? "" : `(${three.join(", ")})`);
    for (let i = 0; i < events.count; i++)
      if (split.event[i] === iteration && (op === undefined || events.op[i] === op) && (!split.keep || split.keep[i])) rows.push(i);
    return rows.sort((a, b) => data.launchTime(a) - data.launchTime(b) || a - b).map(i => {
      const kernel = data.kernels[events.kernel[i]], launch = data.launch(i);
      return {
        event: i, op: events.op[i], op_name: data.ops[events.op[i]].name, kernel: kernel.id, name: kernel.name, device: events.device[i],
        stream: events.lanes[events.lane[i]].stream, timestamp_us: events.called[i] ? us(events.call[i]) : null, start_us: us(events.start[i]),
        gpu_us: us(events.duration[i]), tensor_cores: kernel.tensor_cores, grid: size(launch.slice(0, 3)), block: size(launch.slice(3, 6)),
        bytes: kernel.memory ? events.bytes[i] : null,
      };
    });
  }
}

page.Tables = Tables;
