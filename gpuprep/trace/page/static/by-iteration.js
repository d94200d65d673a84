// Kernels by iteration, and Kernels by op: a table of iterations, and below it what the chosen one is made of.

const { el, shortColumn, figure, time, textColumn, countColumn, timeColumn, toldColumn } = page;

const metered = (rows, key, title, colour, words) => ({
  key, title, kind: "number", unit: "µs", digits: 3, get: page.from(rows, key),
  meaning: `${words} The percentage is of the iteration's duration.`,
  show: (us, row) => page.meter(`${time(us)} (${page.percent(100 * us / rows[row].wall_us)})`, us / rows[row].wall_us, colour,
    `${words} ${time(us)} of ${time(rows[row].wall_us)}.`),
});

const iterationTable = (container, state, on) => {
  const rows = state.tables.iterations.filter(one => one.profiled), gpus = Math.max(1, state.document.file.devices.length);
  const picked = rows.findIndex(one => String(one.index) === state.params.get("iteration"));
  page.table(container, {
    name: "iterations", title: "Iteration summary", count: rows.length, order: ["index", "asc"],
    lead: `Choose an iteration to see its data. Average GPU time is the sum over kernels and memory operations divided by the number of GPUs (${gpus}): work at ` +
      "the same time on two streams counts twice, so it may pass 100 %. GPU busy is the union and cannot.",
    columns: [
      countColumn(rows, "index", "Iteration"), shortColumn(rows, "name", "Name"), timeColumn(rows, "start_us", "Timestamp"),
      timeColumn(rows, "wall_us", "Duration", { show: us => time(us) }), countColumn(rows, "kernels", "Total kernels"),
      countColumn(rows, "tensor_core_kernels", "Tensor Core kernels"),
      metered(rows, "gpu_time_us", "Average GPU time", "memory", "Sum of GPU time, mean of the GPUs."),
      metered(rows, "tensor_core_time_us", "Average Tensor Core time", "tc", "Sum of Tensor Core kernels, mean of the GPUs."),
      metered(rows, "busy_us", "GPU busy", "other", "Time in which a GPU works, mean of the GPUs."),
    ],
    pick: { head: "Data of the iteration", label: row => `Show iteration ${rows[row].index}`, picked,
      on: row => { page.keep({ iteration: rows[row].index, op: null }); on(rows[row]); } },
  });
  return picked >= 0 ? rows[picked] : null;
};

const missing = state => el("p", { class: "hint" }, "Single kernels are not in this page: the file has too many of them. ", page.whereKernelsAre(state));

const kernelTable = (place, rows, options) => page.table(place, {
  count: rows.length, order: ["timestamp_us", "asc"], ...options,
  columns: [
    options.withOp && textColumn(rows, "op_name", "Op name"), textColumn(rows, "name", "Kernel name"), countColumn(rows, "device", "Device ID"),
    countColumn(rows, "stream", "Stream"),
    timeColumn(rows, "timestamp_us", "Kernel timestamp", { meaning: "When the CPU called for it; n/a where that call is not in the profile" }),
    timeColumn(rows, "start_us", "Start on the GPU"), timeColumn(rows, "gpu_us", "GPU time"), toldColumn(rows, "tensor_cores", "Uses Tensor Cores"),
    shortColumn(rows, "grid", "Grid"), shortColumn(rows, "block", "Block"),
  ],
});

page.views["by-iteration"] = {
  title: "Kernels by iteration", place: 30,
  render: (container, state) => {
    const above = el("div", {});
    container.append(above);
    const place = page.below(container, "Choose an iteration to see its kernels here.");
    const show = one => {
      const rows = state.tables.kernelsIn(one.index);
      place.replaceChildren();
      if (!rows) { place.append(missing(state)); return; }
      kernelTable(place, rows, { name: "iteration-kernels", title: "Kernels in selected iteration", withOp: true,
        lead: `The ${figure(rows.length)} kernels and memory operations of iteration ${one.index} (${one.name}).` });
    };
    const picked = iterationTable(above, state, show);
    if (picked) show(picked);
  },
};

page.views["by-op"] = {
  title: "Kernels by op", place: 40,
  render: (container, state) => {
    const above = el("div", {}), tables = state.tables;
    container.append(above);
    const middle = page.below(container, "Choose an iteration to see its ops here."), lower = page.below(container, "Choose an op to see its kernels in the iteration.");
    const kernels = (one, op) => {
      const rows = tables.kernelsIn(one.index, op.op);
      lower.replaceChildren();
      if (!rows) { lower.append(missing(state)); return; }
      kernelTable(lower, rows, { name: "iteration-op-kernels", title: "Kernels in selected iteration and op",
        lead: `Iteration ${one.index}, ${op.name}.` });
    };
    const show = one => {
      const rows = tables.opsIn(one.index);
      middle.replaceChildren();
      lower.replaceChildren(el("p", { class: "soft hint", role: "status" }, "Choose an op to see its kernels in the iteration."));
      if (!rows) { middle.append(missing(state)); return; }
      const chosen = rows.findIndex(op => String(op.op) === state.params.get("op"));
      page.table(middle, {
        name: "iteration-ops", title: "Ops in selected iteration", count: rows.length, order: ["start_us", "asc"],
        lead: `The ops of iteration ${one.index} (${one.name}). Choose one to see its kernels below.`,
        columns: [
          textColumn(rows, "name", "Op name"), page.directionColumn(rows), shortColumn(rows, "type", "Op type"), timeColumn(rows, "start_us", "Op start"),
          countColumn(rows, "kernels", "Total kernels"), countColumn(rows, "tensor_core_kernels", "Tensor Core kernels"), timeColumn(rows, "gpu_us", "Total GPU time"),
          timeColumn(rows, "tensor_core_time_us", "Tensor Core GPU time"), shortColumn(rows, "dtypes", "Data type"), textColumn(rows, "shapes", "Input shapes"),
          page.stackColumn(rows),
        ],
        pick: { head: "Kernels of the op", label: row => `Show the kernels of ${rows[row].name}`, picked: chosen,
          on: row => { page.keep({ op: rows[row].op }); kernels(one, rows[row]); } },
      });
      if (chosen >= 0) kernels(one, rows[chosen]);
    };
    const picked = iterationTable(above, state, show);
    if (picked) show(picked);
  },
};
