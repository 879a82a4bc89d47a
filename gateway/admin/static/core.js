// What every page uses: elements, numbers, the API, the live feed, tables, shortcuts. Text reaches the page only as
// text nodes and attributes that take no script, so no text of an upstream, a tenant or a prompt can run.
export const $ = (selector, root = document) => root.querySelector(selector);

const shown = (children) => children.flat(9).filter((child) => child != null && child !== false);

// h("p.sub", {id: "x"}, "text", child): an element; the properties may be left out.
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (props?.constructor !== Object) [children, props] = [[props, ...children], {}];
  element.classList.add(...classes);
  for (const [key, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "width" || key === "left") element.style[key] = value;
    else if (key === "class") element.classList.add(...value.split(" ").filter(Boolean));
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...shown(children));
  return element;
}
export const segment = encodeURIComponent;
export const onClick = (selector, action) => $(selector).addEventListener("click", action);
export const button = (label, onclick, props) => h("button", { type: "button", onclick, ...props }, label);
export const plainButton = (label, onclick, props) => button(label, onclick, { class: "plain", ...props });
export const sub = (...text) => h("p.sub", null, ...text);
export const mono = (text) => h("span.mono", text);

export const fill = (target, ...children) => {
  const element = typeof target === "string" ? $(target) : target;
  element?.replaceChildren(...shown(children));
};

// Makes `box` hold these elements in this order. One with the data-key of a child takes that child's place by turning
// the child into it, so what is focused, open, marked or being pressed stays the same element. Buttons and links that
// differ are replaced, since what they do may differ too.
export function update(box, elements) {
  const known = new Map([...box.children].map((child) => [child.dataset.key, child]));
  const wanted = elements.map((fresh) => {
    const child = known.get(fresh.dataset.key);
    known.delete(fresh.dataset.key);
    return child ? morph(child, fresh) : fresh;
  });
  const stays = new Set(wanted);
  for (const child of [...box.childNodes]) if (!stays.has(child)) child.remove();
  let next = box.firstChild;
  for (const one of wanted) if (one === next) next = next.nextSibling; else box.insertBefore(one, next);
}
function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return old;
  if (old.nodeName !== fresh.nodeName || !old.attributes || old.matches("a,button")) return fresh;
  for (const { name } of [...old.attributes]) if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) if (name === "style") old.style.cssText = value; else old.setAttribute(name, value);
  const before = [...old.childNodes];
  [...fresh.childNodes].forEach((child, i) => {
    const kept = before[i] && morph(before[i], child);
    if (!kept) return old.append(child);
    const isFocused = before[i] === document.activeElement;
    if (kept !== before[i]) before[i].replaceWith(kept);
    if (isFocused) kept.focus();
    before[i] = null;
  });
  for (const child of before) child?.remove();
  return old;
}

const plain = (digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits }).format;
const [whole, one, two] = [0, 1, 2].map(plain);
// A number and its unit never stand on two lines: the space between them does not break.
const known_ = (format) => (value, ...more) => (value == null ? "–" : format(value, ...more).replaceAll(" ", "\u00a0"));
export const num = known_(whole);
export const many = (n, one, more = `${one}s`) => `${num(n)} ${n === 1 ? one : more}`;
export const short = known_((value) =>
  value >= 1e9 ? `${two(value / 1e9)} G` : value >= 1e6 ? `${two(value / 1e6)} M` : value >= 1e4 ? `${one(value / 1e3)} k`
    : value >= 100 || Number.isInteger(value) ? whole(value) : one(value));
export const ms = known_((value) =>
  value >= 1e4 ? `${one(value / 1e3)} s` : value >= 1e3 ? `${two(value / 1e3)} s` : value > 0 && value < 0.005 ? "<0.01 ms"
    : `${(value >= 100 ? whole : value >= 10 ? one : two)(value)} ms`);
