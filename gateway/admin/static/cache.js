import { $, h, fill, num, pct, ms, bytes, day, ago, state, meter, empty, facts, banner, Table, api, act, ask, known, param, setParams } from "./core.js";
import { Chart } from "./chart.js";

let books = [];
let chosen = param("book");
const chart = new Chart("#histogram", "Similarity of the nearest kept question, for answers that were served and for those that were not; the table beside it has the counts.", "");
const name = (b) => `${b.tenant} / ${b.route}`;
const routes = new Table("#books", { name: "Routes with similar answers", key: name, open: (b) => choose(name(b)),
  none: empty("No similar answers yet", "A route gives them once its policy says cache: {mode: exact_then_semantic, max_error_ratio: …} and somebody has asked."), columns: [
    { id: "route", label: "Route", value: (b) => b.route, show: (b) => h("button", { class: "plain", type: "button", onclick: () => choose(name(b)) }, b.route) },
    { id: "tenant", label: "Tenant", value: (b) => b.tenant },
    { id: "state", label: "State", value: (b) => b.state, show: (b) => String(b.state).replaceAll("_", " ") },
    { id: "requests", label: "Requests", num: true, value: (b) => b.requests },
    { id: "hit_ratio", label: "Similar hits", num: true, value: (b) => b.hit_ratio, show: (b) => pct(b.hit_ratio) },
    { id: "wrong", label: "Wrong, of requests", num: true, value: (b) => b.error.ratio, show: (b) => (b.error.audited ? h("span", { class: b.error.ratio > b.max_error_ratio ? "bad" : "good" }, pct(b.error.ratio, 2)) : "not known") },
    { id: "interval", label: "95 % interval", num: true, value: (b) => b.error.high, show: (b) => (b.error.audited ? `${pct(b.error.low, 2)} to ${pct(b.error.high, 2)}` : "–") },
    { id: "bound", label: "Bound", num: true, value: (b) => b.max_error_ratio, show: (b) => pct(b.max_error_ratio, 2) },
    { id: "audited", label: "Audits", num: true, value: (b) => b.error.audited },
    { id: "lookup_ms", label: "Lookup", num: true, value: (b) => b.lookup_ms, show: (b) => ms(b.lookup_ms) },
  ] });
const audits = new Table("#audits", { name: "Audits", none: empty("Nothing to review", "A share of the similar answers is compared with fresh ones; what the comparison found appears here, and people may overrule it."), columns: [
  { id: "at", label: "When", value: (a) => a.at, show: (a) => ago(a.at) },
  { id: "route", label: "Route", value: (a) => a.route },
  { id: "verdict", label: "Verdict", value: (a) => a.verdict, show: (a) => [state(a.verdict), h("span", { class: "sub" }, ` ${a.reviewed_by ?? a.by}`)] },
  { id: "was_served", label: "Served", value: (a) => (a.was_served ? "yes" : "no") },
  { id: "similarity", label: "Questions", num: true, value: (a) => a.similarity, show: (a) => a.similarity?.toFixed(3) ?? "–" },
  { id: "chance", label: "Chance right", num: true, value: (a) => a.chance, show: (a) => pct(a.chance) },
  { id: "answer_similarity", label: "Answers", num: true, value: (a) => a.answer_similarity, show: (a) => a.answer_similarity?.toFixed(3) ?? "–" },
  { id: "differences", label: "Differences", wrap: true, value: (a) => a.differences.join(", "), show: (a) => [a.differences.join(", ") || "none", a.texts && h("details", {}, h("summary", {}, "Texts"), facts(...Object.entries(a.texts).map(([k, v]) => [k.replaceAll("_", " "), String(v)])))] },
  { id: "id", label: "Request", value: (a) => a.id, show: (a) => h("a", { class: "mono", href: `/admin/requests/${encodeURIComponent(a.id)}` }, a.id.slice(4, 12)) },
  { id: "do", label: "Your verdict", show: (a) => ["right", "wrong"].map((v) => h("button", { class: "plain", type: "button", disabled: a.verdict === v, "aria-label": `${v}: audit ${a.id}`, onclick: () => review(a, v) }, v)) },
] });
const review = (a, verdict) => act(`/admin/api/cache/audits/${encodeURIComponent(a.id)}`, { body: { verdict } }, "Noted; the estimate follows it.").then(load, () => {});

