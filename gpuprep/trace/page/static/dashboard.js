// The first view: what DLProf's dashboard showed, panel by panel.

const { el, figure, percent, time, panel, word, ring, more } = page;
const NA = "n/a";
const TWICE = "GPU time is the sum over kernels: work at the same time on two streams counts twice.";

const utilization = ({ tables }) => {
  const busy = tables.summary.gpu_utilization_percent;
  const body = busy === null ? el("p", {}, "No GPU event lies in these iterations.") : ring("GPU utilization", [
    { label: "Utilized", value: busy, colour: "tc", shown: percent(busy) },
    { label: "Idle", value: Math.max(0, 100 - busy), colour: "idle", shown: percent(100 - busy) },
  ]);
  return panel("GPU utilization", body, page.views.gpus.shown(page.state) && more("GPU utilization", ["gpus"]));
};

const table = (heads, rows) => el("table", {}, el("thead", {}, el("tr", {}, heads.map((one, at) =>
  el("th", { scope: "col", class: at ? "number" : null }, one)))),
el("tbody", {}, rows.map(([name, ...rest]) => el("tr", {}, el("th", { scope: "row" }, name),
  rest.map(one => el("td", { class: "number" }, one))))));

const ops = ({ tables: { summary: s } }) => {
  const all = s.ops_using_tensor_cores_time_us + s.ops_eligible_not_using_time_us + s.other_ops_time_us;
  const parts = [
    ["Ops that use Tensor Cores", s.ops_using_tensor_cores_time_us, s.ops_using_tensor_cores, "tc"],
    ["Ops that could, and do not", s.ops_eligible_not_using_time_us, s.ops_eligible_not_using, "eligible"],
    ["All other ops", s.other_ops_time_us, s.other_ops, "other"],
  ];
  const details = () => page.details("Op details", table(["Ops", "Total GPU time (ms)", "Total count"], [
    ["All ops", figure(all / 1000, 3), figure(s.ops_using_tensor_cores + s.ops_eligible_not_using + s.other_ops)],
    ...parts.map(([name, us, count]) => [name, figure(us / 1000, 3), figure(count)]),
  ]), el("p", { class: "soft small" }, TWICE));
  return panel("Op GPU time", ring("Op GPU time", parts.map(([label, value, , colour]) => ({ label, value, colour, shown: time(value) }))),
    el("div", { class: "corner" }, el("button", { type: "button", onclick: details }, "Show op details"),
      more("Op GPU time", ["op-types", "ops"])));
};

const kernels = ({ tables: { summary: s } }) => {
  const other = s.kernel_time_us - s.tensor_core_kernel_time_us - s.unknown_kernel_time_us;
  const parts = [
    ["Kernels that use Tensor Cores", s.tensor_core_kernel_time_us, s.tensor_core_kernels, "tc"],
    ["Memory kernels", s.memory_time_us, s.memory_operations, "memory"],
    ["All other kernels", other, null, "eligible"],
    s.unknown_kernel_time_us > 0 && ["Name does not tell", s.unknown_kernel_time_us, null, "told-not"],
  ].filter(Boolean);
  const details = () => page.details("Kernel details", table(["Kernels", "Total GPU time (ms)", "Total count"], [
    ["All kernels", figure((s.kernel_time_us + s.memory_time_us) / 1000, 3), figure(s.kernels + s.memory_operations)],
    ["Kernels that use Tensor Cores", figure(s.tensor_core_kernel_time_us / 1000, 3), figure(s.tensor_core_kernels)],
    ["Memory kernels", figure(s.memory_time_us / 1000, 3), figure(s.memory_operations)],
    ["All other kernels", figure((other + s.unknown_kernel_time_us) / 1000, 3), figure(s.kernels - s.tensor_core_kernels)],
  ]), s.unknown_kernel_time_us > 0 && el("p", { class: "small" }, `${time(s.unknown_kernel_time_us)} of the other kernels have ` +
    "names that do not tell whether they use Tensor Cores."), el("p", { class: "soft small" }, TWICE));
  return panel("Kernel GPU time", ring("Kernel GPU time", parts.map(([label, value, , colour]) => ({ label, value, colour, shown: time(value) }))),
    el("div", { class: "corner" }, el("button", { type: "button", onclick: details }, "Show kernel details"),
      more("Kernel GPU time", ["ops", "by-iteration", "by-op"])));
};

