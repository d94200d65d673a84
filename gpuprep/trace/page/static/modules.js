// Group by module: what each part of the network costs, the parts inside of it included.

const { el, countColumn, timeColumn, percent } = page;

page.views.modules = {
  title: "Group by module", place: 45,
  shown: state => state.tables.modules.length > 0,
  render: (container, state) => {
    const rows = state.tables.modules, total = state.tables.summary.kernel_time_us + state.tables.summary.memory_time_us;
    const depth = module => module.split("/").length - 1;
    page.table(container, {
      name: "modules", title: "Modules", count: rows.length, order: ["gpu_us", "desc"], length: 25,
      lead: "Figures of a module count all modules below it, so the rows do not sum to the total. Sorted by name, the table is the tree of the network.",
      columns: [
        { key: "module", title: "Module", get: page.from(rows, "module"), show: name => page.el("span", { class: `depth depth-${Math.min(8, depth(name))}` }, page.long(name)) },
        countColumn(rows, "calls", "Calls"),
        timeColumn(rows, "gpu_us", "GPU time", { show: (us, row) => page.meter(`${page.figure(us, 3)} (${percent(100 * us / total)})`, us / total, "memory", "Share of all GPU time") }),
        timeColumn(rows, "tensor_core_time_us", "TC GPU time", { show: (us, row) => page.meter(`${page.figure(us, 3)} (${percent(rows[row].gpu_us ? 100 * us / rows[row].gpu_us : null)})`, us / rows[row].gpu_us, "tc", "Share of the module's GPU time") }),
        timeColumn(rows, "cpu_us", "CPU time"),
      ],
    });
  },
};
