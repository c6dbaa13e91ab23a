"use strict";
// The only script of the pages. Text from the server is set as text; HTML comes from the server's own pages alone.
const all = (what, where = document) => [...where.querySelectorAll(what)];
const byId = name => document.getElementById(name);

// Live pages: when the server says that something has changed, the page is asked for again and its parts are replaced.
const streamed = document.body.dataset.events;
const say = text => { const place = byId("stream"); if (place && place.textContent !== text) place.textContent = text; };
let refreshing = false, again = false;

async function refresh() {
  if (refreshing) { again = true; return; }
  refreshing = true;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of all("[data-live]")) {
      const other = fresh.getElementById(part.id);
      if (!other || other.innerHTML === part.innerHTML) continue;
      const open = all("details[id]", part).filter(details => details.open).map(details => details.id);
      part.replaceChildren(...other.childNodes);
      for (const id of open) { const details = byId(id); if (details) details.open = true; }
    }
    document.dispatchEvent(new Event("refreshed"));
  } finally {
    refreshing = false;
    if (again) { again = false; refresh(); }
  }
}

if (streamed) {
  const stream = new EventSource(streamed);
  stream.addEventListener("there", () => say("live"));
  stream.addEventListener("changed", () => { say("live"); refresh(); });
  stream.addEventListener("open", () => say("live"));
  stream.addEventListener("error", () => say("no connection to the server; tried again"));
}

// The list of sessions: search, filter, sort; effect and money come in portions, the rows in order.
const table = byId("sessions");
if (table) {
  const body = table.tBodies[0], search = byId("search"), state = byId("state");
  let sorted = null;
  const filterRows = () => {
    const text = search.value.toLowerCase();
    let count = 0;
    for (const row of body.rows) {
      const fits = (!state.value || row.dataset.state === state.value) && row.textContent.toLowerCase().includes(text);
      row.hidden = !fits;
      count += fits;
    }
    const waiting = [...body.rows].filter(row => row.dataset.state === "waiting").length;
    byId("count").textContent = `${count} of ${body.rows.length}${waiting ? `, ${waiting} waiting for a person` : ""}`;
  };
  const key = (row, column) => {
    const cell = row.cells[column], value = cell.dataset.value ?? cell.textContent.trim();
    return value === "" || Number.isNaN(Number(value)) ? value : Number(value);
  };
  const order = () => {
    if (!sorted) return;
    const { column, up } = sorted;
    const rows = [...body.rows].map(row => [key(row, column), row]);
    rows.sort(([a], [b]) => {
      if (a === "" || b === "") return (a === "") - (b === "");
      return (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1) * (up ? 1 : -1);
    });
    body.append(...rows.map(([, row]) => row));
  };
  all("th button", table).forEach(button => button.addEventListener("click", () => {
    const head = button.closest("th"), column = head.cellIndex;
    sorted = { column, up: sorted && sorted.column === column ? !sorted.up : true };
    all("th", table).forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sorted.up ? "ascending" : "descending");
    order();
  }));
  search.addEventListener("input", filterRows);
  state.addEventListener("change", filterRows);
  let later = 0;
  const fill = async () => {
    let unverified = false;
    for (let at = 0; at < body.rows.length; at += 25) {
      const rows = [...body.rows].filter(row => row.dataset.name).slice(at, at + 25);
      if (!rows.length) break;
      const query = new URLSearchParams(rows.map(row => ["name", row.dataset.name]));
      const answer = await fetch(`/sessions.json?${query}`);
      if (!answer.ok) return;
      const overviews = await answer.json();
      for (const row of rows) {
        const overview = overviews[row.dataset.name];
        if (!overview) continue;
        if ("damaged" in overview) delete row.dataset.unverified; else unverified = true;
        if (overview.damaged) {
          const [state, result] = [row.querySelector("[data-shown]"), row.querySelector("[data-name=result]")];
          if (row.dataset.state !== "damaged" && result.textContent) result.textContent = `says ${result.textContent}`;
          row.dataset.state = state.textContent = state.className = result.className = "damaged";
        }
        const busy = row.querySelector("[data-busy]");
        if (busy) busy.textContent = overview.busy ?? "";
        if (!overview.most) continue;
        const [effect, money] = [row.querySelector("[data-effect]"), row.querySelector("[data-money]")];
        if (overview.gain) { effect.textContent = `${overview.gain} [${overview.interval}]`; effect.dataset.value = overview.gain; }
        money.textContent = `${overview.spent}, ${overview.left} left`;
        money.dataset.value = overview.spent;
      }
    }
    order();
    filterRows();
    // A trail that has just grown is verified again some seconds later.
    clearTimeout(later);
    if (unverified) later = setTimeout(fill, 6000);
  };
  document.addEventListener("refreshed", () => { order(); filterRows(); fill(); });
  filterRows();
  fill();
}