export const pct = known_((value, digits) => `${plain(Number.isInteger(digits) ? digits : 1)(value * 100)} %`);
export const exact = known_((value) => value.toFixed(3));
export const bytes = known_((value) => (value >= 1 << 20 ? `${one(value / (1 << 20))} MiB` : value >= 1024 ? `${one(value / 1024)} KiB` : `${value} B`));
export const money = known_((value) => (value === 0 ? "0" : Math.abs(value) < 0.01 ? value.toPrecision(2) : two(value)));
export const clock = known_((at) => new Date(at * 1000).toLocaleTimeString("en-GB"));
export const day = known_((at) => new Date(at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }));
export const span = (seconds) => {
  const s = Math.max(0, seconds);
  const [, size, unit] = [[90, 1, "s"], [5400, 60, "min"], [129600, 3600, "h"], [Infinity, 86400, "d"]].find(([below]) => s < below);
  return `${Math.round(s / size)}\u00a0${unit}`;
};
export const ago = (at) => `${span(Date.now() / 1000 - at)} ago`;
export const words = (text) => String(text).replaceAll("_", " ");
export const sum = (list, name) => list.reduce((total, row) => total + (name ? row[name] : row), 0);

// How a state or an outcome is drawn everywhere: always as a word, never as a colour alone.
const TONES = {
  good: "completed ready promoted active right", accent: "cached hit_exact", calm: "starting warming hit_semantic running",
  warn: "shed rejected draining leaving expiring", bad: "upstream_failed upstream_timeout failed ejected down rolled_back wrong",
};
const toneOf = (word) => Object.keys(TONES).find((tone) => TONES[tone].split(" ").includes(word)) ?? "muted";
export const state = (word) => dot(toneOf(word), words(word));
export const dot = (tone, text) => h(`span.dot.${tone}`, text);
export const meter = (share, { warn = 0.8, bad = 0.95 } = {}) =>
  h("span.meter", { class: share >= bad ? "bad" : share >= warn ? "warn" : "", "aria-hidden": "true" }, h("i", { width: `${Math.min(100, Math.max(0, share * 100))}%` }));
export const level = (share) => meter(share, { warn: 2, bad: 2 }); // much of it is nothing bad
export const empty = (title, text) => h("div.empty", h("b", title), text);
// The text that a card of the page has for when there is nothing to show.
export const none = (box) => $("[data-none]", $(box).closest(".card")).content.cloneNode(true);
export const facts = (...pairs) => h("dl", pairs.filter((pair) => !["", false, null, undefined].includes(pair[1])).map(([name, value]) => [h("dt", name), h("dd", value)]));
// Figures as [label, value, note, href]; the whole of one leads to `href`, where its detail is.
export const tiles = (...list) => update($("#tiles"), list.map(([label, value, note, href]) => h("div.tile", { "data-key": label }, h(href ? "a.sub" : "span.sub", { href }, label), h("b", value), h("span.sub", note))));

// ── API ──────────────────────────────────────────────────────────────────────────────────────────────────────────
export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? `The gateway answered ${status}.`);
    Object.assign(this, { status, error: error ?? {} });
  }
}
export const session = { mode: "open", role: null, csrf_token: null, admin: null, login: {} };

export const here = () => location.pathname + location.search;
const logIn = () => location.pathname === "/admin/login" || location.assign(`/admin/login?next=${segment(here())}`);

export async function api(path, { method, body, headers = {}, text = false } = {}) {
  method ??= body === undefined ? "GET" : "POST";
  const own = { accept: "application/json", ...headers };
  if (body !== undefined) own["content-type"] = "application/json";
  if (method !== "GET" && session.csrf_token) own["x-csrf-token"] = session.csrf_token;
  let response;
  try {
    response = await fetch(`/admin/api/${path}`, { method, headers: own, body: body && JSON.stringify(body), signal: AbortSignal.timeout(30_000) });
  } catch {
    throw new ApiError(0, { message: "The gateway cannot be reached. The page tries again by itself." });
  }
  if (response.status === 401 && session.mode !== "open") logIn();
  if (!response.ok) throw new ApiError(response.status, (await response.json().catch(() => ({}))).error);
  return text ? response.text() : response.json();
}

// A write: signs in by the admin token where the page may only read, and notifies of the outcome.
export async function act(path, options, done) {
  try {
    const answer = await api(path, { body: {}, ...options });
    if (done) notify(done, "good");
    return answer;
  } catch (error) {
    if (error.status === 401 && session.mode === "open" && (await signIn())) return act(path, options, done);
    notify(error.message, "bad");
    throw error;
  }
}
async function signIn(why) {
  const path = session.login.token_path;
  const given = await popup("token", "", [why && h("b.bad", why, h("br")), path ? ["It is in the file ", h("code", path), "."] : "It is in the file admin.token in the gateway's runtime directory."]);
  if (!given) return false;
  try {
    knowing(await api("login/token", { body: given }));
    return true;
  } catch (error) {
    return signIn(error.message);
  }
}
export const settle = (work) => work.catch(() => {}); // act() has notified of it already

