// A table with all controls, drawn by DataTables (vendor/): it asks `ajax` for the rows of a page, columns.js sorts and
// filters. So 100 000 rows cost no elements but those in sight, and a new range of iterations needs no second table.

const { el, plain } = page;
const LENGTHS = [10, 25, 50, 100];
const LONG = 100; // letters, then See more

// What a table looked like (order, filters, length), while its view stays open.
const kept = new Map();
let keptView = "";

// Texts of more than 100 letters are cut, with a button that shows the rest.
page.long = text => {
  const all = plain(text);
  if (all.length <= LONG) return document.createTextNode(all);
  const words = el("span", {}, `${all.slice(0, LONG)}… `);
  const button = el("button", {
    type: "button", class: "as-link", "aria-expanded": "false",
    onclick: event => {
      event.stopPropagation();
      const open = button.getAttribute("aria-expanded") !== "true";
      words.textContent = open ? `${all} ` : `${all.slice(0, LONG)}… `;
      words.classList.toggle("open", open);
      button.setAttribute("aria-expanded", String(open));
      button.textContent = open ? "See less" : "See more";
    },
  }, "See more");
  return el("span", { class: "long" }, words, button);
};

// Short texts stay on a line; names, shapes and stacks get room.
const classOf = column => (column.kind === "text" ? `text ${column.narrow ? "narrow" : "roomy"}` : column.kind);

// `alone`: the row above it in the table says nothing of it.
const cell = (column, row, alone) => {
  if (column.show) {
    const shown = column.show(column.get(row), row, alone);
    return shown instanceof Node ? shown : document.createTextNode(plain(shown));
  }
  if (column.kind === "bool") return page.yes(column.get(row));
  if (column.kind === "told") {
    const told = column.get(row);
    return told === "unknown" ? el("span", { class: "unknown" }, "?", el("span", { class: "unseen" }, "unknown"))
      : page.yes(told === "yes");
  }
  return column.kind === "number" ? document.createTextNode(column.text(row)) : page.long(column.text(row));
};

