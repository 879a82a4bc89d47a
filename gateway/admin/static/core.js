// What every page uses: elements, numbers, the API, the live feed, tables, shortcuts. Text reaches the page only as
// text nodes and attributes that take no script, so nothing that an upstream, a tenant or a prompt says can run.
export const $ = (selector, root = document) => root.querySelector(selector);

export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "width") element.style.width = value;
    else if (name === "left") element.style.left = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child != null && child !== false));
  return element;
}

export const fill = (target, ...children) => {
  const element = typeof target === "string" ? $(target) : target;
  element?.replaceChildren(...children.flat(9).filter((child) => child != null && child !== false));
};

const plain = (digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits });
const [whole, one, two] = [plain(0), plain(1), plain(2)];
export const num = (value) => (value == null ? "–" : whole.format(value));
export const short = (value) =>
  value == null ? "–" : value >= 1e9 ? `${two.format(value / 1e9)} G` : value >= 1e6 ? `${two.format(value / 1e6)} M`
    : value >= 1e4 ? `${one.format(value / 1e3)} k` : value >= 100 || Number.isInteger(value) ? num(value) : one.format(value);
export const ms = (value) =>
  value == null ? "–" : value >= 10_000 ? `${one.format(value / 1000)} s` : value >= 1000 ? `${two.format(value / 1000)} s`
    : value > 0 && value < 0.005 ? "<0.01 ms" : value >= 100 ? `${num(value)} ms` : value >= 10 ? `${one.format(value)} ms` : `${two.format(value)} ms`;
export const pct = (value, digits = 1) => (value == null ? "–" : `${plain(digits).format(value * 100)} %`);
export const bytes = (value) => (value >= 1 << 20 ? `${one.format(value / (1 << 20))} MiB` : value >= 1024 ? `${one.format(value / 1024)} KiB` : `${value} B`);
export const money = (value) => (value == null ? "–" : value === 0 ? "0" : value < 0.01 ? value.toPrecision(2) : two.format(value));
export const clock = (at) => (at == null ? "–" : new Date(at * 1000).toLocaleTimeString("en-GB"));
export const day = (at) => (at == null ? "–" : new Date(at * 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "medium" }));
export const ago = (at) => {
  const s = Date.now() / 1000 - at;
  return s < 90 ? `${Math.max(0, Math.round(s))} s ago` : s < 5400 ? `${Math.round(s / 60)} min ago` : s < 129600 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} d ago`;
};

// What a state or an outcome looks like everywhere; the word is always there, colour is never alone.
const TONES = {
  completed: "good", cached: "accent", shed: "warn", rejected: "warn", cancelled: "muted", upstream_failed: "bad", upstream_timeout: "bad", failed: "bad",
  ready: "good", draining: "warn", ejected: "bad", down: "bad", starting: "calm", hit_exact: "accent", hit_semantic: "calm",
  running: "calm", promoted: "good", rolled_back: "bad", active: "good", expiring: "warn", expired: "muted", revoked: "muted", right: "good", wrong: "bad",
};
export const state = (word) => h("span", { class: `dot ${TONES[word] ?? "muted"}` }, String(word).replaceAll("_", " "));
export const meter = (share, { warn = 0.8, bad = 0.95, wide = false } = {}) =>
  h("span", { class: `meter${wide ? " wide" : ""}${share >= bad ? " bad" : share >= warn ? " warn" : ""}`, "aria-hidden": "true" },
    h("i", { width: `${Math.min(100, Math.max(0, share * 100))}%` }));
export const empty = (title, text) => h("div", { class: "empty" }, h("b", {}, title), text);
export const facts = (...pairs) => h("dl", {}, pairs.filter((pair) => pair && pair[1] != null && pair[1] !== false && pair[1] !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

// ── API ──────────────────────────────────────────────────────────────────────────────────────────────────────────
export class ApiError extends Error {
  constructor(status, error) {
    super(error?.message ?? `The gateway answered ${status}.`);
    this.status = status;
    this.code = error?.code ?? "";
    this.error = error ?? {};
  }
}
export const session = { mode: "open", role: null, csrf_token: null, admin: null };
let token = null; // of this page only: never stored

export async function api(path, { method = "GET", body, headers = {}, text = false } = {}) {
  const own = { accept: "application/json", ...headers };
  if (body !== undefined) own["content-type"] = "application/json";
  if (token) own.authorization = `Bearer ${token}`;
  else if (method !== "GET" && session.csrf_token) own["x-csrf-token"] = session.csrf_token;
  let response;
  try {
    response = await fetch(path, { method, headers: own, body: body === undefined ? undefined : JSON.stringify(body), signal: AbortSignal.timeout(30_000) });
  } catch {
    throw new ApiError(0, { message: "The gateway cannot be reached. It is tried again by itself.", code: "unreachable" });
  }
  if (response.status === 401 && session.mode !== "open" && document.documentElement.dataset.page !== "login") location.assign(`/admin/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  if (!response.ok) throw new ApiError(response.status, (await response.json().catch(() => ({}))).error);
  return text ? response.text() : response.json();
}
export const absent = (error) => error instanceof ApiError && error.status === 404;

