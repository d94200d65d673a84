// How to read the page: its words, its tables, its keys. It stands in the page because the page works offline.

const { el, panel } = page;
const list = words => el("dl", { class: "meanings" }, words.map(([word, meaning]) => [el("dt", {}, word), el("dd", {}, meaning)]));

page.views.help = {
  title: "Help", place: 90,
  render: container => {
    container.append(
      panel("Words", list([
        ["Iteration", "One step of the training or inference. All figures are of the chosen iterations; the view Iterations chooses them."],
        ["GPU time", "The sum of the durations of kernels, copies and fills. Work at the same time on two streams counts twice."],
        ["GPU busy, utilization", "The union of the same: time in which at least one of them runs. Never more than the wall clock time."],
        ["Op", "An operator of the framework at one place of the program, with one kind of input. Its GPU time is that of the kernels it launched itself."],
        ["Tensor Cores", "An op could use them where it multiplies matrices in a data type that the Tensor Cores of this GPU have. It uses them where one of its kernels does so, as far as the kernel's name tells."],
        ["CPU overhead", "CPU time of the op itself less the time inside calls of the CUDA API."],
        ["GPU idle", "Gaps between the kernels of one call of an op."],
        ["Key op", "An op whose calls begin the iterations, where the profile does not mark its steps."],
        ["Domain", "A family of annotations of the program, or an NVTX domain of an export of Nsight Systems. Choose one, and all figures are of what lies inside its ranges."],
        ["n/a", "Not in the profile, or nothing to divide by. It is never 0."],
      ])),
      panel("Tables", list([
        ["Search", "Shows rows with this text in any column."],
        ["Boxes below the heads", "Filter one column; several filters hold together. Columns with ✓ and ✗ take 1 and 0, and ? for unknown. Numbers take 12, >10, <=5, =7."],
        ["Heads", "Sort: numbers the greatest first, then the least."],
        ["▸", "Shows what a row is made of in the table below it. A click on the row does the same."],
        ["Copy, CSV, JSON, Excel, Print", "The filtered rows in their order, all pages of them. Print makes a PDF where the browser is told to."],
      ])),
      panel("Keys and addresses", list([
        ["Tab, Enter, Space", "Reach and use every control. Escape closes the details."],
        ["The address", "Has the view, the iterations and the chosen row: a bookmark or a sent link shows the same."],
        ["More", "docs/traces.md of gpuprep, and gpuprep trace report --help."],
      ])));
  },
};