// ── Dialogs and messages ─────────────────────────────────────────────────────────────────────────────────────────
// Shows a dialog of the page's templates and gives what was filled in, null when it was left. `subject` is in its title,
// `note` (a text or an element) below it, `values` are what its fields begin with; `prepare` may change it further.
export function popup(name, subject = "", note, values = {}, prepare) {
  const dialog = $(`#dialog-${name}`).content.firstElementChild.cloneNode(true);
  const form = $("form", dialog);
  $("[data-subject]", dialog)?.replaceWith(subject);
  ($("h2 + .sub", dialog) ?? $("h2", dialog)).after(note instanceof Node ? note : note ? sub(note) : "");
  for (const [key, value] of Object.entries(values)) form.elements[key].value = value;
  prepare?.(dialog);
  dialog.ariaLabel = $("h2", dialog).textContent;
  $("[type=button]", form).addEventListener("click", () => dialog.close(""));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => {
    resolve(dialog.returnValue === "ok" ? Object.fromEntries([...new FormData(form)].map(([k, v]) => [k, v.replace(/\s*\n\s*/g, " ")])) : null);
    dialog.remove();
  }));
}
let timer;
export function notify(text, tone = "") {
  fill("#message", h("div.banner", { class: tone }, text));
  clearTimeout(timer);
  timer = setTimeout(() => fill("#message"), 8000);
}
const banners = new Map();
export function banner(id, text, tone = "warn", more) {
  if (banners.get(id) === text) return;
  banners.set(id, text);
  $(`[data-id="${id}"]`, $("#banners"))?.remove();
  if (text) $("#banners").append(h("div.banner", { class: tone, "data-id": id }, text, more));
}

// Banners and scope: the part about the gateway itself, which every document has.
export function frame({ policy, store, replicas, is_draining, callers }) {
  banner("callers", callers?.is_required && !callers.num_usable && "No API key works, so every request is refused with 401. ", "bad", h("a", { href: "/admin/tenants" }, "Make a key"));
  if (policy) banner("policy", !policy.is_current && `The newest policy is invalid; revision ${policy.revision} stays in force. ${policy.error}`, "bad");
  banner("store", (replicas.is_store_lost || store?.is_up === false) &&
    `The store (${store?.where ?? "shared"}) cannot be used: these numbers cover this process alone, and limits are estimates.`);
  banner("lost", replicas.lost.length > 0 && replicas.lost.map((one) => `Replica ${one.name} has been silent for ${num(one.silent_s)} s; `).join("") + "its recent requests are not in these numbers.", "bad");
  banner("draining", is_draining && "This process is draining: it finishes its requests and admits no new ones.");
  const n = replicas.names.length;
  fill("#scope", replicas.is_alone ? "this process" : many(n, "replica"), policy && [h("br"), `policy ${policy.revision}`]);
}

// ── Live ─────────────────────────────────────────────────────────────────────────────────────────────────────────
// One stream a page; when it breaks it is opened again, later each time, and a hidden page closes it.
export class Live {
  constructor(topic, params, onData, instead) {
    Object.assign(this, { topic, params, onData, instead, wait: 1000 });
    document.addEventListener("visibilitychange", () => (document.hidden ? this.close("paused") : this.open()));
    this.open();
  }
  open() {
    this.close();
    if (document.hidden) return;
    const source = (this.source = new EventSource(`/admin/api/live?${new URLSearchParams({ topic: this.topic, ...this.params() })}`));
    source.addEventListener(this.topic, (event) => {
      this.wait = 1000;
      live("live", "good");
      for (const id of ["live", "first"]) banner(id);
      this.onData(JSON.parse(event.data));
    });
    source.addEventListener("over", () => this.open()); // the new connection checks the session anew
    source.onerror = () => {
      this.close("reconnecting");
      banner("live", "The live feed broke off, so these numbers are old. The page reconnects by itself.");
      settle(api("session").then(knowing)); // a session that ended meanwhile leads to the login page
      this.instead?.();
      this.timer = setTimeout(() => this.open(), this.wait * (0.75 + Math.random() / 2));
      this.wait = Math.min(this.wait * 2, 30_000);
    };
  }
  close(word) {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
    if (word) live(word, "warn");
  }
}
const live = (word, tone) => fill("#live", dot(tone, word));

