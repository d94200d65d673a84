// Op type summary; Ops and kernels.

const { el, shortColumn, figure, from, textColumn, countColumn, timeColumn, boolColumn, toldColumn } = page;

const SPREADS = [["cpu_us", "CPU time"], ["gpu_us", "GPU time"], ["cpu_overhead_us", "CPU overhead time"], ["gpu_idle_us", "GPU idle time"]];
const PARTS = [["total", "Total"], ["average", "Avg"], ["shortest", "Min"], ["longest", "Max"]];

page.views["op-types"] = {
  title: "Op type summary", place: 10,
  render: (container, { tables }) => {
    const rows = tables.op_types;
    page.table(container, {
      name: "op-types", title: "Op types", count: rows.length, order: ["gpu_us_total", "desc"],
      lead: "A row is a type of op. CPU overhead is the op's own CPU time less its calls of the CUDA API; GPU idle is the gaps in the op's own span on the GPU.",
      groups: [["", 3], ...SPREADS.map(([, title]) => [`${title} (µs)`, 4])],
      columns: [
        shortColumn(rows, "type", "Op type"), countColumn(rows, "ops", "No. ops"), countColumn(rows, "calls", "No. calls"),
        ...SPREADS.flatMap(([key, title]) => PARTS.map(([part, word]) => ({
          key: `${key}_${part}`, title: `${word} ${title}`, head: word, unit: "µs", kind: "number", digits: 3, get: row => rows[row][key][part],
        }))),
      ],
    });
  },
};

const kernelColumns = rows => [
  textColumn(rows, "name", "Kernel name"),
  toldColumn(rows, "tensor_cores", "Uses Tensor Cores", { meaning: "? where the name does not tell" }),
  countColumn(rows, "calls", "Calls"), timeColumn(rows, "total_us", "GPU time"), timeColumn(rows, "average_us", "Avg"),
  timeColumn(rows, "shortest_us", "Min"), timeColumn(rows, "longest_us", "Max"), shortColumn(rows, "rule", "Rule", { meaning: "The rule that told whether it uses Tensor Cores" }),
];

page.views.ops = {
  title: "Ops and kernels", place: 20,
  render: (container, state) => {
    const rows = state.tables.ops, only = page.onlyRows(container, state, rows);
    const above = el("div", {});
    container.append(above);
    const place = page.below(container, "Choose an op to see its kernels here. All kernels are in the view Kernels.");
    const show = row => {
      const one = rows[row], found = state.tables.kernelsOfOp(one.id);
      place.replaceChildren();
      if (found === null) { place.append(el("p", { class: "hint" }, "The kernels of single ops are not in this page.")); return; }
      page.table(place, {
        name: "op-kernels", title: "Kernel summaries", count: found.length, order: ["total_us", "desc"], columns: kernelColumns(found),
        lead: `Kernels of ${one.name}: ${figure(one.kernel_calls)} calls.`,
      });
    };
    const picked = rows.findIndex(one => String(one.id) === state.params.get("op"));
    page.table(above, {
      name: "ops", title: "Ops", count: rows.length, order: ["gpu_us", "desc"], only,
      lead: "GPU time is that of the kernels that the op itself launched, so that rows sum to the total; with children it counts what it calls, too.",
      columns: [
        timeColumn(rows, "gpu_us", "GPU time"), timeColumn(rows, "cpu_us", "CPU time"),
        textColumn(rows, "name", "Op name"), page.directionColumn(rows), shortColumn(rows, "type", "Op type"), countColumn(rows, "calls", "Calls"),
        boolColumn(rows, "eligible", "Could use Tensor Cores"), boolColumn(rows, "using_tensor_cores", "Uses Tensor Cores"), countColumn(rows, "kernel_calls", "Kernel calls"),
        shortColumn(rows, "dtypes", "Data type"), textColumn(rows, "shapes", "Input shapes"),
        timeColumn(rows, "gpu_with_children_us", "GPU time with children"),
        rows.some(one => one.tflops !== null) && countColumn(rows, "tflops", "TFLOP/s", { digits: 1, meaning: "FLOPs of all calls over their GPU time" }),
        page.stackColumn(rows),
      ],
      pick: { head: "Kernels of the op", label: row => `Show the kernels of ${rows[row].name}`, picked,
        on: row => { page.keep({ op: rows[row].id }); show(row); } },
    });
    if (picked >= 0) show(picked);
  },
};

page.views.kernels = {
  title: "Kernels", place: 25,
  render: (container, state) => {
    const rows = state.tables.kernels, only = page.onlyRows(container, state, rows);
    const above = el("div", {});
    container.append(above);
    const place = page.below(container, "Choose a kernel to see the ops that launched it.");
    const ops = new Map(state.tables.ops.map(one => [one.id, one]));
    const show = row => {
      const found = (state.tables.opsOfKernel(rows[row].id) || []).map(id => ops.get(id)).filter(Boolean);
      place.replaceChildren();
      page.table(place, {
        name: "kernel-ops", title: "Ops with this kernel", count: found.length, order: ["gpu_us", "desc"],
        columns: [
          { ...textColumn(found, "name", "Op name"), show: (name, at) => page.link("ops", { op: found[at].id }, name.length > 100 ? `${name.slice(0, 100)}…` : name) },
          shortColumn(found, "type", "Op type"), countColumn(found, "calls", "Calls"),
          timeColumn(found, "gpu_us", "GPU time"), boolColumn(found, "eligible", "Could use Tensor Cores"), boolColumn(found, "using_tensor_cores", "Uses Tensor Cores"),
        ],
      });
    };
    const picked = rows.findIndex(one => String(one.id) === state.params.get("kernel"));
    page.table(above, {
      name: "kernels", title: "Kernels and memory operations", count: rows.length, order: ["total_us", "desc"], only,
      columns: [...kernelColumns(rows), boolColumn(rows, "memory", "Memory")],
      pick: { head: "Ops with the kernel", label: row => `Show the ops with ${rows[row].name}`, picked,
        on: row => { page.keep({ kernel: rows[row].id }); show(row); } },
    });
    if (picked >= 0) show(picked);
  },
};
