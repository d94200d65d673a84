// Each product, convolution and attention against the roof of its GPU at its data type.

const { el, shortColumn, figure, percent, textColumn, countColumn, timeColumn } = page;

page.views.roofs = {
  title: "Roofs", place: 48,
  shown: state => state.document.roofs.length > 0,
  render: (container, state) => {
    const rows = state.document.roofs, names = new Map(state.data.ops ? state.data.ops.map(one => [one.id, one.name]) : []);
    const summary = state.document.summary;
    page.table(container, {
      name: "roofs", title: "Products against their roofs", count: rows.length, order: ["gpu_us", "desc"], length: 25,
      lead: "The roof is the most that the GPU can do at this data type. Figures are of iterations " +
        `${summary.start_iteration} to ${summary.stop_iteration}, as the file was opened.`,
      columns: [
        { key: "op", title: "Op", get: row => names.get(rows[row].op) || rows[row].type,
          show: (name, row) => page.link("ops", { op: rows[row].op }, name.length > 100 ? `${name.slice(0, 100)}…` : name) },
        timeColumn(rows, "gpu_us", "GPU time"),
        countColumn(rows, "percent", "Of the roof", { unit: "%", digits: 1, show: value => (value === null ? percent(value) : page.meter(percent(value), value / 100, "tc", "Share of the roof")) }),
        textColumn(rows, "better", "What would be faster"), timeColumn(rows, "better_us", "Saved a step"), textColumn(rows, "words", "Why it is below"),
        countColumn(rows, "tflops", "TFLOP/s", { digits: 1 }), countColumn(rows, "roof_tflops", "Roof TFLOP/s", { digits: 1 }),
        shortColumn(rows, "roof_source", "Roof from"), textColumn(rows, "shape", "Shape"), shortColumn(rows, "dtype", "Data type"),
        countColumn(rows, "calls", "Calls"), shortColumn(rows, "type", "Op type"),
      ],
    });
  },
};
