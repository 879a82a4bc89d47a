import { $, h, fill, num, many, pct, bytes, ago, day, words, state, level, mono, empty, none, facts, sub, grid, button, plainButton, load, Table, api, act, notify, settle, known, param, setParams, segment } from "./core.js";
import { Chart } from "./chart.js";

let scopes = [];
let chosen = param("scope");
const chart = new Chart("#histogram", "Similarity of the nearest cached prompt, of served responses and of near misses; the table has the counts.");
const nameOf = (b) => `${b.tenant} / ${b.route}`;
const isAudited = (show) => (value, b) => (b.error.audited ? show(value, b) : "–");
const table = new Table("#scopes", { route: (route, b) => plainButton(route, () => choose(b)), "error.ratio": isAudited((ratio, b) => h(`span.${ratio > b.max_error_ratio ? "bad" : "good"}`, pct(ratio, 2))), "error.high": isAudited((high, b) => `${pct(b.error.low, 2)} to ${pct(high, 2)}`) }, { key: nameOf, open: (b) => choose(b) });
const texts = (a) => a.texts && h("details", h("summary", "Texts"), facts(...Object.entries(a.texts).map(([k, v]) => [words(k), v])));
const audits = new Table("#audits", {
  verdict: (verdict, a) => [state(verdict), h("span.sub", ` by ${a.reviewed_by ?? a.by}`)], differences: (list, a) => [list.join(", ") || "none", texts(a)], id: (id) => h("a.mono", { href: `/admin/requests/${segment(id)}` }, id.slice(4, 12)),
  do: (_, a) => ["right", "wrong"].map((v) => plainButton(v, () => review(a, v), { disabled: a.verdict === v, "aria-label": `${v}: audit ${a.id}`, "data-edit": true })),
});
const review = (a, verdict) => settle(act(`cache/audits/${segment(a.id)}`, { body: { verdict } }, "Verdict recorded.").then(refresh));

// ── What audits measured at each error budget ────────────────────────────────────────────────────────────────────
function bound(b) {
  const steps = b?.bounds;
  if (!steps?.some((s) => s.audited)) return fill("#bound", none("#bound"));
  const here = Math.max(0, steps.findIndex((s) => s.max_error_ratio >= b.max_error_ratio));
  const out = h("div", { "aria-live": "polite" });
  const show = (i) => {
    const s = steps[i];
    fill(out, facts(["Error budget", pct(s.max_error_ratio, 2)], ["Threshold", s.threshold >= 1 ? "nothing is served" : pct(s.threshold, 2)], ["Expected hits", s.hit_ratio == null ? "no requests yet" : [level(s.hit_ratio), `${pct(s.hit_ratio)} of requests`]],
      ["Wrong hits", s.audited ? `${pct(s.ratio, 2)} (${pct(s.low, 2)} to ${pct(s.high, 2)}), by ${many(s.audited, "audit")}` : "no audits at this budget"]),
    i === here ? sub("This budget is in force.") : h("p", h("a", { href: `/admin/policy#routes.${b.route}.cache.max_error_ratio` }, "Change it in the policy")));
  };
  fill("#bound", h("label", "stricter", h("input", { type: "range", min: 0, max: steps.length - 1, value: here, "aria-label": "Error budget", oninput: (e) => show(Number(e.target.value)) }), "looser"), out);
  show(here);
}
function histogram(b) {
  const s = b?.similarities;
  if (!s?.served.concat(s.refused).some(Boolean)) return chart.clear(none("#histogram"));
  const bar = (kind, name, tone) => ({ x: s.from, y: s[kind], name, type: "bar", tone, offset: 0, width: 0.018, hovertemplate: "%{y}" });
  chart.draw([bar("served", "served", "accent"), bar("refused", "near misses", "warn")], { barmode: "stack", xaxis: { title: { text: `cosine similarity (first bar: all below ${s.from[1]})` }, range: [0.5, 1.005] } });
}
function choose(scope) {
  chosen = nameOf(scope);
  setParams({ scope: chosen });
  draw();
}
function draw() {
  const scope = scopes.find((b) => nameOf(b) === chosen) ?? scopes[0];
  table.selected = scope && nameOf(scope);
  table.show(scopes);
  histogram(scope);
  bound(scope);
  fill("#whose", scope && nameOf(scope));
}
const recallsOf = (r) => (r.is_on ? [num(r.notices), sub(`since the start; webhooks: ${num(r.delivered)} delivered, ${num(r.failed)} failed, ${num(r.given_up)} given up`)] : "off");
const refresh = () => load(async () => {
  const [found, queue] = await Promise.all([api("cache"), api("cache/audits?limit=200")]);
  scopes = found.routes;
  fill("#entries", facts(["Cache entries", num(found.entries)], ["Memory", bytes(found.bytes)], ["In the index", num(found.index_entries) + (found.index_waiting ? `, ${num(found.index_waiting)} waiting` : "")], ["Encoder", found.encoder_ready ? "ready" : "not loaded"], ["Recall notices", recallsOf(found.recalls)]));
  draw();
  audits.show(queue.audits);
});

// ── Purge: the entries are listed first, and those that were listed are removed ──────────────────────────────────
const form = $("#purge");
form.elements.id.value = param("entry");
async function remove(selection) {
  const { covered } = await act("cache/purge", { body: { ...selection, dry_run: false } });
  notify(`${entriesOf(covered)} removed.`, "good");
  fill("#covered");
  await refresh();
}
const entriesOf = (n) => many(n, "entry", "entries");
async function cover() {
  const selection = Object.fromEntries([...new FormData(form)].map(([k, v]) => [k, v.trim()]).filter(([, v]) => v));
  const { covered, entries, until } = await act("cache/purge", { body: { ...selection, dry_run: true } });
  if (!covered) return fill("#covered", empty("No entry matches", "Nothing was removed."));
  fill("#covered", grid("Entries to remove", ["Entry", "Tenant", "Route", "Deployment", "Stored", "Expires", "Hits", "Size"], entries.map((e) => [mono(e.id), e.tenant, e.route, e.deployment, ago(e.created_at), day(e.expires_at), num(e.hits), bytes(e.bytes)]), 6),
    covered > entries.length && sub(`The first ${num(entries.length)} of ${num(covered)}.`), h("p", button(covered === 1 ? "Remove this entry" : `Remove these ${entriesOf(covered)}`, () => settle(remove({ ...selection, until })), { class: "danger" })));
}
form.addEventListener("submit", (event) => (event.preventDefault(), settle(cover())));
known.then(refresh);
setInterval(() => document.hidden || $("dialog[open], #bound :focus") || refresh(), 5000);