// The samples: only rows in view are in the page; the server selects.
const list = byId("list");
if (list) {
  const room = list.querySelector(".room"), PAGE = 60;
  const filter = { show: "all", kind: "", text: "" };
  let total = 0, current = -1, version = 0, pages = new Map();
  const height = () => (matchMedia("(max-width: 40rem)").matches ? 168 : 88);
  const MOST_PIXELS = 8_000_000;
  // Browsers make no element of any height: a long list is scrolled in proportion.
  const scale = () => {
    const whole = total * height();
    return whole <= MOST_PIXELS ? 1 : (whole - list.clientHeight) / (MOST_PIXELS - list.clientHeight);
  };
  const top = () => Math.floor(list.scrollTop * scale() / height());
  const load = page => {
    if (pages.has(page)) return;
    const mine = version;
    pages.set(page, null);
    const query = new URLSearchParams({ ...filter, from: page * PAGE, count: PAGE });
    fetch(`${location.pathname}.json?${query}`).then(async answer => {
      const result = await answer.json();
      if (mine !== version) return;
      if (!answer.ok) { byId("matches").textContent = result.problem; return; }
      total = result.total;
      pages.set(page, result.rows);
      if (pages.size > 40) for (const old of [...pages.keys()].slice(0, 10)) if (old !== page) pages.delete(old);
      byId("matches").textContent = `${total} item${total === 1 ? "" : "s"}`;
      draw();
    });
  };
  const cell = (row, text, name, extra = "") => {
    const part = document.createElement("div");
    part.textContent = text;
    if (name) { part.dataset.name = name; part.className = "said"; }
    if (extra) part.className += ` ${extra}`;
    row.append(part);
    return part;
  };
  const rowOf = (sample, place) => {
    const row = document.createElement("div");
    row.className = "row";
    row.setAttribute("role", "option");
    row.id = `row-${place}`;
    row.setAttribute("aria-selected", place === current ? "true" : "false");
    if (place === current) row.classList.add("current");
    const head = cell(row, "");
    const line = (text, kind) => { const span = document.createElement("div"); span.textContent = text; span.className = kind; head.append(span); };
    line(`${sample.number} ${sample.kind}`, "quiet");
    line(sample.after_right === null ? "" : sample.change, sample.change);
    if (sample.truncated) line("truncated", "quiet");
    cell(row, sample.prompt, "prompt");
    cell(row, sample.before, "before", "").prepend(mark(sample.before_right));
    if (sample.after_right !== null) cell(row, sample.after, "after").prepend(mark(sample.after_right));
    row.addEventListener("click", () => { choose(place); open(sample.number); });
    return row;
  };
  const mark = right => {
    const span = document.createElement("span");
    span.className = right ? "right" : "wrong";
    span.textContent = right ? "right " : "wrong ";
    return span;
  };
  const draw = () => {
    room.style.height = `${Math.min(total * height(), MOST_PIXELS)}px`;
    const first = Math.max(0, top() - 5), last = Math.min(total, top() + Math.ceil(list.clientHeight / height()) + 6);
    const rows = [];
    for (let place = first; place < last; place++) {
      const page = Math.floor(place / PAGE), sample = pages.get(page)?.[place % PAGE];
      if (!sample) { load(page); continue; }
      const row = rowOf(sample, place);
      row.style.top = `${scale() === 1 ? place * height() : list.scrollTop + place * height() - list.scrollTop * scale()}px`;
      rows.push(row);
    }
    room.replaceChildren(...rows);
    if (current >= 0) list.setAttribute("aria-activedescendant", `row-${current}`);
  };
  const choose = place => {
    current = Math.max(0, Math.min(total - 1, place));
    const begin = current * height(), end = begin + height(), seen = list.scrollTop * scale();
    if (begin < seen) list.scrollTop = begin / scale();
    else if (end > seen + list.clientHeight) list.scrollTop = (end - list.clientHeight) / scale();
    draw();
  };
  const select = () => { version++; pages = new Map(); total = 0; current = -1; list.scrollTop = 0; byId("matches").textContent = "reading"; room.replaceChildren(); load(0); };
  const dialog = byId("sample");
  const open = async number => {
    const answer = await fetch(`${location.pathname.replace(/samples$/, "sample")}.json?number=${number}`);
    const sample = await answer.json();
    if (!answer.ok) return;
    for (const place of all("[data-field]", dialog)) {
      const value = sample[place.dataset.field];
      place.textContent = value === undefined || value === null ? "" : String(value);
    }
    for (const arm of ["before", "after"]) {
      const verdict = dialog.querySelector(`[data-verdict=${arm}]`), right = sample[`${arm}_right`];
      verdict.textContent = right === null ? "" : right ? "right" : "wrong";
      verdict.className = right === null ? "" : right ? "right" : "wrong";
      all(`[data-arm=${arm}]`, dialog).forEach(part => { part.hidden = right === null; });
    }
    byId("constraint").textContent = Object.entries(sample.constraint).map(([name, value]) => `${name}: ${value}`).join("\n");
    dialog.dataset.number = number;
    if (!dialog.open) dialog.showModal();
  };
  const step = by => { if (!total) return; choose(current + by); if (dialog.open) { const sample = pages.get(Math.floor(current / PAGE))?.[current % PAGE]; if (sample) open(sample.number); } };
  all("button[data-show]").forEach(button => button.addEventListener("click", () => {
    filter.show = button.dataset.show;
    all("button[data-show]").forEach(other => other.setAttribute("aria-pressed", String(other === button)));
    select();
  }));
  byId("kind").addEventListener("change", event => { filter.kind = event.target.value; select(); });
  let waiting = 0;
  byId("search").addEventListener("input", event => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { filter.text = event.target.value; select(); }, 200);
  });
  list.addEventListener("scroll", () => requestAnimationFrame(draw));
  window.addEventListener("resize", draw);
  document.addEventListener("keydown", event => {
    if (event.target.matches("input, select, textarea")) { if (event.key === "Escape") event.target.blur(); return; }
    const steps = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in steps && !event.ctrlKey && !event.metaKey) { event.preventDefault(); step(steps[event.key]); }
    else if (event.key === "Home") { event.preventDefault(); choose(0); }
    else if (event.key === "End") { event.preventDefault(); choose(total - 1); }
    else if (event.key === "Enter" && event.target === list && current >= 0) step(0) || open((pages.get(Math.floor(current / PAGE))?.[current % PAGE] || {}).number);
    else if (event.key === "/") { event.preventDefault(); byId("search").focus(); }
  });
  byId("close").addEventListener("click", () => dialog.close());
  select();
}

// A marked place is what the page was opened for.
const marked = document.querySelector("li.marked");
if (marked) marked.scrollIntoView({ block: "center" });
