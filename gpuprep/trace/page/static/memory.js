// The view "Memory": what the allocator had given out and what it had reserved, over the time of the profile.

const { el, svg } = page;
const HEIGHT = 220, LEFT = 76, RIGHT = 14, TOP = 12, BOTTOM = 32, MOST_BORDERS = 400;

Object.defineProperties(page.Data.prototype, Object.getOwnPropertyDescriptors({
  // Of each device the events of its allocator, by time: {device, time, allocated, reserved, peak, peakReserved}.
  get memory() {
    if (!this.has.memory) return [];
    return this.once("memory", () => {
      const { device, time, allocated, reserved } = this.group("memory"), made = [];
      let from = 0;
      for (let i = 1; i <= device.length; i++) {
        if (i < device.length && device[i] === device[from]) continue;
        const one = { device: device[from], time: time.subarray(from, i), allocated: allocated.subarray(from, i), reserved: reserved.subarray(from, i) };
        // Profiles of before 2022 have no totals: what each event added is summed, from an unknown level on.
        one.relative = one.allocated.every(value => value < 0);
        if (one.relative) {
          let sum = 0, low = 0;
          one.allocated = this.group("memory").bytes.subarray(from, i).map(bytes => { sum += bytes; low = Math.min(low, sum); return sum; });
          one.allocated = one.allocated.map(value => value - low);
        }
        const most = values => values.reduce((best, value, at) => (value > values[best] ? at : best), 0);
        one.peak = most(one.allocated);
        one.peakReserved = most(one.reserved);
        made.push(one);
        from = i;
      }
      return made.sort((a, b) => (b.device >= 0) - (a.device >= 0) || a.device - b.device); // GPUs, then the CPU
    });
  },
}));

