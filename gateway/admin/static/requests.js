import { $, h, fill, num, ms, pct, clock, day, state, meter, empty, facts, Live, Table, api, param, setParams, keys, banner, say, known } from "./core.js";

const MAX_ROWS = 200; // a page may be open for a day
const BASE = "/admin/requests";
const form = $("#filters");
const NAMES = ["outcome", "cache", "tenant", "lane", "route", "deployment"];
let rows = [];
let last = 0;
let held = false;

const cacheWord = (r) => [r.cache.replace("_", " "), r.cache === "bypass" && r.cache_reason !== "policy" && ` (${r.cache_reason.replaceAll("_", " ")})`].filter(Boolean).join("");
const table = new Table("#list", {
  name: "Requests", key: (r) => r.id, open: (r) => show(r.id),
  none: empty("No request matches", "Finished requests appear here within two seconds. The last 2,000 of this process are kept, without prompts and answers."),
  columns: [
    { id: "at", label: "Came", value: (r) => r.at, show: (r) => h("a", { href: `${BASE}/${encodeURIComponent(r.id)}`, title: r.id, onclick: (e) => !e.ctrlKey && !e.metaKey && (e.preventDefault(), show(r.id)) }, clock(r.at)) },
    { id: "outcome", label: "Outcome", value: (r) => r.outcome, show: (r) => state(r.outcome) },
    { id: "status", label: "Status", num: true, value: (r) => r.status, show: (r) => r.status },
    { id: "tenant", label: "Tenant", value: (r) => r.tenant || "–" },
    { id: "model", label: "Model", value: (r) => r.model.length > 32 ? `${r.model.slice(0, 31)}…` : r.model || "–" },
    { id: "route", label: "Route", value: (r) => r.route || "–" },
    { id: "deployment", label: "Deployment", value: (r) => r.deployment || "–" },
    { id: "cache", label: "Cache", value: cacheWord },
    { id: "prompt_tokens", label: "In", num: true, value: (r) => r.prompt_tokens },
    { id: "completion_tokens", label: "Out", num: true, value: (r) => r.completion_tokens },
    { id: "ttft_ms", label: "TTFT", num: true, value: (r) => r.ttft_ms, show: (r) => ms(r.ttft_ms) },
    { id: "total_ms", label: "Total", num: true, value: (r) => r.total_ms, show: (r) => ms(r.total_ms) },
    { id: "id", label: "Id", value: (r) => r.id, show: (r) => h("span", { class: "mono muted" }, r.id.slice(4, 12)) },
  ],
});
const where = () => Object.fromEntries(NAMES.map((name) => [name, form.elements[name].value.trim()]).filter(([, value]) => value));

function suggest() {
  for (const name of ["tenant", "lane", "route", "deployment"]) {
    fill(`#${name}s`, [...new Set(rows.map((r) => r[name]))].filter(Boolean).slice(0, 50).map((value) => h("option", { value })));
  }
}
async function load() {
  try {
    const found = await api(`/admin/api/requests?${new URLSearchParams({ limit: 100, ...where() })}`);
    ({ last, requests: rows } = found);
    table.show(rows);
    suggest();
    banner("first", null);
  } catch (error) {
    banner("first", error.message, "bad");
  }
}
function take(found) {
  if (found.last < last) return load(); // another process answers at this address now
  last = found.last;
  if (!found.requests.length || held) return;
  const known_ = new Set(rows.map((r) => r.id));
  rows = [...found.requests.filter((r) => !known_.has(r.id)), ...rows].slice(0, MAX_ROWS);
  table.show(rows);
}

// ── One request ──────────────────────────────────────────────────────────────────────────────────────────────────
async function show(id, { push = true } = {}) {
  const at = `${BASE}/${encodeURIComponent(id)}${location.search}`;
  if (push && location.pathname + location.search !== at) history.pushState(null, "", at);
  table.selected = id;
  table.show(rows);
  let body;
  try {
    body = explained((await api(`/admin/api/requests/${encodeURIComponent(id)}`)).request);
  } catch (error) {
    body = [heading(id), empty("Not known here", error.message)];
  }
  const panel = $("#detail");
  fill(panel, body);
  panel.hidden = false;
  $("#split").classList.add("open");
  panel.focus({ preventScroll: true });
}
function hide({ push = true } = {}) {
  if ($("#detail").hidden) return;
  $("#detail").hidden = true;
  $("#split").classList.remove("open");
  const was = table.selected;
  table.selected = null;
  table.show(rows);
  if (push) history.pushState(null, "", `${BASE}${location.search}`);
  if (was) $(`tr[data-key="${CSS.escape(was)}"] a`)?.focus();
}
const copy = (text) => navigator.clipboard?.writeText(text).then(() => say("Copied.", "good"), () => say("The browser did not let the page copy."));
const heading = (id) => h("header", {}, h("h2", { class: "mono" }, id), h("span", { class: "tools" },
  h("button", { class: "plain", type: "button", onclick: () => copy(id) }, "Copy id"), h("button", { class: "plain", type: "button", onclick: () => hide() }, "Close")));