// A write: asks for the token where the page may only read, and says how it ended.
export async function act(path, options, done) {
  try {
    const answer = await api(path, { method: "POST", body: {}, ...options });
    if (done) say(done, "good");
    return answer;
  } catch (error) {
    if (error.status === 401 && session.mode === "open" && (await askToken())) return act(path, options, done);
    say(error.message, "bad");
    throw error;
  }
}
async function askToken() {
  const given = await ask("Changes need the admin token", "It is in the file admin.token in the gateway's runtime directory. It is kept by this page only, until you leave it.",
    [{ name: "token", label: "Token", type: "password" }], "Unlock");
  token = given?.token || token;
  return Boolean(given);
}

// ── Dialogs and messages ─────────────────────────────────────────────────────────────────────────────────────────
export function ask(title, text, fields, button, { danger = false } = {}) {
  return new Promise((resolve) => {
    const form = h("form", { method: "dialog" },
      fields.map((f) => h("label", { class: "field" }, f.label, f.options
        ? h("select", { name: f.name }, f.options.map((o) => h("option", { value: o }, o)))
        : h("input", { name: f.name, type: f.type ?? "text", value: f.value ?? "", required: f.required !== false, maxlength: 500, autocomplete: "off", ...f.more }))),
      h("menu", {}, h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), h("button", { class: danger ? "danger" : "main", value: "ok" }, button)));
    const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), text && h("p", { class: "sub" }, text), form);
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "ok" ? Object.fromEntries(new FormData(form)) : null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}
let saidTimer;
export function say(text, tone = "") {
  fill("#said", h("div", { class: `banner ${tone}` }, text));
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => fill("#said"), 8000);
}
const banners = new Map();
export function banner(id, text, tone = "warn") {
  if (banners.get(id) === text) return;
  if (text) banners.set(id, text); else banners.delete(id);
  const box = $("#banners");
  box.querySelector(`[data-id="${id}"]`)?.remove();
  if (text) box.append(h("div", { class: `banner ${tone}`, "data-id": id }, text));
}

// What every document says of the gateway itself.
export function frame(document_) {
  const { policy, store, replicas } = document_;
  banner("policy", policy && !policy.is_current && `The policy file is not in force; revision ${policy.revision} serves on. ${policy.error}`, "bad");
  banner("store", (replicas?.is_store_lost || store?.is_up === false) &&
    `The store (${store?.where}) cannot be used: these numbers are of this process alone, and limits are kept by estimate.`);
  banner("draining", document_.is_draining && "This process is going down: it finishes what it has and takes nothing new.");
  const n = replicas?.names.length ?? 1;
  fill("#scope", replicas?.is_alone ? "this process" : `${n} replica${n > 1 ? "s" : ""}`, h("br"), `policy ${policy?.revision ?? "–"}`);
}

