// A column of a table: its values once read stay as arrays, so that 100 000 rows are sorted and filtered in tenths of a
// second. Kinds: text; number; bool, with the filters 1 and 0; told: "yes", "no" or "unknown", with 1, 0 and ?.

const { figure, plain } = page;

const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const FEW = 20000; // texts that a collator sorts fast enough
const COMPARES = /^(<=|>=|<|>|=)\s*(-?[\d.]+(?:e[+-]?\d+)?)$/i;

// 1 for each value that passes, else 0. A loop is three times as fast as Uint8Array.from with a function.
const flags = (values, passes) => {
  const found = new Uint8Array(values.length);
  for (let row = 0; row < values.length; row++) found[row] = passes(values[row]) ? 1 : 0;
  return found;
};

const numbered = count => {
  const rows = new Uint32Array(count);
  for (let row = 0; row < count; row++) rows[row] = row;
  return rows;
};

class Column {
  // {key, title, kind, unit, get(row), show(value, row), meaning, filter}; `show` gives a text or a node.
  constructor(options, count) {
    Object.assign(this, { kind: "text", unit: "", filter: true }, options);
    this.count = count;
    this.masks = new Map();
  }

  get label() { return this.unit ? `${this.title} (${this.unit})` : this.title; }

  // What an export has: numbers as numbers, texts without control characters.
  value(row) {
    const value = this.get(row);
    if (this.kind === "number") return Number.isFinite(value) ? value : null;
    if (this.kind === "bool") return Boolean(value);
    return plain(value ?? "");
  }

  text(row) {
    const value = this.get(row);
    if (this.kind === "bool") return value ? "yes" : "no";
    if (this.kind === "number") return Number.isFinite(value) ? figure(value, this.digits ?? 0) : "n/a";
    return plain(value ?? "");
  }

  // Texts by number: each different text once.
  get dictionary() {
    if (this.texts) return this;
    const codes = new Uint32Array(this.count), known = new Map(), texts = [];
    for (let row = 0; row < this.count; row++) {
      const text = this.text(row);
      let code = known.get(text);
      if (code === undefined) { code = texts.length; known.set(text, code); texts.push(text); }
      codes[row] = code;
    }
    this.codes = codes;
    this.texts = texts;
    this.small = texts.map(text => text.toLowerCase());
    return this;
  }

  get numbers() {
    if (!this.floats) {
      this.floats = new Float64Array(this.count);
      for (let row = 0; row < this.count; row++) this.floats[row] = this.get(row) ?? NaN;
    }
    return this.floats;
  }

  // The digits of each number as they are shown, without "," and ".": whole numbers become texts fastest.
  get digitsOf() {
    if (!this.written) {
      const places = this.digits ?? 0, factor = 10 ** places;
      const write = one => {
        const text = String(Math.round(one * factor));
        return text.length > places ? text : text.padStart(places + 1, "0");
      };
      this.written = new Array(this.count);
      for (let row = 0; row < this.count; row++) this.written[row] = Number.isFinite(this.numbers[row]) ? write(this.numbers[row]) : "";
    }
    return this.written;
  }

  // Rows in rising order; `missing` at the end are those without a value, which stay last in falling order, too.
  get sorted() {
    if (this.order) return this.order;
    const rows = numbered(this.count);
    let keys;
    if (this.kind === "number") keys = this.numbers;
    else {
      const { codes, texts } = this.dictionary;
      const places = Uint32Array.from(texts, (_, code) => code);
      const compare = texts.length <= FEW ? (a, b) => collator.compare(texts[a], texts[b])
        : (a, b) => (this.small[a] < this.small[b] ? -1 : this.small[a] > this.small[b] ? 1 : 0);
      places.sort(compare);
      const rank = new Float64Array(texts.length);
      places.forEach((code, place) => { rank[code] = texts[code] === "" ? NaN : place; });
      keys = new Float64Array(this.count);
      for (let row = 0; row < this.count; row++) keys[row] = rank[codes[row]];
    }
    const there = rows.filter(row => !Number.isNaN(keys[row])), missing = rows.filter(row => Number.isNaN(keys[row]));
    there.sort((a, b) => keys[a] - keys[b] || a - b);
    this.order = { there, missing };
    return this.order;
  }