// A page of one document over a chosen time window; the returned function loads it anew.
export function livePage(topic, show) {
  const choice = $("#window");
  const reload = () => load(async () => show(await api(`${topic}?window=${choice.value}`)));
  choice.value = param("window");
  if (!choice.value) choice.value = "300";
  choice.addEventListener("change", () => {
    setParams({ window: choice.value === "300" ? "" : choice.value });
    feed.open();
  });
  const feed = new Live(topic, () => ({ window: choice.value }), show, reload);
  return reload;
}
// Load a page's document; show an error where there is none, and try again where the gateway did not answer.
export async function load(work) {
  try {
    await work();
    banner("first", null);
  } catch (error) {
    banner("first", error.message, "bad");
    if (error.status === 0) setTimeout(() => load(work), 3000);
  }
}

// ── Tables ───────────────────────────────────────────────────────────────────────────────────────────────────────
// What a column's format in the template stands for.
const FORMATS = {
  num, short, ms, pct, money, exact, ago, day, words, state, mono, pct0: (value) => pct(value, 0), pct2: (value) => pct(value, 2), yes: (value) => (value ? "yes" : "no"), dash: (value) => value || "–",
  deployment: (id) => h("a", { href: `/admin/deployments#${segment(id)}` }, id),
};
export const read = (row, path) => path.split(".").reduce((value, key) => value?.[key], row);

// A small table that is only read: the first cell of a row is its heading, from column `from` on there are numbers.
export const grid = (name, heads, rows, from = 1) => h("div.scroll", { tabindex: 0, role: "group", "aria-label": name }, h("table", h("thead", h("tr", heads.map((head, i) => h("th", { scope: "col", class: i >= from ? "num" : "" }, head)))),
  h("tbody", rows.map((cells) => h("tr", cells.map((cell, i) => (i ? h("td", { class: i >= from ? "num" : "" }, cell) : h("th", { scope: "row" }, cell))))))));