const EFFICIENCY = "GPU time of Tensor Core kernels inside ops that could use Tensor Cores, over the GPU time of these ops. " +
  "Higher is better. Without such ops there is nothing to divide: n/a.";
const efficiency = ({ tables: { summary: s } }) => {
  const share = s.tensor_core_efficiency_percent;
  return panel("Tensor Core kernel efficiency", share === null ? el("p", {}, "n/a: no op of these iterations could use Tensor Cores.")
    : ring("Tensor Core kernel efficiency", [
      { label: "On Tensor Cores", value: share, colour: "tc", shown: percent(share) },
      { label: "Elsewhere", value: Math.max(0, 100 - share), colour: "eligible", shown: percent(100 - share) },
    ]), s.tensor_core_time_elsewhere_us > 0 && el("p", { class: "small soft" },
    `${time(s.tensor_core_time_elsewhere_us)} of Tensor Core time lie in ops that are not on the list of eligible ops.`));
};

const performance = ({ tables: { summary: s } }) => {
  const rows = [
    [word("Wall clock time", "From the start of the first op of the first iteration on the CPU to the end of the last work of the last one, on CPU or GPU."), time(s.wall_us)],
    [word("Tensor Core kernel efficiency", EFFICIENCY), percent(s.tensor_core_efficiency_percent)],
    [word("GPU utilization", "Time in which a GPU works (the union of kernels, copies and fills) over the wall clock time, mean of the GPUs. Higher is better."), percent(s.gpu_utilization_percent)],
    [word("Total iterations", `Found in the profile; split by: ${s.split_by}.`), figure(s.total_iterations)],
    [word("Profiled iterations", "Those that all figures of this page are of."), figure(s.iterations)],
    ["Start iteration", figure(s.start_iteration)],
    ["Stop iteration", figure(s.stop_iteration)],
    [word("Average iteration time", "From step to step. How far the GPU is behind at the end is no part of it."), time(s.average_iteration_us)],
  ];
  return panel("Performance summary", el("dl", { class: "figures" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])));
};

const MOST_BARS = 120;
const iterations = ({ tables }) => {
  const range = page.range(), all = tables.iterations, step = Math.ceil(all.length / MOST_BARS) || 1;
  const longest = [];
  for (let at = 0; at < all.length; at += step)
    longest.push(all.slice(at, at + step).reduce((a, b) => (b.wall_us > a.wall_us ? b : a)));
  const most = longest.reduce((a, b) => Math.max(a, b.wall_us, b.gpu_time_us), 0);
  const [size, unit] = page.unitOf(most || 1);
  const gap = one => Math.max(0, one.wall_us - one.tensor_core_time_us - one.other_kernel_time_us - one.memory_time_us);
  const parts = [
    { label: "Tensor Core kernels", colour: "tc" }, { label: "Other kernels, or unknown", colour: "eligible" }, { label: "Memory", colour: "memory" },
    { label: "Rest of the iteration", colour: "idle" },
  ].map(one => ({ ...one, shown: "" }));
  const bars = longest.map(one => ({
    label: String(one.index), outside: one.index < range[0] || one.index > range[1],
    title: `Iteration ${one.index}: ${time(one.wall_us)}; Tensor Core kernels ${time(one.tensor_core_time_us)}, other kernels ` +
      `${time(one.other_kernel_time_us)}, memory ${time(one.memory_time_us)} (mean of the GPUs)`,
    values: [one.tensor_core_time_us, one.other_kernel_time_us, one.memory_time_us, gap(one)].map(us => us / size),
  }));
  const one = panel("Iteration summary",
    el("p", { class: "small soft" }, `${tables.summary.total_iterations} iterations by ${tables.summary.split_by}; ` +
      `${tables.summary.iterations} profiled (${range[0]} to ${range[1]})${tables.summary.iterations < all.length ? ", the others are pale" : ""}.` +
      (step > 1 ? ` A bar is the longest of ${step} iterations.` : "")),
    page.bars(`Time of ${longest.length} iterations in ${unit}`, bars, parts, { unit: ` ${unit}` }),
    page.views.iterations && more("iterations", ["iterations", "by-iteration"]));
  one.classList.add("wide");
  return one;
};