function stages(r) {
  let before = 0;
  const total = Math.max(r.total_ms, 0.001);
  return h("div", { class: "flow" }, r.stages.map((s) => {
    const left = before;
    before += s.ms;
    return [h("span", {}, s.stage.replaceAll("_", " ")), h("span", { class: "track" }, h("i", { left: `${Math.min(99, (left / total) * 100)}%`, width: `${Math.min(100, (s.ms / total) * 100)}%` })), h("span", { class: "num" }, ms(s.ms))];
  }));
}
function decision(d, i, all) {
  const scorers = [...new Set(Object.values(d.scores).flatMap(Object.keys))];
  const names = Object.keys(d.totals).sort((a, b) => d.totals[b] - d.totals[a]);
  return [h("h3", {}, all.length > 1 ? `Decision ${i + 1} of ${all.length}` : "Decision"),
    h("p", { class: "sub" }, `${d.policy}: ${d.reason}${d.deployment ? ` → ${d.deployment}` : ""}`),
    names.length > 0 && h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Scores" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Candidate"), h("th", { scope: "col", class: "num" }, "Total"), scorers.map((s) => h("th", { scope: "col", class: "num" }, s.replaceAll("_", " "))))),
      h("tbody", {}, names.map((name) => h("tr", { "aria-selected": name === d.deployment ? "true" : null }, h("th", { scope: "row" }, name), h("td", { class: "num" }, d.totals[name].toFixed(3)), scorers.map((s) => h("td", { class: "num" }, d.scores[name]?.[s]?.toFixed(3) ?? "–"))))))),
    Object.keys(d.dropped).length > 0 && h("p", { class: "sub" }, `Left out: ${Object.entries(d.dropped).map(([name, why]) => `${name} (${why.replaceAll("_", " ")})`).join(", ")}`)];
}
function neighbour(r) {
  const n = r.neighbour;
  if (!n) return r.cache_entry && [h("h3", {}, "Kept answer"), facts(["Entry", h("span", { class: "mono" }, r.cache_entry)])];
  return [h("h3", {}, "Nearest kept question"), facts(["Similarity", [meter(n.similarity, { warn: 2, bad: 2 }), n.similarity.toFixed(4)]], ["Runner-up", n.runner_up?.toFixed(4)],
    ["Chance it is right", n.chance_right != null && `${pct(n.chance_right, 2)}, at least ${pct(n.floor, 2)} is asked`], ["Decided", `${n.served ? "served" : "not served"}: ${n.why.replaceAll("_", " ")}`], ["Entry", h("a", { class: "mono", href: `/admin/cache?entry=${encodeURIComponent(n.entry_id)}` }, n.entry_id)])];
}
function explained(r) {
  const slowest = [...r.stages].sort((a, b) => b.ms - a.ms)[0];
  return [heading(r.id),
    facts(["Outcome", [state(r.outcome), ` ${r.status}`, r.code && ` ${r.code}`]], ["What happened", r.detail], ["Refused because", r.shed_reason?.replaceAll("_", " ")], ["Left while", r.cancelled_while],
      ["Came", day(r.at)], ["Total", `${ms(r.total_ms)}${slowest ? `, most of it ${slowest.stage.replaceAll("_", " ")}` : ""}`], ["First token", r.ttft_ms != null && ms(r.ttft_ms)], ["Per token", r.tpot_ms != null && ms(r.tpot_ms)]),
    h("h3", {}, "Stages"), stages(r),
    r.decisions.map(decision), neighbour(r),
    h("h3", {}, "Request"),
    facts(["Model asked for", r.model], ["Route", r.route], ["Deployment", r.deployment], ["Tenant", r.tenant], ["Lane", r.lane], ["Policy", h("span", { class: "mono" }, r.policy)], ["Cache", `${cacheWord(r)}, ${r.cache_reason.replaceAll("_", " ")}`],
      ["Degraded", r.degraded.join(", ")], ["Trimmed", Object.entries(r.trimmed).map(([s, n]) => `${s.replaceAll("_", " ")} ${num(n)} tokens`).join(", ")],
      ["Tokens", r.prompt_tokens != null && `${num(r.prompt_tokens)} in (${r.cached_tokens == null ? "cached: not said" : `${num(r.cached_tokens)} cached`}), ${num(r.completion_tokens)} out`],
      ["Bytes", `${num(r.bytes_in)} in, ${num(r.bytes_out)} out`], ["Attempts", r.attempts], ["Stream", r.stream ? "yes" : "no"], ["Client's retry", r.is_retry && "yes"], ["Client's id", r.client_request_id])];
}

// ── What the operator does ───────────────────────────────────────────────────────────────────────────────────────
const feed = () => new Live("requests", () => ({ after: last, ...where() }), take);
let stream;
for (const name of NAMES) form.elements[name].value = param(name);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const id = form.elements.id.value.trim();
  if (id) show(id);
});
const refilter = () => (setParams(where()), load().then(() => stream.open()));
form.addEventListener("change", (event) => event.target.name !== "id" && refilter());
form.addEventListener("reset", () => setTimeout(refilter));
$("#hold").addEventListener("click", (event) => {
  held = !held;
  event.target.setAttribute("aria-pressed", held);
  event.target.textContent = held ? "Go on" : "Hold";
  if (!held) load();
});
const step = (by) => {
  const shown = table.sorted();
  const next = shown[Math.min(shown.length - 1, Math.max(0, shown.findIndex((r) => r.id === table.selected) + by))];
  if (next) show(next.id);
};
keys.set("j", () => step(1)).set("k", () => step(-1)).set("Escape", () => hide());
const deep = () => {
  const id = decodeURIComponent(location.pathname.slice(BASE.length + 1));
  return id ? show(id, { push: false }) : hide({ push: false });
};
addEventListener("popstate", deep);
known.then(load).then(() => {
  stream = feed();
  deep();
});
