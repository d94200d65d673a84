// The view "Iterations": how long each iteration took and on what; which iterations all tables are made of.
//
// A boundary is dragged, moved by the arrow keys, or typed; the tables follow at once. A key op moves the iterations
// themselves. All choices stand in the address.

const { el, svg } = page;

const KINDS = [
  ["tc", "Kernels using Tensor Cores", one => one.tensor_core_time_us],
  ["plain", "Kernels not using them, or unknown", one => one.other_kernel_time_us],
  ["memory", "Memory operations", one => one.memory_time_us],
];
const HEIGHT = 260, LEFT = 64, RIGHT = 18, TOP = 12, BOTTOM = 34;
const SELECTED = "selected", ALL = "all";

// Round steps of an axis: 1, 2 or 5 times a power of ten.
page.ticks = (low, high, about) => {
  const raw = (high - low) / Math.max(1, about), power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 5, 10].find(one => one * power >= raw) * power, made = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) made.push(value);
  return made;
};

const limited = (value, low, high) => Math.min(high, Math.max(low, value));
const bar = (x, y, width, height) => `M${x.toFixed(2)} ${y.toFixed(2)}h${width.toFixed(2)}v${height.toFixed(2)}h${(-width).toFixed(2)}z`;

// The chart. `range` is what the boundaries show; `moved(start, stop, done)` is called while they move. Without `moved`
// it is a picture: the dashboard's.
page.iterationChart = (container, { lines, range, from, to, moved, width }) => {
  const wide = Math.max(280, width || container.clientWidth || 640), inner = wide - LEFT - RIGHT;
  const low = HEIGHT - BOTTOM, count = to - from + 1, step = inner / count;
  const total = one => KINDS.reduce((sum, [, , get]) => sum + get(one), 0);
  const shown = lines.slice(from, to + 1);
  const highest = shown.reduce((most, one) => Math.max(most, one.wall_us, total(one)), 1e-9);
  const y = us => low - (us / highest) * (low - TOP);
  const x = iteration => LEFT + (iteration - from) * step;
  let [start, stop] = range;

  const paths = { outside: "", wall: "" };
  for (const [name] of KINDS) paths[name] = "";
  const gap = step > 4 ? Math.min(step * 0.2, 6) : 0;
  const draw = () => {
    for (const name of Object.keys(paths)) paths[name] = "";
    shown.forEach((one, i) => {
      const left = x(from + i) + gap / 2, breadth = Math.max(step - gap, 0.5), inside = from + i >= start && from + i <= stop;
      if (!inside) { paths.outside += bar(left, y(one.wall_us), breadth, low - y(one.wall_us)); return; }
      let sum = 0;
      for (const [name, , get] of KINDS) {
        const us = get(one);
        if (us > 0) paths[name] += bar(left, y(sum + us), breadth, y(sum) - y(sum + us));
        sum += us;
      }
      paths.wall += `M${left.toFixed(2)} ${y(one.wall_us).toFixed(2)}h${breadth.toFixed(2)}`;
    });
    for (const [name, path] of Object.entries(shapes)) path.setAttribute("d", paths[name]);
  };
  const shapes = Object.fromEntries(Object.keys(paths).map(name => [name, svg("path", { class: `it-${name}` })]));

  const [unitSize, unit] = page.unitOf(highest);
  const axis = page.ticks(0, highest, 5).map(us => [
    svg("line", { class: "grid", x1: LEFT, x2: wide - RIGHT, y1: y(us), y2: y(us) }),
    svg("text", { class: "tick", x: LEFT - 10, y: y(us) + 4, "text-anchor": "end" }, String(Number((us / unitSize).toPrecision(6)))),
  ]);
  const every = Math.max(1, Math.ceil(count / Math.max(2, Math.floor(inner / 48))));
  const names = shown.map((_, i) => from + i).filter(i => i % every === 0).map(i =>
    svg("text", { class: "tick", x: x(i) + step / 2, y: low + 16, "text-anchor": "middle" }, i));
  const summary = `Iterations ${from} to ${to}; chosen are ${start} to ${stop}. The longest bar is ${page.time(highest)}.`;
  const picture = svg("svg", {
    class: "iterations", viewBox: `0 0 ${wide} ${HEIGHT}`, width: wide, height: HEIGHT,
    role: moved ? "group" : "img", "aria-label": summary,
  },
  axis, names,
  svg("text", { class: "tick", x: LEFT + inner / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "Iteration"),
  svg("text", { class: "tick", x: 12, y: TOP + (low - TOP) / 2, transform: `rotate(-90 12 ${TOP + (low - TOP) / 2})`, "text-anchor": "middle" }, `Duration (${unit})`),
  Object.values(shapes));
  draw();

  const tip = el("div", { class: "chart-tip", hidden: true, role: "status" });
  const where = event => {
    const box = picture.getBoundingClientRect();
    return from + Math.floor(((event.clientX - box.left) * (wide / box.width) - LEFT) / step);
  };
  const hide = () => { tip.hidden = true; };
  picture.addEventListener("pointermove", event => {
    const i = where(event);
    if (i < from || i > to) { hide(); return; }
    const one = lines[i];
    tip.replaceChildren(el("strong", {}, one.name), ...[["Wall clock", one.wall_us], ...KINDS.map(([, label, get]) => [label, get(one)]),
      ["GPU busy", one.busy_us]].map(([label, us]) => el("div", {}, `${label}: ${page.time(us)}`)));
    tip.hidden = false;
    const box = picture.getBoundingClientRect();
    tip.style.setProperty("left", `${limited(event.clientX - box.left + 12, 0, Math.max(0, box.width - 230))}px`);
  });
  picture.addEventListener("pointerleave", hide);

  const place = el("div", { class: "draw" }, picture, tip);
  container.append(place);
  if (!moved) return { draw: () => {} };

  // A boundary: a slider that stands before the first, or behind the last chosen iteration.
  const first = from, last = to;
  const grip = side => {
    const isStart = side === "start";
    const line = svg("line", { y1: TOP - 4, y2: low, class: "boundary" });
    const knob = svg("rect", { y: TOP - 6, width: 14, height: 22, rx: 3, class: "knob" });
    const area = svg("rect", { y: 0, width: 28, height: HEIGHT, class: "area" });
    const node = svg("g", {
      class: "grip", id: `grip-${side}`, role: "slider", tabindex: "0", "aria-label": isStart ? "First iteration" : "Last iteration",
      "aria-orientation": "horizontal",
    }, area, line, knob);
    const set = () => {
      const value = isStart ? start : stop, at = limited(isStart ? x(value) : x(value + 1), LEFT, wide - RIGHT);
      line.setAttribute("x1", at); line.setAttribute("x2", at);
      knob.setAttribute("x", at - 7); area.setAttribute("x", at - 14);
      node.setAttribute("aria-valuemin", isStart ? first : start);
      node.setAttribute("aria-valuemax", isStart ? stop : last);
      node.setAttribute("aria-valuenow", value);
      node.setAttribute("aria-valuetext", `iteration ${value}`);
    };
    const move = (value, done) => {
      if (isStart) start = limited(value, first, Math.min(stop, last)); else stop = limited(value, Math.max(start, first), last);
      grips.forEach(one => one.set());
      draw();
      moved(start, stop, done, node.id);
    };
    node.addEventListener("pointerdown", event => {
      event.preventDefault();
      node.focus();
      node.setPointerCapture(event.pointerId);
      const drag = next => {
        const box = picture.getBoundingClientRect();
        const at = ((next.clientX - box.left) * (wide / box.width) - LEFT) / step;
        move(isStart ? from + Math.round(at) : from + Math.round(at) - 1, false);
      };
      const end = () => {
        node.removeEventListener("pointermove", drag);
        move(isStart ? start : stop, true);
      };
      node.addEventListener("pointermove", drag);
      node.addEventListener("pointerup", end, { once: true });
      node.addEventListener("pointercancel", end, { once: true });
    });
    node.addEventListener("keydown", event => {
      const value = isStart ? start : stop, page10 = Math.max(1, Math.round(count / 10));
      const next = { ArrowLeft: value - 1, ArrowDown: value - 1, ArrowRight: value + 1, ArrowUp: value + 1,
        PageDown: value - page10, PageUp: value + page10, Home: first, End: last }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      move(next, true);
    });
    return { node, set };
  };
  const grips = [grip("start"), grip("stop")];
  grips.forEach(one => { one.set(); picture.append(one.node); });
  return { set: (a, b) => { [start, stop] = [a, b]; grips.forEach(one => one.set()); draw(); } };
};

page.iterationLegend = outside => el("ul", { class: "swatches" },
  [...KINDS.map(([name, label]) => [name, label]), ["wall", "Wall clock time of the iteration"], outside && ["outside", "Not chosen"]]
    .filter(Boolean).map(([name, label]) => el("li", {}, el("span", { class: `swatch it-${name}`, "aria-hidden": "true" }), label)));

// ---------------------------------------------------------------- the key op

const pickKeyOp = (state, chosen) => {
  const rows = state.model.data.keyOps();
  let picked = rows.findIndex(one => one.name === state.keyOp);
  const ok = el("button", { type: "button", class: "main", disabled: picked < 0 }, "OK");
  const cancel = el("button", { type: "button" }, "Cancel");
  const place = el("div", {});
  const dialog = el("dialog", { class: "picker", "aria-labelledby": "picker-title" },
    el("h2", { id: "picker-title" }, "Select a key op"),
    el("p", {}, "An iteration begins with each call of it. Choose an op that is called once in an iteration."),
    place, el("div", { class: "tools" }, ok, cancel));
  const close = () => { dialog.close(); dialog.remove(); };
  ok.addEventListener("click", () => { close(); chosen(rows[picked].name); });
  cancel.addEventListener("click", close);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  page.table(place, {
    name: "key-op", title: "Ops", count: rows.length, order: ["calls", "asc"],
    columns: [
      { key: "name", title: "Op name", get: row => rows[row].name },
      { key: "type", title: "Op type", get: row => rows[row].type },
      { key: "calls", title: "Calls", kind: "number", get: row => rows[row].calls },
      { key: "eligible", title: "Could use Tensor Cores", kind: "bool", get: row => rows[row].eligible },
      { key: "tc", title: "Uses Tensor Cores", kind: "bool", get: row => rows[row].using_tensor_cores },
      { key: "kernels", title: "Kernel calls", kind: "number", get: row => rows[row].kernel_calls },
    ],
    pick: { head: "Choose", label: row => `Choose ${rows[row].name}`, picked, on: row => { picked = row; ok.disabled = false; } },
  });
};

// ---------------------------------------------------------------- the view

page.views.iterations = {
  title: "Iterations",
  place: 50,
  render(container, state) {
    const { tables } = state, lines = tables.iterations, last = lines.length - 1;
    const [start, stop] = state.range, zoomed = state.params.get("show") === SELECTED;
    const badge = (label, value) => el("span", { class: "badge" }, `${label} `, el("strong", {}, value));
    const badges = el("p", { class: "badges" });
    const show = (a, b) => badges.replaceChildren(badge("Total", lines.length), " ", badge("Profiled", b - a + 1), " ",
      badge("Start", a), " ", badge("Stop", b));
    show(start, stop);

    const toggle = (name, label) => el("button", {
      type: "button", class: "toggle", "aria-pressed": String((name === SELECTED) === zoomed),
      onclick: () => { page.keep({ show: name === SELECTED ? SELECTED : null }); again(`toggle-${name}`); }, id: `toggle-${name}`,
    }, label);
    // The view is made anew: the focus goes back to where it was.
    const again = id => { page.render(); document.getElementById(id)?.focus(); };
    const apply = (a, b, id) => { page.choose({ start: a, stop: b }); document.getElementById(id)?.focus(); };

    const number = (name, label, value) => {
      const low = () => (name === "start" ? 0 : Number(fields.start.value)), high = () => (name === "start" ? Number(fields.stop.value) : last);
      const field = el("input", { type: "number", id: `field-${name}`, value, min: 0, max: last, step: 1, inputmode: "numeric" });
      const set = next => {
        const to = limited(Math.round(next), low(), high());
        if (!Number.isFinite(to)) { field.value = value; return; }
        field.value = to;
        if (Number(fields.start.value) !== state.range[0] || Number(fields.stop.value) !== state.range[1])
          apply(Number(fields.start.value), Number(fields.stop.value), field.id);
      };
      field.addEventListener("change", () => set(field.value === "" ? NaN : Number(field.value)));
      field.addEventListener("wheel", event => { event.preventDefault(); set(Number(field.value) + (event.deltaY < 0 ? 1 : -1)); }, { passive: false });
      return [field, el("label", {}, el("span", {}, label), field)];
    };
    const fields = {}, labels = {};
    [fields.start, labels.start] = number("start", "First iteration", start);
    [fields.stop, labels.stop] = number("stop", "Last iteration", stop);

    const chart = el("div", {});
    container.append(
      el("p", { class: "lead" }, `Split by: ${tables.summary.split_by}. All views show the chosen iterations. `,
        "Bars are sums of GPU time: work at the same time on two streams counts twice, so a bar may pass the wall clock time."),
      badges,
      el("div", { class: "tools start", role: "group", "aria-label": "Iterations shown" }, toggle(ALL, "All iterations"), toggle(SELECTED, "Profiled iterations")),
      chart, page.iterationLegend(!zoomed && (start > 0 || stop < last)));
    if (!lines.length) { chart.append(el("p", {}, "This profile has no iterations.")); return; }
    const [from, to] = zoomed ? [start, stop] : [0, last];
    page.iterationChart(chart, {
      lines, range: [start, stop], from, to,
      moved: (a, b, done, id) => {
        fields.start.value = a;
        fields.stop.value = b;
        show(a, b);
        if (done && (a !== state.range[0] || b !== state.range[1])) apply(a, b, id);
      },
    });

    const { data } = state.model, keyOp = state.keyOp || "";
    const keyField = el("input", { type: "text", id: "field-key", readonly: true, value: keyOp || tables.summary.split_by, title: keyOp || tables.summary.split_by });
    const can = data && data.keyOps().length > 0;
    if (can) data.prepare();
    container.append(el("div", { class: "tools fields" }, labels.start, labels.stop,
      el("label", {}, el("span", {}, "Key op"), keyField),
      el("button", { type: "button", id: "pick-key", disabled: !can, onclick: () => pickKeyOp(state, name => { page.choose({ keyOp: name }); document.getElementById("pick-key")?.focus(); }) }, "Select key op…"),
      keyOp && el("button", { type: "button", onclick: () => page.choose({ keyOp: "" }) }, "As the profile was split"),
      el("button", { type: "button", onclick: () => page.choose({ start: 0, stop: last }) }, "All iterations chosen")));
    if (!can) container.append(el("p", { class: "soft" }, "Single ops and kernels are not in this page: another key op is chosen with `gpuprep trace report FILE --key-op NAME`."));
    for (const problem of tables.problems || []) container.append(el("p", { class: "problem", role: "status" }, problem));
  },
};