const topOps = ({ tables }) => {
  const top = [...tables.ops].sort((a, b) => b.gpu_us - a.gpu_us).slice(0, 10).filter(one => one.gpu_us > 0);
  const directed = tables.ops.some(one => one.direction);
  const box = el("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "Top 10 GPU ops, table" },
    el("table", { class: "data" }, el("thead", {}, el("tr", {}, ["GPU time (µs)", "Op name", directed && "Direction", "Op type", "Calls",
      "Could use Tensor Cores", "Uses Tensor Cores"].filter(Boolean).map((one, at) => el("th", { scope: "col", class: at === 0 || one === "Calls" ? "number" : null }, one)))),
    el("tbody", {}, top.map(one => el("tr", {}, el("td", { class: "number" }, figure(one.gpu_us, 3)),
      el("td", { class: "roomy" }, page.link("ops", { op: one.id }, one.name.length > 100 ? `${one.name.slice(0, 100)}…` : one.name)), directed && el("td", {}, one.direction),
      el("td", { class: "narrow" }, one.type), el("td", { class: "number" }, figure(one.calls)), el("td", {}, page.yes(one.eligible)),
      el("td", {}, page.yes(one.using_tensor_cores)))))));
  const one = panel("Top 10 GPU ops", top.length ? box : el("p", {}, "No op of these iterations launched GPU work."));
  one.classList.add("wide");
  return one;
};

const system = ({ document: { file } }) => {
  const rows = [["Profile name", file.profile_name || "none was given"], ["File", `${file.name}, ${page.bytes(file.bytes)}, ${file.format} ${file.generation}`],
    ...Object.entries(file.machine).map(([name, value]) => [name.replaceAll("_", " "), value])];
  if (file.rank !== null) rows.push(["Rank", `${file.rank}${file.world_size === null ? "" : ` of ${file.world_size}`}`]);
  const on = Object.entries(file.switches).filter(([, value]) => value).map(([name]) => name.replaceAll("_", " "));
  rows.push(["Recorded with", on.join(", ") || "no switches"], ["Read from", file.machine_source]);
  const one = panel("System configuration", el("dl", { class: "figures words" }, rows.map(([name, value]) => [el("dt", {}, name), el("dd", {}, page.long(value))])));
  return one;
};

const notes = ({ document: { file }, data }) => {
  const all = [...file.notes.map(one => one.text), ...data.leftOut.map(words => `Not in this page, for its size: ${words}`)];
  return all.length ? panel("Notes of this file", el("ul", { class: "notes" }, all.map(words => el("li", {}, words)))) : null;
};

// What all times of the page are to be taken with: of the file as it was opened.
const slowdown = ({ document: { summary, slowdown: told } }) => el("p", { class: "lead" },
  `${figure(summary.iterations)} iteration${summary.iterations === 1 ? "" : "s"}, ${time(summary.average_iteration_us)} each. `,
  el("b", {}, told.words));

page.views.dashboard = {
  title: "Dashboard", place: 0,
  render: (container, state) => {
    container.append(slowdown(state), el("div", { class: "panels" }, page.advicePanel(state), utilization(state), ops(state),
      kernels(state), efficiency(state), performance(state), system(state), iterations(state), topOps(state), notes(state) || "",
      page.guidance()));
  },
};