// ── Live ─────────────────────────────────────────────────────────────────────────────────────────────────────────
// One stream a page; when it breaks it is opened again, later each time, and a page nobody looks at lets go of it.
export class Live {
  constructor(topic, params, onData) {
    Object.assign(this, { topic, params, onData, wait: 1000 });
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
      banner("live", null);
      this.onData(JSON.parse(event.data));
    });
    source.onerror = () => {
      this.close("reconnecting");
      banner("live", "The live feed broke off. What you see is as of then; it is tried again by itself.");
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
const live = (word, tone) => fill("#live", h("span", { class: `dot ${tone}` }, word));

// ── Tables ───────────────────────────────────────────────────────────────────────────────────────────────────────
// columns: [{id, label, value(row) (sorted and exported), show(row) (what is seen), num}]
export class Table {
  constructor(target, { columns, name, none, key = (row) => row.id, open, sort }) {
    this.box = typeof target === "string" ? $(target) : target;
    Object.assign(this, { columns, name, none, key, open, sort });
    this.rows = [];
    this.body = h("tbody");
    this.heads = columns.map((c) => h("th", { scope: "col", class: c.num && "num" }, c.value ? h("button", { type: "button", onclick: () => this.by(c.id) }, c.label) : h("span", { class: "sr" }, c.label)));
    const tools = this.box.closest(".card")?.querySelector(":scope > header");
    tools?.append(h("span", { class: "tools" }, ["csv", "json"].map((kind) =>
      h("button", { class: "plain", type: "button", "aria-label": `Export ${name} as ${kind.toUpperCase()}`, onclick: () => this.export(kind) }, kind.toUpperCase()))));
    this.table = h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": name }, h("table", {}, h("thead", {}, h("tr", {}, this.heads)), this.body));
  }
  by(id) {
    this.sort = { id, down: this.sort?.id === id ? !this.sort.down : Boolean(this.columns.find((c) => c.id === id).num) };
    this.show(this.rows);
  }
  sorted() {
    const column = this.sort && this.columns.find((c) => c.id === this.sort.id);
    if (!column) return this.rows;
    const way = this.sort.down ? -1 : 1;
    return [...this.rows].sort((a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      return x == null ? 1 : y == null ? -1 : (x < y ? -1 : x > y ? 1 : 0) * way;
    });
  }
  show(rows) {
    this.rows = rows;
    if (!rows.length) return fill(this.box, this.none);
    const selected = getSelection();
    if (!selected.isCollapsed && this.body.contains(selected.anchorNode)) return; // somebody is copying
    const focused = this.body.contains(document.activeElement) && document.activeElement.closest("tr")?.dataset.key;
    this.heads.forEach((head, i) => {
      const on = this.sort?.id === this.columns[i].id;
      if (on) head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
    });
    this.body.replaceChildren(...this.sorted().map((row) => h("tr", { class: this.open && "link", "data-key": this.key(row), "aria-selected": this.open && (this.key(row) === this.selected ? "true" : null),
      onclick: this.open && ((event) => event.target.closest("a,button") || this.open(row)) },
    this.columns.map((c) => h("td", { class: [c.num && "num", c.wrap && "wrap"].filter(Boolean).join(" ") || null }, c.show ? c.show(row) : c.num ? num(c.value(row)) : c.value(row) ?? "–")))));
    if (!this.table.isConnected) fill(this.box, this.table);
    if (focused) this.body.querySelector(`tr[data-key="${CSS.escape(focused)}"]`)?.querySelector("a,button")?.focus();
  }
  export(kind) {
    const [rows, columns] = [this.sorted(), this.columns.filter((c) => c.value)];
    const cell = (value) => {
      const text = value == null ? "" : String(value);
      const safe = /^[=+\-@\t\r]/.test(text) && typeof value !== "number" ? `'${text}` : text; // no formulas in spreadsheets
      return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
    };
    const text = kind === "json" ? JSON.stringify(rows, null, 1)
      : [columns.map((c) => c.id), ...rows.map((row) => columns.map((c) => c.value(row)))].map((line) => line.map(cell).join(",")).join("\r\n");
    save(`${this.name.toLowerCase().replaceAll(" ", "-")}.${kind}`, text, kind === "json" ? "application/json" : "text/csv");
  }
}
export function save(name, text, type = "text/plain") {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// ── Address, shortcuts, colours ──────────────────────────────────────────────────────────────────────────────────
export const param = (name) => new URLSearchParams(location.search).get(name) ?? "";
export function setParams(values) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) if (value) query.set(name, value); else query.delete(name);
  history.replaceState(null, "", `${location.pathname}${query.size ? `?${query}` : ""}`);
}
export const windowS = () => $("#window")?.value ?? "300";
export function onWindow(callback) {
  const choice = $("#window");
  choice.value = param("window") || "300";
  if (!choice.value) choice.value = "300";
  choice.addEventListener("change", () => {
    setParams({ window: choice.value === "300" ? "" : choice.value });
    callback();
  });
}
function nextTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("penstock-theme", root.dataset.theme);
  document.dispatchEvent(new Event("theme"));
}
export const keys = new Map([["?", () => $("#help").showModal()], ["t", nextTheme], ["/", () => $("[data-find]")?.focus()]]);
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
$("#theme")?.addEventListener("click", nextTheme);
$("#keys")?.addEventListener("click", () => $("#help").showModal());

// Who looks. A gateway without logins has no such endpoint: then everybody may do what the page offers.
export const known = api("/admin/api/session").then((found) => Object.assign(session, found), (error) => absent(error) || console.warn(error.message)).then(() => {
  if (session.admin) fill("#who", `${session.admin.name} (${session.role}) `, h("button", { class: "plain", onclick: () => act("/admin/api/logout").then(() => location.assign("/admin/login")) }, "Log out"));
});
export const may = (role) => session.mode === "open" || ["viewer", "editor", "admin"].indexOf(session.role) >= ["viewer", "editor", "admin"].indexOf(role);

// A page's first document; says so on the page when there is none.
export async function first(path, show) {
  try {
    show(await api(path));
  } catch (error) {
    banner("first", error.message, "bad");
    if (error.status === 0) setTimeout(() => first(path, show), 3000);
    return;
  }
  banner("first", null);
}
