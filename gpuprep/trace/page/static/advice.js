// Recommendations, and what stands beside them: static guidance.

const { el, time } = page;
const SMALLEST = 0.05; // µs a step: a smaller gain counts as none

// A link of a recommendation opens in a new tab; anything but http(s) is no link.
const linked = url => {
  if (!/^https?:\/\//.test(url)) return null;
  return el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, "Read more", el("span", { class: "unseen" }, ` (${url}, opens a new tab)`));
};
const VIEWS = { ops: "ops", kernels: "kernels", iterations: "iterations", timeline: "timeline", memory: "memory" };
const SEVERITY = { problem: "Problem", hint: "Hint", missing: "Cannot be told" };

// ">>": the rows that a recommendation is about.
const rowsOf = one => {
  const view = VIEWS[one.view];
  const ids = one.view === "kernels" ? one.kernels : one.ops;
  const open = view && page.views[view] && (!page.views[view].shown || page.views[view].shown(page.state));
  if (!open || (["ops", "kernels"].includes(one.view) && !ids.length)) return null;
  const params = ["ops", "kernels"].includes(one.view) ? { rows: ids.join("."), rule: one.rule } : {};
  const link = page.link(view, params, "»", el("span", { class: "unseen" }, ` Show the rows of: ${one.problem}`));
  link.title = "Show what it is about";
  link.classList.add("rows-of");
  return link;
};

const saves = gain => (gain.us < SMALLEST ? "saves nothing now" : `saves about ${gain.share_percent == null ? `${time(gain.us)} a step` : `${Math.round(gain.share_percent)} % of the time`}`);
const list = (all, { estimates }) => el("ul", { class: "advice" }, all.map(one => el("li", { class: `about-${one.severity}` },
  el("div", { class: "advice-head" }, el("span", { class: `severity about-${one.severity}` }, SEVERITY[one.severity] || one.severity),
    one.gain && el("b", { class: "gain" }, saves(one.gain)), rowsOf(one)),
  el("p", { class: "problem-text" }, one.problem),
  el("p", {}, one.recommendation, " ", linked(one.link)),
  estimates && one.gain && el("p", { class: "small soft" }, `Estimated: ${one.gain.how}`))));

const MOST = 4; // on the dashboard
const scope = state => {
  const summary = state.document.summary, [start, stop] = page.range();
  return state.choice.keyOp || state.choice.domain || start !== summary.start_iteration || stop !== summary.stop_iteration
    ? el("p", { class: "small soft" }, `Made of iterations ${summary.start_iteration} to ${summary.stop_iteration}, as the file was opened.`) : null;
};

page.advicePanel = state => {
  const all = state.document.advice;
  const one = page.panel("Recommendations", scope(state) || "", all.length ? list(all.filter((each, place) => place < MOST || each.unjudged.length), { estimates: false })
    : el("p", {}, "No rule found anything to recommend."), all.length ? page.link("advice", {}, all.length > MOST ? `All ${all.length} recommendations, and how the gains were estimated` : "How the gains were estimated") : "");
  one.classList.add("wide");
  return one;
};

page.views.advice = {
  title: "Recommendations", place: 5,
  render: (container, state) => {
    const all = state.document.advice;
    if (!all.length) { container.append(el("p", {}, "No rule found anything to recommend.")); return; }
    container.append(el("p", { class: "lead" }, "Ordered by the gain that is estimated: each is of one change alone, so gains do not add up. » leads to the rows."), scope(state) || "",
      page.panel("By gain", list(all, { estimates: true })));
    page.table(container, {
      name: "recommendations", title: "As a table", count: all.length,
      columns: [
        { key: "gain_us", title: "Saves a step", unit: "µs", kind: "number", digits: 1, get: row => (all[row].gain ? all[row].gain.us : null) },
        page.shortColumn(all, "rule", "Rule"), page.shortColumn(all, "severity", "Severity"), page.textColumn(all, "problem", "Problem"),
        page.textColumn(all, "recommendation", "Recommendation"),
        { key: "gain_how", title: "How it was estimated", get: row => (all[row].gain ? all[row].gain.how : "") },
        page.textColumn(all, "link", "Link"),
      ],
    });
  },
};

const READ = [
  ["Mixed precision in PyTorch", "https://pytorch.org/docs/stable/amp.html"],
  ["Performance tuning guide of PyTorch", "https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html"],
  ["Tensor Cores", "https://www.nvidia.com/en-us/data-center/tensor-cores/"],
  ["Matrix products: shapes, tiles and waves", "https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/index.html"],
];
page.guidance = () => {
  const one = page.panel("Guidance",
    el("p", {}, "First see how busy the GPU is, then which ops take its time, then whether these could use Tensor Cores."),
    el("ul", {},
      el("li", {}, "Tensor Cores multiply matrices in FP16, BF16, TF32, FP8 and INT8. FP32 without TF32 does not use them: mixed precision does."),
      el("li", {}, "Several kernels of one op are often transposes of its data. These use no Tensor Cores themselves; channels_last avoids many of them."),
      el("li", {}, "An op whose sizes are multiples of 8 (FP16, BF16) or 4 (TF32) gets the fastest kernels."),
      READ.map(([words, url]) => el("li", {}, el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, words)))));
  one.classList.add("wide");
  return one;
};