// ── The bound: what evidence says of each ────────────────────────────────────────────────────────────────────────
function bound(b) {
  const steps = b.bounds ?? [];
  if (!b.bounds) return fill("#bound", empty("Not told", "This gateway says what was measured, but not what other bounds would give."));
  if (!steps.some((s) => s.audited)) return fill("#bound", empty("No evidence yet", "Once answers of this route were audited, this shows how many hits and how many wrong ones each bound would give."));
  const here = Math.max(0, steps.findIndex((s) => s.max_error_ratio >= b.max_error_ratio));
  const out = h("div", { "aria-live": "polite" });
  const show = (i) => {
    const s = steps[i];
    fill(out, facts(["At most wrong", pct(s.max_error_ratio, 2)], ["Served from a chance of", s.floor >= 1 ? "nothing is served" : pct(s.floor, 2)],
      ["Expected hits", [meter(s.hit_ratio, { warn: 2, bad: 2 }), `${pct(s.hit_ratio)} of requests`]], ["Expected wrong", s.audited ? `${pct(s.ratio, 2)} (${pct(s.low, 2)} to ${pct(s.high, 2)}), by ${num(s.audited)} audits` : "no audit at this bound"]),
    i === here ? h("p", { class: "sub" }, "This is the bound in force.") : h("p", {}, h("a", { href: `/admin/policy` }, "Change it in the policy"), `: routes.${b.route}.cache.max_error_ratio ${s.max_error_ratio}`));
  };
  fill("#bound", h("label", {}, "stricter", h("input", { type: "range", min: 0, max: steps.length - 1, value: here, "aria-label": "Error bound", oninput: (e) => show(Number(e.target.value)) }), "looser"), out);
  show(here);
}
function histogram(b) {
  const s = b?.similarities;
  if (!s || !s.served.concat(s.refused).some(Boolean)) {
    if (!$("#histogram").classList.contains("js-plotly-plot")) fill("#histogram", empty("No neighbours yet", "Each lookup that found a kept question is counted here by how near it was."));
    return;
  }
  const bar = (kind, tone) => ({ x: s.from, y: s[kind], name: kind === "served" ? "served" : "near misses", type: "bar", tone, offset: 0, width: 0.018, hovertemplate: "%{y}" });
  chart.draw([bar("served", "accent"), bar("refused", "warn")], { barmode: "stack", xaxis: { title: { text: "cosine similarity" }, range: [0.5, 1.005] } });
}
function choose(which) {
  chosen = which;
  setParams({ book: which });
  draw();
}
function draw() {
  const book = books.find((b) => name(b) === chosen) ?? books[0];
  routes.selected = book && name(book);
  routes.show(books);
  histogram(book);
  if (book) bound(book);
  else fill("#bound", empty("Nothing to weigh", "The slider appears once a route gives similar answers."));
  fill("#whose", book ? name(book) : "");
}
async function load() {
  try {
    const found = await api("/admin/api/cache");
    books = found.routes ?? [];
    fill("#kept", facts(["Answers kept", num(found.entries)], ["Memory", bytes(found.bytes)], ["In the index", found.index_entries != null && num(found.index_entries)], ["Encoder", found.encoder_ready == null ? "this gateway has no similar answers" : found.encoder_ready ? "ready" : "not loaded (no route wants it, or it is still loading)"]));
    draw();
    audits.show((await api("/admin/api/cache/audits?limit=200").catch(() => ({ audits: [] }))).audits);
    banner("first", null);
  } catch (error) {
    banner("first", error.message, "bad");
  }
}

// ── Purge ────────────────────────────────────────────────────────────────────────────────────────────────────────
const form = $("#purge");
if (param("entry")) form.elements.id.value = param("entry");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const selection = Object.fromEntries([...new FormData(form)].filter(([, value]) => value.trim()).map(([k, v]) => [k, v.trim()]));
  try {
    const found = await act("/admin/api/cache/purge", { body: { ...selection, dry_run: true } });
    if (!found.covered) return fill("#covered", empty("Nothing is kept under that", "No entry was removed."));
    fill("#covered", h("p", {}, `${num(found.covered)} entr${found.covered === 1 ? "y" : "ies"}, of ${[...new Set(found.entries.map((e) => `${e.tenant} / ${e.route}`))].join(", ")}.`),
      h("button", { class: "danger", type: "button", onclick: async () => {
        if (await ask(`Remove ${num(found.covered)} kept answers?`, "They are made anew when somebody asks again.", [], "Remove", { danger: true })) act("/admin/api/cache/purge", { body: { ...selection, dry_run: false } }, "Removed.").then(() => (fill("#covered"), load()), () => {});
      } }, "Remove them"));
  } catch { /* said already */ }
});
known.then(load);
setInterval(() => document.hidden || document.querySelector("dialog[open], #bound :focus") || load(), 5000);
