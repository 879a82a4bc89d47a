import { $, h, fill, num, ms, pct, clock, day, words, state, level, empty, facts, sub, mono, plainButton, grid, frame, Live, Table, api, load, param, setParams, keys, copy, known, here, onClick, segment } from "./core.js";

const MAX_ROWS = 200; // a page may be open for a day
const BASE = "/admin/requests";
const form = $("#filters");
const NAMES = ["outcome", "status", "cache", "tenant", "lane", "route", "deployment"];
let rows = [];
let last = 0;
let held = false;

const cacheWord = (r) => words(r.cache) + (r.cache === "bypass" && r.cache_reason !== "policy" ? ` (${words(r.cache_reason)})` : "");
const muted = (title, text) => h("span.mono.muted", { title }, text);
const table = new Table("#list", {
  at: (at, r) => h("a", { href: `${BASE}/${segment(r.id)}`, title: r.id, onclick: (e) => e.ctrlKey || e.metaKey || (e.preventDefault(), show(r.id)) }, clock(at)), model: (name) => (name.length > 32 ? `${name.slice(0, 31)}…` : name || "–"),
  cache: (_, r) => cacheWord(r), id: (id) => muted(id, id.slice(4, 12)), replica: (name) => muted(name, name.split("-").slice(-2).join("-")),
}, { open: (r) => show(r.id) });
const where = () => Object.fromEntries(NAMES.map((name) => [name, form.elements[name].value.trim()]).filter(([, value]) => value));

function put(found, isAll) {
  if (!isAll && found.last < last) return reload(); // another process answers at this address now
  frame(found);
  last = found.last;
  if (!isAll && (!found.requests.length || held)) return;
  const fresh = new Set(found.requests.map((r) => r.id));
  rows = [...found.requests, ...(isAll ? [] : rows.filter((r) => !fresh.has(r.id)))].sort((a, b) => b.at - a.at).slice(0, MAX_ROWS);
  table.show(rows);
  if (isAll) for (const name of ["tenant", "lane", "route", "deployment"]) fill(`#${name}s`, [...new Set(rows.map((r) => r[name]))].filter(Boolean).slice(0, 50).map((value) => h("option", { value })));
}
const reload = () => load(async () => put(await api(`requests?${new URLSearchParams({ limit: 100, ...where() })}`), true));

