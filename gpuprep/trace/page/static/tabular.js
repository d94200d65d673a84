// Columns that several tables have.

const { figure } = page;

// get(row) of a list of objects.
page.from = (rows, key) => row => rows[row][key];
page.textColumn = (rows, key, title, more = {}) => ({ key, title, get: page.from(rows, key), ...more });
page.countColumn = (rows, key, title, more = {}) => ({ key, title, kind: "number", get: page.from(rows, key), ...more });
// µs with three decimals: whole nanoseconds, as they were recorded.
page.timeColumn = (rows, key, title, more = {}) => ({ key, title, unit: "µs", kind: "number", digits: 3, get: page.from(rows, key), ...more });
page.boolColumn = (rows, key, title, more = {}) => ({ key, title, kind: "bool", get: page.from(rows, key), ...more });
page.toldColumn = (rows, key, title, more = {}) => ({ key, title, kind: "told", get: page.from(rows, key), ...more });
// The innermost frame is what a reader looks for: it stands first.
page.stackColumn = rows => rows.some(one => one.stack.length) && {
  key: "stack", title: "Stack trace", get: row => [...rows[row].stack].reverse().join("\n"),
};
page.shortColumn = (rows, key, title, more = {}) => page.textColumn(rows, key, title, { narrow: true, ...more });
page.directionColumn = rows => rows.some(one => one.direction) && page.shortColumn(rows, "direction", "Direction",
  { meaning: "fprop: forward; bprop: backward" });

// Where a table of chosen rows stays empty until a row is chosen above it.
page.below = (container, words) => {
  const place = page.el("div", { class: "below" }, page.el("p", { class: "soft hint", role: "status" }, words));
  container.append(place);
  return place;
};

// "12 rows of a recommendation" with a way back to all. ids: the row's ids of the address, or null.
page.onlyRows = (container, state, rows) => {
  const wanted = state.params.get("rows");
  if (!wanted) return null;
  const ids = new Set(wanted.split(".").slice(0, 5000).map(Number)), only = new Set();
  rows.forEach((one, row) => { if (ids.has(one.id)) only.add(row); });
  const advice = state.document.advice.find(one => one.rule === state.params.get("rule"));
  container.append(page.el("p", { class: "only", role: "status" },
    `${figure(only.size)} rows${advice ? ` of the recommendation: ${advice.problem}` : ""}. `,
    page.link(state.view, {}, "Show all rows")));
  return only;
};
