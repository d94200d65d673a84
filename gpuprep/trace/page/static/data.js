// The profile in the page: unpacks what pack.py wrote, and makes all tables again for any range, key op and domain.
//
//   const data = await page.unpack(text)             text: base64 of the packed bytes; or the bytes (ArrayBuffer)
//   data.name, data.devices                          devices: [{device, name, compute_capability, sms, memory_bytes}]
//   data.iterations                                  {name[], start[], end[], until[], count, how}; times in ns
//   data.ops[i], data.kernels[i]                     rows without sums: {id, name, type, ...} as in the document
//   data.has.kernels, .ops, .allOps, .memory         which single events are in the page
//   data.leftOut                                     sentences: what is not in the page
//   data.keyOps()                                    rows of the picker: {name, type, calls, eligible, using_tensor_cores,
//                                                    kernel_calls}; [] where single ops are not in the page
//   data.domains()                                   [{name, ranges}]: families of annotations
//   await data.prepare()                             what every other key op needs is made: then one takes no 0.2 s
//
//   const tables = data.aggregate({start, stop, keyOp, domain})      all optional; the same choice gives the same object
//     .summary .iterations .op_types .ops .kernels .modules .devices  names, units and order as in the JSON document
//                                                    (`gpuprep trace report --format json`): microseconds, null = n/a
//     .choice                                        {start, stop, keyOp, domain} it was made of
//     .problems                                      sentences: what this choice cannot tell
//     .kernelsOfOp(op)                               kernel lines (as .kernels) of one op: "Kernel Summaries"
//     .opsOfKernel(kernel)                           ids of the ops that launched it
//     .opsIn(iteration)                              lines of "Ops in Selected Iteration": {op, name, type, direction,
//                                                    start_us, kernels, tensor_core_kernels, gpu_us,
//                                                    tensor_core_time_us, dtypes, shapes, stack}
//     .kernelsIn(iteration, op)                      single kernels of an iteration (and of an op): {op, op_name, kernel,
//                                                    name, device, stream, timestamp_us, start_us, gpu_us, tensor_cores,
//                                                    grid, block, bytes}; null where they are not in the page
//
// Iterations are numbered as in the document: from 0. keyOp: a type of op ("aten::addmm"), an op's whole name, an annotation.

const MAGIC = 0x52545047; // "GPTR" as a number, lowest byte first
const TENSOR_CORES = { yes: 1, no: 0, unknown: 2 };

const bytesOf = base64 => {
  const text = atob(base64.trim()), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
};

