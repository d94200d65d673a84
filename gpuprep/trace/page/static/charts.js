// Charts as SVG: rings (the pies of the dashboard) and stacked bars, each with a legend whose entries hide and show.
//
// A part is {label, value, colour, shown}: `colour` is a class of page.css, the same for the same thing on all panels.

const { el, svg, figure } = page;
const R = 42, HOLE = 27; // of a ring, in a box of 100 × 100

const arc = (from, to) => {
  const point = (turn, radius) => {
    const angle = 2 * Math.PI * (turn - 0.25);
    return `${(50 + radius * Math.cos(angle)).toFixed(3)} ${(50 + radius * Math.sin(angle)).toFixed(3)}`;
  };
  const large = to - from > 0.5 ? 1 : 0;
  return `M${point(from, R)}A${R} ${R} 0 ${large} 1 ${point(to, R)}L${point(to, HOLE)}A${HOLE} ${HOLE} 0 ${large} 0 ${point(from, HOLE)}Z`;
};

// Buttons that hide and show a part; at least the figures stay readable.
page.legend = (parts, hidden, draw) => el("ul", { class: "legend" }, parts.map((part, place) => el("li", {},
  el("button", {
    type: "button", "aria-pressed": String(!hidden.has(place)),
    title: `Hide or show ${part.label}`,
    onclick: event => {
      if (hidden.has(place)) hidden.delete(place); else hidden.add(place);
      event.currentTarget.setAttribute("aria-pressed", String(!hidden.has(place)));
      draw();
    },
  }, el("span", { class: `key ${part.colour}` }), el("span", { class: "label" }, part.label)),
  el("b", {}, part.shown))));

// A ring. `middle(part, share)` is the text in its middle while a part is hovered or has the focus.
page.ring = (label, parts) => {
  const hidden = new Set(), box = el("div", { class: "ring" });
  const draw = () => {
    const seen = parts.map((part, place) => [part, place]).filter(([part, place]) => !hidden.has(place) && part.value > 0);
    const total = seen.reduce((sum, [part]) => sum + part.value, 0);
    const middle = svg("text", { x: 50, y: 54, class: "middle", "aria-hidden": "true" });
    const slices = [];
    let from = 0;
    for (const [part] of seen) {
      const share = part.value / total, words = `${part.label}: ${part.shown}, ${figure(100 * share, 1)} %`;
      const shape = share > 0.99999 ? svg("circle", { cx: 50, cy: 50, r: (R + HOLE) / 2, class: `slice whole ${part.colour}` })
        : svg("path", { d: arc(from, from + share), class: `slice ${part.colour}` });
      shape.append(svg("title", {}, words));
      shape.addEventListener("pointerenter", () => { middle.textContent = `${figure(100 * share, 1)} %`; });
      shape.addEventListener("pointerleave", () => { middle.textContent = ""; });
      slices.push(shape);
      from += share;
    }
    const words = seen.map(([part]) => `${part.label} ${part.shown}`).join(", ") || "nothing";
    box.replaceChildren(svg("svg", { viewBox: "0 0 100 100", role: "img", "aria-label": `${label}: ${words}`, class: "chart" },
      slices.length ? slices : svg("circle", { cx: 50, cy: 50, r: (R + HOLE) / 2, class: "slice whole empty" }), middle));
  };
  draw();
  return el("div", { class: "ring-with-legend" }, box, page.legend(parts, hidden, draw));
};

// Bars side by side, each a stack of parts. bars: [{label, title, values: [..]}]; parts: [{label, colour, shown}].
page.bars = (label, bars, parts, { unit = "", onpick = null } = {}) => {
  const hidden = new Set(), box = el("div", { class: "bars-box" });
  const HEIGHT = 190, LEFT = 60, BOTTOM = 20;
  let width = 0; // that of its place, so that its letters are as large as all others
  const draw = () => {
    const heights = bars.map(bar => bar.values.reduce((sum, value, place) => sum + (hidden.has(place) ? 0 : value), 0));
    const most = Math.max(...heights, 1e-9), step = (width - LEFT) / Math.max(1, bars.length);
    const y = value => HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - 8);
    const shapes = [];
    bars.forEach((bar, at) => {
      let below = 0;
      const stack = svg("g", { class: bar.outside ? "outside" : null }, svg("title", {}, bar.title));
      bar.values.forEach((value, place) => {
        if (hidden.has(place) || value <= 0) return;
        stack.append(svg("rect", { x: (LEFT + at * step + step * 0.1).toFixed(2), width: Math.max(0.3, step * 0.8).toFixed(2),
          y: y(below + value).toFixed(2), height: Math.max(0.2, y(below) - y(below + value)).toFixed(2), class: parts[place].colour }));
        below += value;
      });
      if (onpick) stack.addEventListener("click", () => onpick(at));
      shapes.push(stack);
    });
    const letters = bars.reduce((longest, bar) => Math.max(longest, bar.label.length), 0);
    const every = Math.ceil(bars.length / Math.max(1, Math.min(12, Math.floor((width - LEFT) / Math.max(40, 7 * letters + 8)))));
    const axis = [0, 0.5, 1].map(share => svg("g", { class: "axis" },
      svg("line", { x1: LEFT, x2: width, y1: y(most * share), y2: y(most * share) }),
      svg("text", { x: LEFT - 5, y: y(most * share) + 3.5, "text-anchor": "end" }, `${figure(most * share, most < 10 ? 2 : most < 100 ? 1 : 0)}${unit}`)));
    const labels = bars.map((bar, at) => (at % every ? null : svg("text", { class: "axis-label", "text-anchor": "middle",
      x: LEFT + (at + 0.5) * step, y: HEIGHT - 5 }, bar.label)));
    box.replaceChildren(svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label, class: "chart wide" },
      axis, shapes, labels));
  };
  new ResizeObserver(() => {
    if (!box.clientWidth || box.clientWidth === width) return;
    width = box.clientWidth;
    draw();
  }).observe(box);
  return el("div", { class: "bars" }, box, page.legend(parts, hidden, draw));
};

// A figure with a meter below it: share is 0 to 1 and more; the bar ends at 1.
page.meter = (words, share, colour, title) => el("span", { class: "metered", title },
  el("span", {}, words), svg("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", class: "meter", "aria-hidden": "true" },
    svg("rect", { width: 100, height: 6, class: "track" }),
    svg("rect", { width: Math.max(0, Math.min(1, share || 0)) * 100, height: 6, class: colour })));
