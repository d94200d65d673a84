// Each GPU of the file. Only where there is more than one, as in DLProf; a single one is on the dashboard.

const { el } = page;
page.views.gpus = {
  title: "GPUs", place: 60,
  shown: state => state.document.file.devices.length > 1,
  render: (container, state) => { container.append(el("p", {}, "")); },
};
