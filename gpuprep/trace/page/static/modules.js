// Group by module: what each part of the network costs, the parts inside of it included.

const { el, countColumn, timeColumn, percent } = page;

page.views.modules = {
  title: "Group by module", place: 45,
  shown: state => state.tables.modules.length > 0,
  render: (container, state) => {
    const rows = state.tables.modules, total = state.tables.summary.kernel_time_us + state.tables.summary.memory_time_us;
    // Of a module whose outer one stands above it, the last name says enough.
    const known = new Set(rows.map(one => one.module));
    const named = (path, row, alone) => {
      let outer = path.lastIndexOf("/");
      while (outer > 0 && !known.has(path.slice(0, outer))) outer = path.lastIndexOf("/", outer - 1);
      return el("span", { class: `depth depth-${Math.min(8, path.split("/").length - 1)}`, title: path }, page.long(alone ? path : path.slice(outer + 1)));
    };
    page.table(container, {
      name: "modules", title: "Modules", count: rows.length, order: ["module", "asc"], length: 50, tree: page.from(rows, "module"),
      lead: "A module stands below the one that it is part of. Its figures count all modules below it, so the rows do not sum to the total. Sorted by " +
        "another column, the modules inside of one module are in that order.",
      columns: [
        { key: "module", title: "Module", get: page.from(rows, "module"), show: named },
        countColumn(rows, "calls", "Calls"),
        timeColumn(rows, "gpu_us", "GPU time", { show: (us, row) => page.meter(`${page.figure(us, 3)} (${percent(100 * us / total)})`, us / total, "memory", "Share of all GPU time") }),
        timeColumn(rows, "tensor_core_time_us", "Tensor Core GPU time", { show: (us, row) => page.meter(`${page.figure(us, 3)} (${percent(rows[row].gpu_us ? 100 * us / rows[row].gpu_us : null)})`, us / rows[row].gpu_us, "tc", "Share of the module's GPU time") }),
        timeColumn(rows, "cpu_us", "CPU time"),
      ],
    });
  },
};
