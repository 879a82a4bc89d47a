import { $, h, fill, num, many, pct, bytes, words, state, level, empty, none, facts, sub, button, plainButton, load, Table, api, act, openDialog, ignoreFailure, known, param, setParams, segment } from "./core.js";
import { Chart } from "./chart.js";

let partitions = [];
let chosen = param("partition");
const chart = new Chart("#histogram", "Similarity of the nearest cached prompt, for responses that were served and for those that were not; the table beside it has the counts.");
const nameOf = (b) => `${b.tenant} / ${b.route}`;
const isAudited = (show) => (value, b) => (b.error.audited ? show(value, b) : "–");
const table = new Table("#partitions", { route: (route, b) => plainButton(route, () => choose(b)), "error.ratio": isAudited((ratio, b) => h(`span.${ratio > b.max_error_ratio ? "bad" : "good"}`, pct(ratio, 2))), "error.high": isAudited((high, b) => `${pct(b.error.low, 2)} to ${pct(high, 2)}`) }, { key: nameOf, open: (b) => choose(b) });
const texts = (a) => a.texts && h("details", h("summary", "Texts"), facts(...Object.entries(a.texts).map(([k, v]) => [words(k), v])));
const audits = new Table("#audits", {
  verdict: (verdict, a) => [state(verdict), h("span.sub", ` by ${a.reviewed_by ?? a.by}`)], differences: (list, a) => [list.join(", ") || "none", texts(a)], id: (id) => h("a.mono", { href: `/admin/requests/${segment(id)}` }, id.slice(4, 12)),
  do: (_, a) => ["right", "wrong"].map((v) => plainButton(v, () => review(a, v), { disabled: a.verdict === v, "aria-label": `${v}: audit ${a.id}` })),
});
const review = (a, verdict) => ignoreFailure(act(`cache/audits/${segment(a.id)}`, { body: { verdict } }, "Noted; the estimate follows it.").then(refresh));

// ── The error bound: what audits measured at each ────────────────────────────────────────────────────────────────────────
function bound(b) {
  const steps = b?.bounds;
  if (!steps?.some((s) => s.audited)) return fill("#bound", none("#bound"));
  const here = Math.max(0, steps.findIndex((s) => s.max_error_ratio >= b.max_error_ratio));
  const out = h("div", { "aria-live": "polite" });
  const show = (i) => {
    const s = steps[i];
    fill(out, facts(["Error budget", pct(s.max_error_ratio, 2)], ["Threshold", s.threshold >= 1 ? "nothing is served" : pct(s.threshold, 2)], ["Expected hits", [level(s.hit_ratio), `${pct(s.hit_ratio)} of requests`]],
      ["Expected wrong", s.audited ? `${pct(s.ratio, 2)} (${pct(s.low, 2)} to ${pct(s.high, 2)}), by ${many(s.audited, "audit")}` : "no audit at this bound"]),
    i === here ? sub("This is the bound in force.") : h("p", h("a", { href: "/admin/policy" }, "Change it in the policy"), `: routes.${b.route}.cache.max_error_ratio ${s.max_error_ratio}`));
  };
  fill("#bound", h("label", "stricter", h("input", { type: "range", min: 0, max: steps.length - 1, value: here, "aria-label": "Error bound", oninput: (e) => show(Number(e.target.value)) }), "looser"), out);
  show(here);
}
function histogram(b) {
  const s = b?.similarities;
  if (!s?.served.concat(s.refused).some(Boolean)) return chart.clear(none("#histogram"));
  const bar = (kind, name, tone) => ({ x: s.from, y: s[kind], name, type: "bar", tone, offset: 0, width: 0.018, hovertemplate: "%{y}" });
  chart.draw([bar("served", "served", "accent"), bar("refused", "near misses", "warn")], { barmode: "stack", xaxis: { title: { text: `cosine similarity (first bar: all below ${s.from[1]})` }, range: [0.5, 1.005] } });
}
function choose(partition) {
  chosen = nameOf(partition);
  setParams({ partition: chosen });
  draw();
}
function draw() {
  const partition = partitions.find((b) => nameOf(b) === chosen) ?? partitions[0];
  table.selected = partition && nameOf(partition);
  table.show(partitions);
  histogram(partition);
  bound(partition);
  fill("#whose", partition && nameOf(partition));
}
const refresh = () => load(async () => {
  const [found, queue] = await Promise.all([api("cache"), api("cache/audits?limit=200")]);
  partitions = found.routes;
  fill("#entries", facts(["Cache entries", num(found.entries)], ["Memory", bytes(found.bytes)], ["In the index", num(found.index_entries)], ["Encoder", found.encoder_ready ? "ready" : "not loaded (yet)"]));
  draw();
  audits.show(queue.audits);
});

// ── Purge ────────────────────────────────────────────────────────────────────────────────────────────────────────
const form = $("#purge");
form.elements.id.value = param("entry");
async function remove(selection, count) {
  if (!(await openDialog("remove", num(count)))) return;
  await act("cache/purge", { body: { ...selection, dry_run: false } }, "Removed.");
  fill("#covered");
  await refresh();
}
async function cover() {
  const selection = Object.fromEntries([...new FormData(form)].map(([k, v]) => [k, v.trim()]).filter(([, v]) => v));
  const { covered, entries } = await act("cache/purge", { body: { ...selection, dry_run: true } });
  fill("#covered", covered ? [h("p", `${num(covered)} entr${covered === 1 ? "y" : "ies"}, of ${[...new Set(entries.map(nameOf))].join(", ")}.`), button("Remove them", () => ignoreFailure(remove(selection, covered)), { class: "danger" })]
    : empty("No entry matches", "No entry was removed."));
}
form.addEventListener("submit", (event) => (event.preventDefault(), ignoreFailure(cover())));
known.then(refresh);
setInterval(() => document.hidden || $("dialog[open], #bound :focus") || refresh(), 5000);