// A line of steps, of not more than a few points a pixel: of many in one pixel the lowest, the highest and the last.
const steps = (times, values, x, y) => {
  const points = [];
  let pixel = null, low = 0, high = 0;
  const flush = last => {
    const at = Math.max(pixel, LEFT);
    if (low < high) points.push([at, y(high)], [at, y(low)]);
    points.push([at, y(last)]);
  };
  for (let i = 0; i < times.length; i++) {
    const at = Math.round(x(times[i]) * 2) / 2;
    if (at === pixel) { low = Math.min(low, values[i]); high = Math.max(high, values[i]); continue; }
    if (pixel !== null) { flush(values[i - 1]); points.push([at, points[points.length - 1][1]]); }
    pixel = at;
    low = high = values[i];
  }
  if (pixel !== null) flush(values[times.length - 1]);
  return points;
};
const path = points => points.map(([a, b], i) => `${i ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");

const chart = (state, one, width) => {
  const { iterations } = state.tables.split, [start, stop] = state.range, count = one.time.length;
  const from = Math.min(one.time[0], iterations.count ? iterations.first[0] : one.time[0]);
  const to = Math.max(one.time[count - 1], iterations.count ? iterations.until[iterations.count - 1] : 0, from + 1);
  const hasReserved = one.reserved.some(value => value > 0);
  const most = Math.max(1, one.allocated[one.peak], one.reserved[one.peakReserved]), low = HEIGHT - BOTTOM;
  const x = ns => LEFT + ((ns - from) / (to - from)) * (width - LEFT - RIGHT), y = bytes => low - (Math.max(bytes, 0) / most) * (low - TOP);
  const allocated = steps(one.time, one.allocated, x, y);
  const unit = 2 ** (10 * Math.min(4, Math.floor(Math.log2(most) / 10)));
  const borders = [];
  for (let i = 0; i < iterations.count && iterations.count <= MOST_BORDERS; i++)
    borders.push(svg("line", { class: "memory-border", x1: x(iterations.start[i]), x2: x(iterations.start[i]), y1: TOP, y2: low }));
  const [size, timeUnit] = page.unitOf((to - from) / 1000);
  const device = one.device < 0 ? "CPU" : `GPU ${one.device}`;
  const peak = `${device}: peak ${page.bytes(one.allocated[one.peak])} allocated at ${page.time((one.time[one.peak] - from) / 1000)}`;
  return svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": peak },
    iterations.count ? svg("rect", { class: "memory-chosen", x: x(iterations.first[start]), y: TOP, height: low - TOP,
      width: Math.max(1, x(iterations.until[stop]) - x(iterations.first[start])) }) : null,
    page.ticks(0, most / unit, 4).map(value => [
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value * unit), y2: y(value * unit) }),
      svg("text", { x: LEFT - 6, y: y(value * unit) + 4, "text-anchor": "end" }, page.bytes(value * unit).replace(/\.0 /, " ")),
    ]),
    page.ticks(0, (to - from) / 1000 / size, Math.max(2, Math.floor(width / 130))).map(value =>
      svg("text", { x: x(from + value * size * 1000), y: low + 16, "text-anchor": "middle" }, `${Number(value.toPrecision(6))} ${timeUnit}`)),
    borders,
    svg("path", { class: "memory-allocated", d: `${path(allocated)}L${allocated[allocated.length - 1][0].toFixed(1)} ${low}L${allocated[0][0].toFixed(1)} ${low}Z` }),
    hasReserved ? svg("path", { class: "memory-reserved", d: path(steps(one.time, one.reserved, x, y)) }) : null,
    svg("circle", { class: "memory-peak", cx: x(one.time[one.peak]), cy: y(one.allocated[one.peak]), r: 4 }, svg("title", {}, peak)));
};

page.views.memory = {
  title: "Memory",
  place: 65,
  shown: state => state.data.has.memory || state.data.leftOut.some(sentence => sentence.includes("memory")),
  render(container, state) {
    const { data } = state, { iterations } = state.tables.split;
    if (!data.has.memory) {
      for (const sentence of data.leftOut) container.append(el("p", {}, `Not in this page: ${sentence}.`));
      return;
    }
    const iterationOf = time => {
      for (let i = iterations.count - 1; i >= 0; i--) if (iterations.start[i] <= time) return time <= Math.max(iterations.end[i], iterations.until[i]) ? `, in iteration ${i}` : "";
      return "";
    };
    container.append(el("p", { class: "lead" }, "What PyTorch's allocator had given out, and what it had reserved from the GPU, after each of its events. " +
      "Lines are the starts of iterations; the chosen ones are marked."));
    for (const one of data.memory) {
      const device = one.device < 0 ? "CPU" : `GPU ${one.device}`, told = data.devices.find(each => each.device === one.device);
      const at = i => `${page.time((one.time[i] - one.time[0]) / 1000)} after the first event${iterationOf(one.time[i])}`;
      const reserved = one.reserved[one.peakReserved], total = told && told.memory_bytes;
      const place = el("div", { class: "draw" }), facts = [
        [one.relative ? "Peak above the lowest level" : "Peak allocated", `${page.bytes(one.allocated[one.peak])}, ${at(one.peak)}`],
        ["Peak reserved", reserved > 0 ? `${page.bytes(reserved)}, ${at(one.peakReserved)}` : "not in the profile"],
        ["Memory of the GPU", one.device < 0 ? null : total && one.relative ? page.bytes(total) : total ? `${page.bytes(total)}; the peak is ${page.percent((100 * one.allocated[one.peak]) / total)} of it` : "not in the profile"],
        ["Events of the allocator", page.figure(one.time.length)],
      ].filter(([, value]) => value);
      container.append(el("section", { class: "card", "aria-label": `Memory of ${device}` }, el("h2", {}, `${device}${told && told.name ? ` ${told.name}` : ""}`), place,
        el("ul", { class: "swatches" }, el("li", {}, el("span", { class: "swatch memory-allocated" }), one.relative ? "Above the lowest level: this profile has no totals" : "Allocated"), reserved > 0 && el("li", {}, el("span", { class: "swatch memory-reserved" }), "Reserved")),
        el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))));
      place.append(chart(state, one, Math.max(260, place.clientWidth || 640)));
    }
  },
};
