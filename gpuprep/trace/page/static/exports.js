// What a table shows, filtered and in its order, to the clipboard, CSV, JSON, Excel and paper; with the profile's name.

const { el, plain } = page;
const FORMULA = /(^|[;\t\r\n])(?=[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])/g; // as gpuprep/reports/csv.py: no cell runs
const MOST_LETTERS = 32000; // a cell of a spreadsheet holds 32 767
const MOST_PAPER = 5000; // rows

const inert = value => (typeof value === "string" ? value.replace(FORMULA, "$1'") : value);
const written = value => (value === null ? "" : value === true ? "yes" : value === false ? "no" : value);
const quoted = value => {
  const text = String(inert(written(value)));
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

const csv = ({ columns, rows }) => {
  const lines = [["Profile", ...columns.map(one => one.label)].map(quoted).join(",")];
  for (const row of rows) lines.push([page.profileName(), ...columns.map(one => one.value(row))].map(quoted).join(","));
  return `${lines.join("\r\n")}\r\n`;
};

const json = ({ title, columns, rows }) => JSON.stringify({
  profile: page.profileName(), file: plain(page.state.document.file.name), table: title,
  iterations: { start: page.range()[0], stop: page.range()[1] },
  columns: columns.map(one => ({ key: one.key, title: one.title, unit: one.unit })),
  rows: Array.from(rows, row => Object.fromEntries(columns.map(one => [one.key, one.value(row)]))),
}, null, 1);

const tabs = ({ title, columns, rows }) => [
  `${page.profileName()}\t${title}`, columns.map(one => one.label).join("\t"),
  ...Array.from(rows, row => columns.map(one => String(inert(written(one.value(row)))).replace(/[\t\r\n]+/g, " ")).join("\t")),
].join("\n");

// The smallest workbook that spreadsheets open: texts are inline, so that none can be a formula.
const XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n', OFFICE = "http://schemas.openxmlformats.org";
const ESCAPES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const xml = text => String(text).slice(0, MOST_LETTERS).replace(/[&<>"]/g, letter => ESCAPES[letter])
  .replace(/[\ufffe\uffff]/g, "");
const xlsx = ({ title, columns, rows }) => {
  const cell = value => (typeof value === "number" ? `<c><v>${value}</v></c>`
    : value === null ? "<c/>" : `<c t="inlineStr"><is><t xml:space="preserve">${xml(written(value))}</t></is></c>`);
  const line = values => `<row>${values.map(cell).join("")}</row>`;
  const sheet = [line([page.profileName(), title]), line(columns.map(one => one.label))];
  for (const row of rows) sheet.push(line(columns.map(one => one.value(row))));
  const name = xml(title.replace(/[[\]:*?/\\']/g, " ").slice(0, 31));
  const relation = (id, type, target) => `<Relationship Id="${id}" Type="${OFFICE}/officeDocument/2006/relationships/${type}" Target="${target}"/>`;
  const relations = inner => `${XML}<Relationships xmlns="${OFFICE}/package/2006/relationships">${inner}</Relationships>`;
  const main = `xmlns="${OFFICE}/spreadsheetml/2006/main"`;
  const parts = {
    "[Content_Types].xml": `${XML}<Types xmlns="${OFFICE}/package/2006/content-types">` +
      '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>' +
      '<Default Extension="xml" ContentType="application/xml"/>' +
      '<Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>' +
      '<Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>',
    "_rels/.rels": relations(relation("r1", "officeDocument", "xl/workbook.xml")),
    "xl/workbook.xml": `${XML}<workbook ${main} xmlns:r="${OFFICE}/officeDocument/2006/relationships"><sheets><sheet name="${name}" sheetId="1" r:id="r1"/></sheets></workbook>`,
    "xl/_rels/workbook.xml.rels": relations(relation("r1", "worksheet", "worksheets/sheet1.xml")),
    "xl/worksheets/sheet1.xml": `${XML}<worksheet ${main}><sheetData>${sheet.join("")}</sheetData></worksheet>`,
  };
  return fflate.zipSync(Object.fromEntries(Object.entries(parts).map(([path, text]) => [path, fflate.strToU8(text)])));
};

page.save = (name, type, content) => {
  const link = el("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
};

const copied = async text => {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // http:// without TLS has no clipboard of its own
    const field = el("textarea", { class: "unseen" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
};

// The filtered rows on paper, or as PDF by the browser's own print: heads stand on every sheet.
const print = ({ title, columns, rows }) => {
  const shown = Array.from(rows.subarray(0, MOST_PAPER));
  const sheet = el("div", { id: "paper" },
    el("h1", {}, `${page.profileName()}: ${title}`),
    el("p", {}, `Iterations ${page.range()[0]} to ${page.range()[1]} of ${page.state.tables.summary.total_iterations}. ` +
      (shown.length < rows.length ? `The first ${shown.length} of ${rows.length} rows; CSV has all.` : `${rows.length} rows.`)),
    el("table", {}, el("thead", {}, el("tr", {}, columns.map(one => el("th", { class: one.kind }, one.label)))),
      el("tbody", {}, shown.map(row => el("tr", {}, columns.map(one => el("td", { class: one.kind }, one.text(row))))))));
  document.body.append(sheet);
  document.body.classList.add("on-paper");
  addEventListener("afterprint", () => { document.body.classList.remove("on-paper"); sheet.remove(); }, { once: true });
  window.print();
};

// A line of buttons. `table`: {name, title, columns, rows()}.
page.exports = table => {
  const said = el("span", { class: "soft small", role: "status" });
  const all = () => ({ ...table, rows: table.rows() });
  const file = ending => `${page.profileName().replace(/[^\w.-]+/g, "_").slice(0, 80)}-${table.name}.${ending}`;
  const button = (label, title, work) => el("button", { type: "button", title, onclick: () => work(all()) }, label);
  return el("div", { class: "exports", role: "group", "aria-label": `Export ${table.title}` },
    button("Copy", "The filtered rows to the clipboard", async one => {
      await copied(tabs(one));
      said.textContent = `${one.rows.length} rows copied`;
    }),
    button("CSV", "The filtered rows as CSV", one => page.save(file("csv"), "text/csv", csv(one))),
    button("JSON", "The filtered rows as JSON", one => page.save(file("json"), "application/json", json(one))),
    button("Excel", "The filtered rows as a workbook", one => page.save(file("xlsx"),
      "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", xlsx(one))),
    button("Print", "The filtered rows on paper, or as PDF", print),
    said);
};
