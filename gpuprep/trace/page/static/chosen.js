// "Select Aggregation" and "Select Domain" of the navigation. An aggregation is a choice of first and last iteration, key
// op and domain; those that were looked at are kept, in the address, too.

const { el } = page;
const MOST_KEPT = 12, MOST_DOMAINS = 200, LONGEST = 60;

const same = (a, b) => a.start === b.start && a.stop === b.stop && a.keyOp === b.keyOp && a.domain === b.domain;
const short = text => (text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text);

page.kept = {
  list: [],
  add(choice) {
    if (this.list.some(one => same(one, choice))) return;
    this.list.push(choice);
    if (this.list.length > MOST_KEPT) this.list.splice(1, 1); // the first one is how the file was opened
  },
  // As the address has them: a list of [start, stop, key op, domain].
  text() {
    return this.list.length > 1 ? JSON.stringify(this.list.map(one => [one.start, one.stop, one.keyOp, one.domain])) : "";
  },
  read(text) {
    let found = [];
    try { found = JSON.parse(text || "[]"); } catch { return; }
    if (!Array.isArray(found)) return;
    for (const one of found.slice(0, MOST_KEPT)) {
      if (!Array.isArray(one)) continue;
      const [start, stop, keyOp, domain] = one;
      if (!Number.isInteger(start) || !Number.isInteger(stop) || start < 0 || start > stop) continue;
      if (typeof keyOp === "string" && typeof domain === "string") this.add({ start, stop, keyOp, domain });
    }
  },
};

const words = one => `Iterations ${one.start} to ${one.stop}${one.keyOp ? ` by ${short(one.keyOp)}` : ""}${one.domain ? ` in ${short(one.domain)}` : ""}`;
const meaning = one => `Iterations ${one.start} to ${one.stop}; key op: ${one.keyOp || "as the profile was split"}; domain: ${one.domain || "all"}`;

page.chosen = state => {
  const { choice } = state.tables, parts = [page.rankChoice(state)].filter(Boolean);
  if (page.kept.list.length > 1) {
    const options = page.kept.list.map((one, i) => el("option", { value: i, title: meaning(one), selected: same(one, choice) }, words(one)));
    parts.push(el("label", { class: "choose" }, el("span", {}, "Aggregation"), el("select", {
      id: "aggregation", title: meaning(choice),
      onchange: event => page.chooseAll({ ...page.kept.list[Number(event.target.value)] }, "aggregation"),
    }, options)));
  }
  const domains = state.data.domains();
  if (domains.length) {
    const options = domains.slice(0, MOST_DOMAINS).map(one =>
      el("option", { value: one.name, selected: one.name === choice.domain }, `${short(one.name)} (${one.ranges})`));
    parts.push(el("label", { class: "choose", title: "Figures of the work that was launched inside of annotations of one name alone, or inside of the ranges of one NVTX domain" },
      el("span", {}, "Domain"), el("select", {
        id: "domain", onchange: event => { page.choose({ domain: event.target.value }); document.getElementById("domain")?.focus(); },
      }, el("option", { value: "", selected: !choice.domain }, "All of the profile"), options)));
  }
  return el("div", {}, parts);
};
