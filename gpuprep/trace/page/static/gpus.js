// The GPUs, where the file has more than one; a single one is on the dashboard.

const { el, shortColumn, percent, textColumn, countColumn, timeColumn } = page;

page.views.gpus = {
  title: "GPUs", place: 60,
  shown: state => state.document.file.devices.length > 1,
  render: (container, state) => {
    const chosen = new Map((state.tables.devices || []).map(one => [one.device, one]));
    const rows = state.document.file.devices.map(one => ({ ...one, ...(chosen.get(one.device) || {}), name: one.name || "not in the profile",
      compute_capability: one.compute_capability || "not in the profile" }));
    const parts = [{ label: "Utilized", colour: "tc", shown: "" }, { label: "Idle", colour: "idle", shown: "" }];
    const known = rows.filter(one => one.utilization_percent !== null);
    container.append(page.panel("GPU utilization", known.length ? page.bars("GPU utilization in percent", known.map(one => ({
      label: String(one.device), title: `GPU ${one.device}, ${one.name}: ${percent(one.utilization_percent)}`,
      values: [one.utilization_percent, Math.max(0, 100 - one.utilization_percent)],
    })), parts, { unit: " %" }) : el("p", {}, "No GPU worked in these iterations.")));
    page.table(container, {
      name: "gpus", title: "GPUs", count: rows.length, order: ["device", "asc"],
      lead: "Utilization is of the chosen iterations; kernels, times and span are of the whole file. Busy is the union of all GPU events of the device, the others are sums.",
      columns: [
        countColumn(rows, "device", "Device ID"), textColumn(rows, "name", "Device name"), shortColumn(rows, "compute_capability", "Compute capability"),
        countColumn(rows, "sms", "SM count"), countColumn(rows, "utilization_percent", "Utilization", { unit: "%", digits: 1 }),
        countColumn(rows, "memory_bytes", "Memory", { unit: "bytes", show: value => page.bytes(value) }),
        countColumn(rows, "kernels", "Kernels"), timeColumn(rows, "kernel_time_us", "Kernel time"), countColumn(rows, "memory_operations", "Memory operations"),
        timeColumn(rows, "memory_time_us", "Memory time"), timeColumn(rows, "busy_us", "Busy"), timeColumn(rows, "span_us", "Span"),
      ],
    });
  },
};
