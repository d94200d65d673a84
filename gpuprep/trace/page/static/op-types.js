// A row a type of op; CPU, GPU, overhead and idle time with total, average, least and most.

const SPREADS = [["cpu_us", "CPU time"], ["gpu_us", "GPU time"], ["cpu_overhead_us", "CPU overhead time"], ["gpu_idle_us", "GPU idle time"]];
const PARTS = [["total", "Total"], ["average", "Avg"], ["shortest", "Min"], ["longest", "Max"]];

page.views["op-types"] = {
  title: "Op type summary", place: 10,
  render: (container, { tables }) => {
    const rows = tables.op_types;
    const number = (key, title, get, meaning) => ({ key, title, kind: "number", get, meaning });
    page.table(container, {
      name: "op-types", title: "Op types", count: rows.length, order: ["gpu_us_total", "desc"],
      lead: "CPU overhead is the op's own CPU time less its calls of the CUDA API. GPU idle is the gaps in the op's own span on the GPU.",
      groups: [["", 3], ...SPREADS.map(([, title]) => [`${title} (µs)`, 4])],
      columns: [
        { key: "type", title: "Op type", get: row => rows[row].type },
        number("ops", "No. ops", row => rows[row].ops, "Ops of this type"),
        number("calls", "No. calls", row => rows[row].calls, "How often they were called"),
        ...SPREADS.flatMap(([key, title]) => PARTS.map(([part, word]) => ({
          key: `${key}_${part}`, title: word, long: `${word} ${title}`, unit: "", digits: 3, kind: "number", get: row => rows[row][key][part],
        }))),
      ],
    });
  },
};