// options: {name, title, lead, columns, count, order: [key, "desc"], length, only: Set, tree(row), pick: {label(row), picked, on(row)}}
// `name` is that of the exports; `tree` gives the path of a row, and the table is a tree. Returns {pick(row)}.
page.table = (container, options) => {
  if (keptView !== page.state.view) { kept.clear(); keptView = page.state.view; }
  const count = options.count, pick = options.pick;
  const columns = options.columns.filter(Boolean).map(one => new page.Column(one, count));
  const now = kept.get(options.name) || { filters: columns.map(() => ""), search: "", length: options.length || 10, order: null };
  if (now.filters.length !== columns.length) now.filters = columns.map(() => "");
  kept.set(options.name, now);
  const shift = pick ? 1 : 0; // the column with the button that picks a row

  const id = `table-${options.name}`;
  const table = el("table", { id, class: "data" },
    el("caption", { class: "unseen" }, options.title),
    el("thead", {}, el("tr", {},
      pick && el("th", { class: "pick" }, el("span", { class: "unseen" }, pick.head)),
      columns.map(one => el("th", { class: classOf(one), scope: "col", title: one.meaning, "aria-label": one.head ? one.label : null }, one.head || one.label)))));
  const place = el("section", { class: "card table", "aria-label": options.title },
    el("h2", {}, options.title), options.lead && el("p", { class: "lead" }, options.lead));
  container.append(place);

  let rows = new Uint32Array(0), picked = pick ? pick.picked : null;
  const selection = order => page.rowsOf(columns, count, { order, search: now.search, filters: now.filters, only: options.only, tree: options.tree });
  const start = now.order || (options.order ? [columns.findIndex(one => one.key === options.order[0]), options.order[1]] : null);

  const choose = (row, button) => {
    picked = row;
    for (const one of table.querySelectorAll("tbody button.pick")) {
      const mine = Number(one.dataset.row) === row;
      one.setAttribute("aria-pressed", String(mine));
      one.closest("tr").classList.toggle("picked", mine);
    }
    if (button) pick.on(row);
  };

  place.append(table);
  const api = new DataTable(table, {
    serverSide: true, // in the words of DataTables: somebody else sorts and filters; here it is columns.js
    processing: false,
    autoWidth: false,
    searchDelay: 120,
    order: start ? [[start[0] + shift, start[1]]] : [],
    orderMulti: false,
    search: { search: now.search },
    pageLength: now.length,
    lengthMenu: LENGTHS,
    layout: {
      topStart: "pageLength", topEnd: null, bottomStart: "info", bottomEnd: "paging",
    },
    language: {
      lengthMenu: "Show _MENU_ rows", info: "Showing _START_ to _END_ of _TOTAL_", infoEmpty: "Showing 0 to 0 of 0",
      infoFiltered: "(of _MAX_ rows)", emptyTable: "No rows", zeroRecords: "No row matches the filters",
      paginate: { previous: "Previous", next: "Next", first: "First", last: "Last" },
    },
    columns: [
      ...(pick ? [{ orderable: false, className: "pick" }] : []),
      ...columns.map(one => ({
        className: classOf(one), type: "string", orderSequence: one.kind === "text" ? ["asc", "desc"] : ["desc", "asc"],
      })),
    ].map((one, at) => ({
      ...one, data: null, defaultContent: "",
      render: (_, type, row) => {
        if (type !== "display") return "";
        if (pick && at === 0) {
          return el("button", {
            type: "button", class: "pick", "data-row": row.row, "aria-pressed": String(row.row === picked),
            "aria-label": plain(pick.label(row.row)).slice(0, 160),
          }, "▸");
        }
        return cell(columns[at - shift], row.row, row.alone);
      },
    })),
    createdRow: (line, row) => {
      if (!pick) return;
      line.classList.toggle("picked", row.row === picked);
      line.addEventListener("click", event => {
        if (event.target.closest("button:not(.pick), a") || String(getSelection())) return;
        choose(row.row, line.querySelector("button.pick"));
      });
    },
    ajax: (asked, answer) => {
      const by = asked.order[0];
      now.order = by ? [by.column - shift, by.dir] : null;
      now.length = asked.length;
      rows = selection(now.order);
      const some = Boolean(now.search.trim() || now.filters.some(one => one.trim()) || options.only);
      const part = Array.from(rows.subarray(asked.start, asked.start + asked.length), (row, place) => ({ row, alone: some || !place }));
      answer({ draw: asked.draw, recordsTotal: options.only ? options.only.size : count, recordsFiltered: rows.length, data: part });
    },
  });

  // Filters stand in a second line of the head. DataTables does not know it.
  const wait = page.later(120, () => api.page(0).draw());
  const search = el("input", { type: "search", value: now.search, "aria-controls": id, "aria-label": `Search ${options.title}`,
    placeholder: "Search all columns", oninput: event => { now.search = event.target.value; wait(); } });
  const fields = columns.map((one, at) => el("input", {
    type: "search", value: now.filters[at], "aria-label": `Filter ${one.label}`,
    placeholder: one.kind === "bool" || one.kind === "told" ? "1 / 0" : one.kind === "number" ? "12, >10" : "filter",
    oninput: event => { now.filters[at] = event.target.value; wait(); },
  }));
  table.tHead.append(el("tr", { class: "filters" }, pick && el("td", {}), fields.map(field => el("td", {}, field))));
  if (options.groups) {
    table.tHead.prepend(el("tr", { class: "groups" }, pick && el("td", {}),
      options.groups.map(([title, span]) => (title ? el("th", { colspan: span, scope: "colgroup" }, title) : el("td", { colspan: span })))));
  }

  page.set(table.parentElement, { tabindex: "0", role: "region", "aria-label": `${options.title}, table` });
  table.parentElement.classList.add("table-box");
  for (const one of place.querySelectorAll(".dt-paging nav")) one.setAttribute("aria-label", `Pages of ${options.title}`);
  const tools = el("div", { class: "tools" }, el("label", { class: "search" }, el("span", { class: "unseen" }, "Search"), search),
    page.exports({ name: options.name, title: options.title, columns, rows: () => rows }));
  place.insertBefore(tools, place.querySelector(".dt-container"));
  return { pick: row => choose(row, null), api };
};

page.later = (milliseconds, work) => {
  let waiting = 0;
  return () => { clearTimeout(waiting); waiting = setTimeout(work, milliseconds); };
};
