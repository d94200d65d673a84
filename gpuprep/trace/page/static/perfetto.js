// "Open in Perfetto". A server of gpuprep or TensorBoard has the trace itself, and a page that hands it over
// (perfetto?run=…). A page in a file has not: it says what to do.

const { el } = page;
const PERFETTO = "https://ui.perfetto.dev";

page.perfetto = (state, place = location) => {
  const file = state.document.file, run = page.runShown(place);
  const kineto = file.format === "kineto";
  const link = (href, words) => el("a", { href, target: "_blank", rel: "noopener noreferrer" }, words);
  let words;
  if (!kineto) words = ["Perfetto reads traces of PyTorch's profiler alone. nsys-ui opens this export."];
  else if (run !== null) {
    words = [link(`perfetto?run=${encodeURIComponent(run)}`, "Open in Perfetto"), " · ", el("a", { href: `raw?run=${encodeURIComponent(run)}`, download: "" }, "The trace itself"),
      ". Perfetto gets the trace inside of this browser; no server is sent it."];
  } else words = ["This file does not have the trace itself. Open ", link(PERFETTO, "ui.perfetto.dev"), ` and drop ${page.plain(file.name)} into it, or start `, el("code", {}, "gpuprep trace serve"),
    " with the folder of the trace: its pages open Perfetto with one click."];
  return el("section", { class: "card", "aria-label": "Perfetto" }, el("h2", {}, "Open in Perfetto"), el("p", {}, words));
};