// The table whose head is in the template of its card. `cells`: by path, what is more than a format: (value, row) → content.
export class Table {
  constructor(target, cells = {}, { key = (row) => row.id, open } = {}) {
    this.box = $(target);
    const card = this.box.closest(".card");
    this.table = $("[data-table]", card).content.firstElementChild.cloneNode(true);
    Object.assign(this, { target, key, open, body: $("tbody", this.table), name: this.table.ariaLabel, rows: [] });
    this.columns = [...this.table.querySelectorAll("th")].map((head) => {
      const { path, as } = head.dataset;
      $("button", head)?.addEventListener("click", () => this.by(path));
      return { head, path, style: `${head.className} ${as === "wrap" ? as : ""}`, show: cells[path] ?? FORMATS[as] ?? ((value) => value ?? "–"), isData: as !== "action" };
    });
    const point = (isPointedAt) => () => ((this.isPointedAt = isPointedAt), isPointedAt || this.held.hidden || this.show(this.rows));
    this.body.addEventListener("pointerenter", point(true));
    this.body.addEventListener("pointerleave", point(false));
    this.held = h("span.sub", { hidden: true }, "New rows wait for the pointer to leave.");
    $("header", card).append(this.held, h("span.tools", ["csv", "json"].map((kind) => plainButton(kind.toUpperCase(), () => this.export(kind), { "aria-label": `Export ${this.name} as ${kind.toUpperCase()}` }))));
  }
  by(path) {
    this.sort = { path, way: this.sort?.path === path ? -this.sort.way : 1 };
    this.show(this.rows);
  }
  sorted() {
    if (!this.sort) return this.rows;
    const { path, way } = this.sort;
    return [...this.rows].sort((a, b) => {
      const [x, y] = [read(a, path), read(b, path)];
      return x == null ? 1 : y == null ? -1 : (x < y ? -1 : x > y ? 1 : 0) * way;
    });
  }
  row(row) {
    const key = String(this.key(row));
    const open = (event) => event.target.closest("a,button") || this.open(this.rows.find((one) => String(this.key(one)) === key));
    return h("tr", { class: this.open ? "link" : "", "data-key": key, "aria-selected": this.open && key === this.selected, onclick: this.open && open },
      this.columns.map((c) => h("td", { class: c.style }, c.show(read(row, c.path), row))));
  }
  // Rows come, go and change places only while no pointer is over them; values change at any time.
  show(rows) {
    this.rows = rows;
    if (!rows.length) return fill(this.box, none(this.target));
    const selected = getSelection();
    if (!selected.isCollapsed && this.body.contains(selected.anchorNode)) return; // somebody is copying
    for (const { head, path } of this.columns) head.ariaSort = this.sort?.path !== path ? null : this.sort.way < 0 ? "descending" : "ascending";
    let fresh = this.sorted().map((row) => this.row(row));
    const order = (list) => list.map((row) => row.dataset.key).join("\n");
    const isHeld = this.isPointedAt && this.table.isConnected && order(fresh) !== order([...this.body.children]);
    if (isHeld) {
      const known = new Map(fresh.map((row) => [row.dataset.key, row]));
      fresh = [...this.body.children].map((row) => known.get(row.dataset.key) ?? row);
    }
    this.held.hidden = !isHeld;
    update(this.body, fresh);
    if (!this.table.isConnected) fill(this.box, this.table);
  }
  export(kind) {
    const [rows, paths] = [this.sorted(), this.columns.filter((c) => c.isData).map((c) => c.path)];
    const cell = (value) => {
      const text = value == null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
      const safe = /^[=+\-@\t\r]/.test(text) && typeof value !== "number" ? `'${text}` : text; // no formulas in spreadsheets
      return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const lines = () => [paths, ...rows.map((row) => paths.map((path) => read(row, path)))];
    const [text, type] = kind === "json" ? [JSON.stringify(rows, null, 1), "application/json"] : [lines().map((line) => line.map(cell).join(",")).join("\r\n"), "text/csv"];
    save(`${this.name.toLowerCase().replaceAll(" ", "-")}.${kind}`, text, type);
  }
}
export const copy = (text) => navigator.clipboard?.writeText(text).then(() => notify("Copied.", "good"), () => notify("The browser refused to copy. Select the text and copy it."));
export function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// ── Address, shortcuts, colours ──────────────────────────────────────────────────────────────────────────────────
export const param = (name) => new URLSearchParams(location.search).get(name) ?? "";
export function setParams(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) if (value) query.set(name, value); else query.delete(name);
  history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : ""));
}
function nextTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.setItem("penstock-theme", (root.dataset.theme = dark ? "light" : "dark"));
  document.dispatchEvent(new Event("theme"));
}
const help = () => $("#help").showModal();
export const keys = new Map([["?", help], ["t", nextTheme], ["/", () => $("[data-find]")?.focus()]]);
let leader = -Infinity;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input,textarea,select,dialog")) return;
  if (event.key === "g") return void (leader = event.timeStamp);
  const page = event.timeStamp - leader < 1500 && $(`nav a[data-key="${CSS.escape(event.key)}"]`);
  leader = -Infinity;
  if (page) return page.click();
  const action = keys.get(event.key);
  if (action) {
    event.preventDefault();
    action(event);
  }
});
$("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // on a telephone they are a strip
onClick("#theme", nextTheme);
onClick("#keys", help);

// The session of this page.
function knowing(found) {
  const wasIn = session.mode === "session";
  Object.assign(session, found, { login: { ...found.login, token_path: found.login.token_path ?? session.login.token_path } });
  if (wasIn && session.mode === "none") logIn();
  // Where nobody has to sign in to read, changes ask for the admin token; viewers may only read.
  document.documentElement.dataset.may = session.mode === "open" || ["editor", "admin"].includes(session.role) ? "edit" : "read";
  if (session.admin) fill("#who", `${session.admin.name === "local" ? "admin token" : session.admin.name} (${session.role}) `, plainButton("Sign out", () => act("logout").then(() => location.assign("/admin/login"))));
  else if (session.mode === "open") fill("#who", h("a", { href: `/admin/login?next=${segment(here())}` }, "Sign in"));
}
export const known = api("session").then(knowing, (error) => console.warn(error.message));