const inflated = async bytes => {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// A column of whole numbers. Doubles hold them exactly below 2^53: 104 days in ns.
const numbers = (bytes, [at, count, planes, coding]) => {
  const values = new Float64Array(count);
  for (let i = 0; i < count; i++) values[i] = bytes[at + i];
  for (let plane = 1, weight = 256; plane < planes; plane++, weight *= 256) {
    const from = at + plane * count;
    for (let i = 0; i < count; i++) values[i] += bytes[from + i] * weight;
  }
  if (coding !== "raw") for (let i = 0; i < count; i++) values[i] = values[i] % 2 ? -(values[i] + 1) / 2 : values[i] / 2;
  if (coding === "delta") for (let i = 1; i < count; i++) values[i] += values[i - 1];
  return values;
};

page.unpack = async source => {
  const bytes = await inflated(typeof source === "string" ? bytesOf(source) : new Uint8Array(source));
  const view = new DataView(bytes.buffer);
  if (view.getUint32(0, true) !== MAGIC) throw new Error("this is not the data of a gpuprep trace page");
  const length = view.getUint32(8, true);
  return new Data(JSON.parse(new TextDecoder().decode(bytes.subarray(12, 12 + length))), bytes.subarray(12 + length));
};

const WHOLE = new Set(["iteration", "op", "kernel", "device", "lane", "instance", "what", "kind", "thread", "launch", "called", "module", "domain"]);

class Data {
  constructor(header, bytes) {
    const text = i => header.texts[i], { ops, kernels } = header;
    this.header = header;
    this.bytes = bytes;
    this.name = header.name;
    this.devices = header.devices;
    this.deviceOrder = header.device_order;
    this.leftOut = header.left_out;
    this.ops = ops.name.map((name, id) => ({
      id, name: text(name), type: text(ops.type[id]), direction: ops.direction[id], module: text(ops.module[id]),
      dtypes: text(ops.dtypes[id]), shapes: text(ops.shapes[id]), stack: ops.stack[id].map(text),
      eligible: !!ops.eligible[id], why: text(ops.why[id]), flops: ops.flops[id],
    }));
    this.kernels = kernels.name.map((name, id) => ({
      id, name: text(name), memory: !!kernels.memory[id], tensor_cores: kernels.tensor_cores[id],
      rule: text(kernels.rule[id]), grid: text(kernels.grid[id]), block: text(kernels.block[id]),
    }));
    this.memoryKernel = Uint8Array.from(kernels.memory);
    this.tensorKernel = Uint8Array.from(kernels.tensor_cores, answer => TENSOR_CORES[answer]);
    this.iterations = {
      name: header.iterations.name.map(text), how: header.iterations.how, count: header.iterations.name.length,
      start: this.column("iteration.start"), end: this.column("iteration.end"), until: this.column("iteration.until"), first: this.column("iteration.first"),
    };
    this.modules = header.modules.map(text);
    this.wholeBusy = this.column("device.busy");
    this.wholeSpan = this.column("device.span");
    const has = name => name in header.columns;
    this.has = { kernels: has("kernel.gap"), ops: has("op.what"), allOps: header.all_ops, memory: has("memory.time") };
    this.made = new Map();
  }

  column(name) {
    const values = numbers(this.bytes, this.header.columns[name]);
    return WHOLE.has(name.split(".")[1]) ? Int32Array.from(values) : values;
  }

  // All columns of a group: group("cell") is {iteration, op, kernel, ...}. Unpacked at the first use.
  group(prefix) {
    const key = `group ${prefix}`;
    if (!this.made.has(key)) {
      const found = {};
      for (const name of Object.keys(this.header.columns)) {
        if (name.startsWith(`${prefix}.`)) found[name.slice(prefix.length + 1)] = this.column(name);
      }
      // Shortest and longest of sums stand as the distance to the mean.
      for (const name of Object.keys(found)) {
        const spread = /^(?:(.+)_)?(?:shortest|longest)$/.exec(name);
        if (!spread) continue;
        const values = found[name], sums = found[spread[1] || "total"];
        for (let i = 0; i < values.length; i++) values[i] += Math.floor(sums[i] / found.calls[i]);
      }
      this.made.set(key, found);
    }
    return this.made.get(key);
  }

  once(key, make) {
    if (!this.made.has(key)) this.made.set(key, make());
    return this.made.get(key);
  }

  // Single kernels and copies, by lane (device and stream), then by time. null where they are not in the page.
  get events() {
    if (!this.has.kernels) return null;
    return this.once("events", () => {
      const { lane, gap, duration, kernel, op, iteration, called, call, instance, bytes, launch } = this.group("kernel");
      const lanes = this.header.lanes.map(([device, stream]) => ({ device, stream })), count = gap.length;
      const around = this.has.ops ? this.group("op").what : null;
      const start = new Float64Array(count), end = new Float64Array(count), device = new Int32Array(count);
      for (let i = 0; i < count; i++) {
        start[i] = gap[i] + (i && lane[i] === lane[i - 1] ? end[i - 1] : 0);
        end[i] = start[i] + duration[i];
        device[i] = lanes[lane[i]].device;
        if (around && instance[i] >= 0) op[i] += around[instance[i]]; // told as the distance to the op of that range
      }
      return { count, lanes, lane, device, start, end, duration, kernel, op, iteration, called, call, instance, bytes, launch };
    });
  }

  // [grid x, y, z, block x, y, z, registers, shared bytes] of a single kernel.
  launch(event) {
    return this.header.launches[this.events.launch[event]];
  }

  // Single ranges on CPU threads, by thread, outer before inner. null where they are not in the page.
  get ranges() {
    if (!this.has.ops) return null;
    return this.once("ranges", () => {
      const group = this.group("op"), { header } = this, count = group.what.length;
      const threads = header.threads.map(i => header.texts[i]);
      const names = header.names.map(i => header.texts[i]);
      const end = new Float64Array(count), depth = new Int32Array(count), parent = new Int32Array(count).fill(-1);
      const stack = [];
      for (let i = 0; i < count; i++) {
        end[i] = group.start[i] + group.duration[i];
        if (i && group.thread[i] !== group.thread[i - 1]) stack.length = 0;
        while (stack.length && end[stack[stack.length - 1]] <= group.start[i]) stack.pop();
        parent[i] = stack.length ? stack[stack.length - 1] : -1;
        depth[i] = stack.length;
        stack.push(i);
      }
      return { ...group, count, end, depth, parent, threads, names };
    });
  }

  rangeName(i) {
    const what = this.ranges.what[i];
    return what < this.ops.length ? this.ops[what].type : this.ranges.names[what - this.ops.length];
  }
}

page.Data = Data;
