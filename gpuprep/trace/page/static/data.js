/* The profile in the page: unpacks what pack.py wrote, and makes all tables again for any range, key op and domain.

   const data = await traceData.load(text)          text: base64 of the packed bytes; or the bytes (ArrayBuffer)
   data.name, data.devices                          devices: [{device, name, compute_capability, sms, memory_bytes}]
   data.iterations                                  {name[], start[], end[], until[], count, how}; times in ns
   data.ops[i], data.kernels[i]                     rows without sums: {id, name, type, ...} as in the document
   data.has.kernels, .ops, .allOps, .memory         which single events are in the page
   data.leftOut                                     sentences: what is not in the page
   data.keyOps()                                    [{id, name, type, calls, ...}] for the picker; [] if there is none
   data.domains()                                   [{name, ranges}] families of annotations

   const tables = data.aggregate({start, stop, keyOp, domain})      all optional; the same choice gives the same object
     .summary .iterations .op_types .ops .kernels .modules .devices  names, units and order as in the JSON document
                                                    (`gpuprep trace report --format json`): microseconds, null = n/a
     .choice                                        {start, stop, keyOp, domain} it was made of
     .problems                                      sentences: what this choice cannot tell
     .kernelsOfOp(op)                               kernel lines (as .kernels) of one op: "Kernel Summaries"
     .opsOfKernel(kernel)                           ids of the ops that launched it
     .opsIn(iteration)                              lines of "Ops in Selected Iteration": {op, name, type, direction,
                                                    start_us, kernels, tensor_core_kernels, gpu_us,
                                                    tensor_core_time_us, dtypes, shapes, stack}
     .kernelsIn(iteration, op)                      single kernels of an iteration (and of an op): {op, op_name, kernel,
                                                    name, device, stream, timestamp_us, start_us, gpu_us, tensor_cores,
                                                    grid, block, bytes}; null where they are not in the page

   Iterations are numbered as in the document: from 0. keyOp: the name of an op or annotation ("aten::addmm"). */
'use strict';

const traceData = (() => {
  const MAGIC = 0x52545047;  // "GPTR", read as a little number
  const NO_ITERATION = -1;

  function bytesOf(base64) {
    const text = atob(base64.trim());
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  }

  async function inflate(bytes) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /* Doubles hold whole numbers exactly below 2^53: 104 days in ns. */
  function unpacked(bytes, [at, count, planes, coding]) {
    const values = new Float64Array(count);
    for (let plane = 0, weight = 1; plane < planes; plane++, weight *= 256) {
      const from = at + plane * count;
      for (let i = 0; i < count; i++) values[i] += bytes[from + i] * weight;
    }
    if (coding !== 'raw') {
      for (let i = 0; i < count; i++) values[i] = values[i] % 2 ? -(values[i] + 1) / 2 : values[i] / 2;
    }
    if (coding === 'delta') for (let i = 1; i < count; i++) values[i] += values[i - 1];
    return values;
  }

  async function load(source) {
    const bytes = await inflate(typeof source === 'string' ? bytesOf(source) : new Uint8Array(source));
    const view = new DataView(bytes.buffer);
    if (view.getUint32(0, true) !== MAGIC) throw new Error('this is not the data of a gpuprep trace page');
    const length = view.getUint32(8, true);
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(12, 12 + length)));
    return new Data(header, bytes.subarray(12 + length));
  }

  class Data {
    constructor(header, bytes) {
      this.header = header;
      this.bytes = bytes;
      const text = i => header.texts[i];
      this.name = header.name;
      this.devices = header.devices;
      this.deviceOrder = header.device_order;
      this.leftOut = header.left_out;
      this.ops = header.ops.name.map((name, id) => ({
        id, name: text(name), type: text(header.ops.type[id]), direction: header.ops.direction[id],
        module: text(header.ops.module[id]), dtypes: text(header.ops.dtypes[id]), shapes: text(header.ops.shapes[id]),
        stack: header.ops.stack[id].map(text), eligible: !!header.ops.eligible[id], why: text(header.ops.why[id]),
        flops: header.ops.flops[id],
      }));
      this.kernels = header.kernels.name.map((name, id) => ({
        id, name: text(name), memory: !!header.kernels.memory[id], tensor_cores: header.kernels.tensor_cores[id],
        rule: text(header.kernels.rule[id]), grid: text(header.kernels.grid[id]),
        block: text(header.kernels.block[id]),
      }));
      this.iterations = {
        name: header.iterations.name.map(text), how: header.iterations.how, count: header.iterations.name.length,
        start: this.column('iteration.start'), end: this.column('iteration.end'),
        until: this.column('iteration.until'),
      };
      this.has = {
        kernels: 'kernel.gap' in header.columns, ops: 'op.what' in header.columns, allOps: header.all_ops,
        memory: 'memory.time' in header.columns,
      };
      this.cache = new Map();
    }

    column(name) {
      return unpacked(this.bytes, this.header.columns[name]);
    }

    whole(name) {
      return Int32Array.from(this.column(name));
    }

    group(prefix) {
      const found = {};
      for (const name of Object.keys(this.header.columns)) {
        if (name.startsWith(prefix + '.')) found[name.slice(prefix.length + 1)] = this.column(name);
      }
      return found;
    }

    /* How the profile itself is split: cells as Python summed them. */
    get split() {
      if (!this.own) {
        const cells = this.group('cell'), opcells = this.group('opcell');
        for (const name of ['iteration', 'op', 'kernel', 'device']) cells[name] = Int32Array.from(cells[name]);
        for (const name of ['iteration', 'op']) opcells[name] = Int32Array.from(opcells[name]);
        this.own = {iterations: this.iterations, cells, opcells, busy: this.column('busy'), problems: []};
      }
      return this.own;
    }
