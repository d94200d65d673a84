// The three panes: navigation, content, details. Both sides close, and the content takes their room.

const { el } = page;

page.frame = state => {
  const file = state.document.file, [start, stop] = page.range(), total = state.tables.summary.total_iterations;
  const range = document.getElementById("range");
  const rank = state.rank === undefined ? "" : `Rank ${state.rank}. `;
  const words = `${rank}${total > 1 ? `Iterations ${start} to ${stop} of ${total}` : "One iteration"}`;
  if (range.textContent !== words) range.textContent = words;

  const navigation = document.getElementById("navigation");
  const job = page.linkToJob(state);
  const names = Object.keys(page.views).sort((a, b) => page.views[a].place - page.views[b].place)
    .filter(name => !page.views[name].shown || page.views[name].shown(state));
  navigation.replaceChildren(
    el("button", { type: "button", class: "close", "aria-label": "Close the navigation", onclick: () => menu(false) }, "✕"),
    el("ul", {}, names.map(name => {
      const one = page.link(name, {}, page.views[name].title);
      if (name === state.view) one.setAttribute("aria-current", "page");
      return el("li", {}, one);
    }), job && el("li", {}, job)),
    page.chosen(state),
    el("p", { class: "soft small" }, file.name),
  );
};

const menu = open => {
  document.body.classList.toggle("without-navigation", !open);
  const button = document.getElementById("menu");
  button.setAttribute("aria-expanded", String(open));
  if (!open) button.focus();
};
document.getElementById("menu").addEventListener("click", event =>
  menu(event.currentTarget.getAttribute("aria-expanded") !== "true"));
if (matchMedia("(max-width: 760px)").matches) {
  document.body.classList.add("without-navigation");
  document.getElementById("menu").setAttribute("aria-expanded", "false");
  document.getElementById("navigation").addEventListener("click", event => {
    if (event.target.closest("a")) menu(false);
  });
}

// The details pane: closed by ✕ and by Escape; the focus goes back to what opened it.
page.details = (title, ...children) => {
  const pane = document.getElementById("details"), opener = document.activeElement;
  const close = () => {
    pane.hidden = true;
    pane.replaceChildren();
    if (opener && opener.isConnected) opener.focus();
  };
  const button = el("button", { type: "button", class: "close", "aria-label": "Close the details", onclick: close }, "✕");
  pane.replaceChildren(el("h2", {}, title), button, ...children);
  pane.onkeydown = event => { if (event.key === "Escape") close(); };
  pane.hidden = false;
  button.focus();
};
