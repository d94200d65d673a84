// Sums of single events by two numbers, as (iteration, op): in typed arrays, and in passes over all rows whose number
// does not depend on how many groups there are. A million rows take some hundredths of a second.

const DENSE = 1 << 22; // places of a table with all pairs; of more pairs the rows are sorted

// The rows of `order` in the order of their key, a whole number in [0, limit); equal keys stay as they are.
const sortedBy = (order, key, limit) => {
  const place = new Int32Array(limit + 1), made = new Int32Array(order.length);
  for (let i = 0; i < order.length; i++) place[key[order[i]] + 1] += 1;
  for (let i = 0; i < limit; i++) place[i + 1] += place[i];
  for (let i = 0; i < order.length; i++) made[place[key[order[i]]]++] = order[i];
  return made;
};

// `of`: the group of each row; -1 for rows with a `major` below 0, which take no part. Groups are sorted by (major, minor).
page.Groups = class {
  constructor(major, minor, majors, minors) {
    const { length } = major;
    this.of = new Int32Array(length).fill(-1);
    if (majors * minors <= DENSE) this.count = this.byTable(major, minor, majors, minors);
    else this.count = this.bySorting(major, minor, majors, minors);
    this.major = this.major.subarray(0, this.count);
    this.minor = this.minor.subarray(0, this.count);
  }

  byTable(major, minor, majors, minors) {
    const { of } = this, { length } = major, table = new Int32Array(majors * minors).fill(-1), most = Math.min(length, table.length);
    for (let i = 0; i < length; i++) if (major[i] >= 0) table[major[i] * minors + minor[i]] = 0;
    this.major = new Int32Array(most);
    this.minor = new Int32Array(most);
    let count = 0;
    for (let key = 0; key < table.length; key++) {
      if (table[key] < 0) continue;
      this.major[count] = Math.floor(key / minors);
      this.minor[count] = key % minors;
      table[key] = count++;
    }
    for (let i = 0; i < length; i++) if (major[i] >= 0) of[i] = table[major[i] * minors + minor[i]];
    return count;
  }

  bySorting(major, minor, majors, minors) {
    const { of } = this, all = new Int32Array(major.length);
    let rows = 0, count = 0;
    for (let i = 0; i < all.length; i++) if (major[i] >= 0) all[rows++] = i;
    const order = sortedBy(sortedBy(all.subarray(0, rows), minor, minors), major, majors);
    this.major = new Int32Array(rows);
    this.minor = new Int32Array(rows);
    for (let i = 0; i < rows; i++) {
      const row = order[i];
      if (!count || this.major[count - 1] !== major[row] || this.minor[count - 1] !== minor[row]) {
        this.major[count] = major[row];
        this.minor[count++] = minor[row];
      }
      of[row] = count - 1;
    }
    return count;
  }

  sizes() {
    const { of } = this, made = new Float64Array(this.count);
    for (let i = 0; i < of.length; i++) if (of[i] >= 0) made[of[i]] += 1;
    return made;
  }

  sums(values) {
    const { of } = this, made = new Float64Array(this.count);
    for (let i = 0; i < of.length; i++) if (of[i] >= 0) made[of[i]] += values[i];
    return made;
  }

  // Sum, least and greatest of each group, in one pass.
  spreads(values) {
    const { of, count } = this, sum = new Float64Array(count), least = new Float64Array(count).fill(Infinity), most = new Float64Array(count);
    for (let i = 0; i < of.length; i++) {
      const at = of[i], value = values[i];
      if (at < 0) continue;
      sum[at] += value;
      if (value < least[at]) least[at] = value;
      if (value > most[at]) most[at] = value;
    }
    return { sum, least, most };
  }
};