// ── One request ──────────────────────────────────────────────────────────────────────────────────────────────────
async function show(id, { push = true } = {}) {
  const at = `${BASE}/${segment(id)}${location.search}`;
  if (push && here() !== at) history.pushState(null, "", at);
  table.selected = id;
  table.show(rows);
  const panel = $("#detail");
  try {
    fill(panel, explained((await api(`requests/${segment(id)}`)).request));
  } catch (error) {
    fill(panel, heading(id), empty("Request not found", error.message));
  }
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
const heading = (id) => h("header", h("h2.mono", id), h("span.tools", plainButton("Copy id", () => copy(id)), plainButton("Close", () => hide())));

// Stages may overlap, so that together they are longer than the request: a bar stays within its track.
function stages(r) {
  const whole = Math.max(r.total_ms, 0.001);
  let before = 0;
  return h("div.flow", r.stages.map((s) => {
    const left = Math.min(before, whole - Math.min(s.ms, whole)) / whole;
    before += s.ms;
    return [h("span", words(s.stage)), h("span.track", h("i", { left: `${left * 100}%`, width: `${Math.min(1 - left, s.ms / whole) * 100}%` })), h("span.num", ms(s.ms))];
  }));
}
const score = (value) => value?.toFixed(2) ?? "–";
function decision(d, i, all) {
  const scorers = [...new Set(Object.values(d.scores).flatMap(Object.keys))].filter((s) => s !== "quality");
  const names = Object.keys(d.totals).sort((a, b) => d.totals[b] - d.totals[a]);
  const [heads, cells] = Object.keys(d.qualities).length ? [["Predicted quality", "Threshold"], (name) => [h(`span.${d.qualities[name] < d.quality_threshold ? "warn" : "good"}`, pct(d.qualities[name])), pct(d.quality_threshold)]] : [[], () => []];
  return [h("h3", all.length > 1 ? `Decision ${i + 1} of ${all.length}` : "Decision"), sub(`${words(d.policy)}: ${d.reason}`),
    names.length > 0 && grid("Candidates", ["Candidate", ...heads, "Score", ...(scorers.length > 1 ? scorers.map(words) : [])], names.map((name) => [name === d.deployment ? h("b", `${name} (chosen)`) : name, ...cells(name), score(d.totals[name]), ...(scorers.length > 1 ? scorers.map((s) => score(d.scores[name]?.[s])) : [])])),
    Object.keys(d.dropped).length > 0 && sub("Left out: " + Object.entries(d.dropped).map(([name, why]) => `${name} (${words(why)})`).join(", "))];
}
function neighbour({ neighbour: n, cache_entry }) {
  if (!n) return cache_entry && [h("h3", "Cache entry"), facts(["Entry", mono(cache_entry)])];
  return [h("h3", "Nearest cached prompt"), facts(["Similarity", [level(n.similarity), n.similarity.toFixed(3)]], ["Runner-up", n.runner_up?.toFixed(3)], ["Match probability", n.match_probability != null && `${pct(n.match_probability)}, threshold ${pct(n.threshold)}`],
    ["Decided", `${n.served ? "served" : "not served"}: ${words(n.why)}`], ["Entry", h("a.mono", { href: `/admin/cache?entry=${segment(n.entry_id)}` }, n.entry_id)])];
}
function explained(r) {
  const [slowest] = [...r.stages].sort((a, b) => b.ms - a.ms);
  return [heading(r.id), h("p.why", r.why),
    facts(["Outcome", [state(r.outcome), ` ${r.status}`, r.code && ` ${r.code}`]], ["Detail", r.detail], ["Shed reason", r.shed_reason && words(r.shed_reason)], ["Client left during", r.cancelled_while],
      ["Arrived", day(r.at)], ["Total", ms(r.total_ms) + (slowest ? `, most of it ${words(slowest.stage)}` : "")], ["First token", r.ttft_ms != null ? ms(r.ttft_ms) : r.status === 200 && !r.stream && "not reported for plain responses of this deployment"], ["Per token", r.tpot_ms != null && ms(r.tpot_ms)]),
    h("h3", "Stages"), stages(r), r.decisions.map(decision), neighbour(r), h("h3", "Request"),
    facts(["Requested model", r.model], ["Route", r.route], ["Deployment", r.deployment], ["Tenant", r.tenant], ["Lane", r.lane], ["Policy", mono(r.policy)], ["Cache", `${cacheWord(r)}, ${words(r.cache_reason)}`],
      ["Degraded", r.degraded.join(", ")], ["Trimmed", Object.entries(r.trimmed).map(([s, n]) => `${words(s)} ${num(n)} tokens`).join(", ")],
      ["Tokens", r.prompt_tokens != null && num(r.prompt_tokens) + (r.cached_tokens == null ? " in (cached: unknown), " : ` in (${num(r.cached_tokens)} cached), `) + `${num(r.completion_tokens)} out`],
      ["Bytes", `${num(r.bytes_in)} in, ${num(r.bytes_out)} out`], ["Attempts", r.attempts], ["Stream", r.stream ? "yes" : "no"], ["Client's retry", r.is_retry && "yes"], ["Client's id", r.client_request_id], ["Served by", mono(r.replica)], ["Replay", r.status === 200 && mono(`penstock replay ${r.id} --bisect`)])];
}

// ── What the operator does ───────────────────────────────────────────────────────────────────────────────────────
let feed;
for (const name of NAMES) form.elements[name].value = param(name);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const id = form.elements.id.value.trim();
  if (id) show(id);
});
const refilter = () => (setParams(where()), reload().then(() => feed.open()));
form.addEventListener("change", (event) => event.target.name !== "id" && refilter());
form.addEventListener("reset", () => setTimeout(refilter));
onClick("#hold", ({ target }) => {
  held = !held;
  target.setAttribute("aria-pressed", held);
  target.textContent = held ? "Resume" : "Pause";
  if (!held) reload();
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
known.then(reload).then(() => {
  feed = new Live("requests", () => ({ after: last, ...where() }), put);
  deep();
});