  ordered(falling) {
    const { there, missing } = this.sorted, all = new Uint32Array(this.count);
    all.set(falling ? there.slice().reverse() : there);
    all.set(missing, there.length);
    return all;
  }

  // Which rows a filter of this column lets through: 1 or 0 a row. null: all.
  mask(wanted) {
    const words = wanted.trim().toLowerCase();
    if (!words) return null;
    if (!this.masks.has(words)) {
      if (this.masks.size > 20) this.masks.clear();
      this.masks.set(words, this.kind === "number" ? this.numberMask(words) : this.textMask(words));
    }
    return this.masks.get(words);
  }

  numberMask(words) {
    const compare = COMPARES.exec(words.replaceAll(",", ""));
    if (compare) {
      const limit = Number(compare[2]);
      const test = { "<": v => v < limit, ">": v => v > limit, "<=": v => v <= limit, ">=": v => v >= limit,
        "=": v => v === limit }[compare[1]];
      return flags(this.numbers, test);
    }
    const part = words.replaceAll(",", ""), digits = part.replace(".", ""), places = this.digits ?? 0;
    const whole = one => one.slice(0, one.length - places), rest = one => one.slice(one.length - places);
    const holds = !places ? one => one.includes(part) : digits === part ? one => whole(one).includes(part) || rest(one).includes(part)
      : one => `${whole(one)}.${rest(one)}`.includes(part);
    return flags(this.digitsOf, one => one.includes(digits) && holds(one));
  }

  textMask(words) {
    const { codes, small } = this.dictionary;
    const exact = { 1: "yes", 0: "no", "?": "unknown" }[words];
    const flag = this.kind !== "text" && exact !== undefined;
    const through = flags(small, one => (flag ? one === exact : one.includes(words)));
    return flags(codes, code => through[code]);
  }
}

// The same rows as a tree: each stands below the one that it is inside of, and rows inside of one row keep their order.
// `path(row)`: names from the outside in, with / between them.
const asTree = (rows, path) => {
  const places = new Map(), chains = [];
  rows.forEach((row, place) => places.set(path(row), place));
  for (const row of rows) {
    const chain = [], name = path(row);
    for (let end = name.indexOf("/"); end >= 0; end = name.indexOf("/", end + 1)) {
      const place = places.get(name.slice(0, end));
      if (place !== undefined) chain.push(place);
    }
    chains[row] = [...chain, places.get(name)];
  }
  return rows.slice().sort((a, b) => {
    const one = chains[a], other = chains[b], both = Math.min(one.length, other.length);
    for (let i = 0; i < both; i++) if (one[i] !== other[i]) return one[i] - other[i];
    return one.length - other.length;
  });
};

// Rows that the filters let through, in the order asked for. `only`: a set of rows, or null. `tree`: as asTree's path.
page.rowsOf = (columns, count, { order, search, filters, only, tree }) => {
  const through = new Uint8Array(count).fill(1);
  const take = mask => { if (mask) for (let row = 0; row < count; row++) through[row] &= mask[row]; };
  if (only) for (let row = 0; row < count; row++) if (!only.has(row)) through[row] = 0;
  columns.forEach((column, place) => take(filters[place] ? column.mask(filters[place]) : null));
  const words = (search || "").trim();
  if (words) {
    const any = new Uint8Array(count);
    for (const column of columns) {
      // "1" and "0" are for the boxes below the heads of columns with ✓ and ✗.
      if (column.kind === "bool" || (column.kind === "number" && !/^[\d.,-]+$/.test(words))) continue;
      const mask = column.kind === "number" ? column.numberMask(words.toLowerCase()) : column.mask(words);
      for (let row = 0; row < count; row++) any[row] |= mask[row];
    }
    take(any);
  }
  const [column, direction] = order || [];
  const sorted = column === undefined ? numbered(count)
    : columns[column].ordered(direction === "desc");
  const rows = tree ? asTree(sorted, tree) : sorted;
  return rows.filter(row => through[row]);
};

page.Column = Column;
