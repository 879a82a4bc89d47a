import { h, fill, $, num, short, ms, pct, bytes, money, state, meter, empty, facts, frame, api, Live, Table, onWindow, windowS, first } from "./core.js";
import { Chart } from "./chart.js";

const spread = [
  { id: "count", label: "Count", num: true, value: (r) => r.count, show: (r) => short(r.count) },
  ...[["p50_ms", "p50"], ["p95_ms", "p95"], ["p99_ms", "p99"]].map(([id, label]) => ({ id, label, num: true, value: (r) => r[id], show: (r) => ms(r[id]) })),
];
const quiet = empty("No requests yet", "Send one to the public listener and it shows here within two seconds.");
const tables = {
  ttft: new Table("#ttft", { name: "TTFT by prompt length", key: (r) => r.bucket, none: quiet.cloneNode(true), columns: [{ id: "bucket", label: "Prompt", value: (r) => r.bucket }, ...spread] }),
  slo: new Table("#slo", { name: "Latency targets", key: (r) => r.lane + r.target, none: empty("No latency targets", "No lane of the policy has an slo, so nothing is promised and nothing can be missed."), columns: [
    { id: "lane", label: "Lane", value: (r) => r.lane },
    { id: "target", label: "Target", value: (r) => `${r.target} ≤ ${ms(r.limit_ms)}` },
    { id: "ratio", label: "Met", num: true, value: (r) => r.ratio, show: (r) => attained(r.ratio) },
    { id: "ratio_of_all", label: "Of all asked", num: true, value: (r) => r.ratio_of_all, show: (r) => pct(r.ratio_of_all) },
    { id: "missed", label: "Missed", num: true, value: (r) => r.missed },
    { id: "shed", label: "Shed", num: true, value: (r) => r.shed },
  ] }),
  shed: new Table("#shed", { name: "Refused for load", key: (r) => r.lane + r.reason, none: empty("Nobody was refused", "Every request of this window found room in time."), columns: [
    { id: "lane", label: "Lane", value: (r) => r.lane || "–" }, { id: "reason", label: "Reason", value: (r) => r.reason.replaceAll("_", " ") }, { id: "count", label: "Count", num: true, value: (r) => r.count }] }),
  queues: new Table("#queues", { name: "Queue wait", key: (r) => r.lane, none: quiet.cloneNode(true), columns: [
    { id: "lane", label: "Lane", value: (r) => r.lane },
    { id: "waiting", label: "Waiting now", num: true, value: (r) => r.waiting, show: (r) => [meter(r.waiting / r.max_queue), num(r.waiting)] },
    { id: "count", label: "Waited", num: true, value: (r) => r.wait.count, show: (r) => short(r.wait.count) },
    ...["p50_ms", "p95_ms", "p99_ms"].map((id) => ({ id, label: id.slice(0, 3), num: true, value: (r) => r.wait[id], show: (r) => ms(r.wait[id]) })),
  ] }),
  deployments: new Table("#deployments", { name: "Deployments", none: empty("No deployments", "The policy names none."), columns: [
    { id: "id", label: "Deployment", value: (r) => r.id, show: (r) => h("a", { href: `/admin/deployments#${encodeURIComponent(r.id)}` }, r.id) },
    { id: "state", label: "State", value: (r) => r.state, show: (r) => state(r.state) },
    { id: "in_flight", label: "In flight", num: true, value: (r) => r.in_flight, show: (r) => `${r.in_flight} of ${r.limit}` },
    { id: "requests", label: "Requests", num: true, value: (r) => r.requests, show: (r) => short(r.requests) },
    { id: "failed", label: "Failed", num: true, value: (r) => r.failed },
    { id: "ttft_p50", label: "TTFT p50", num: true, value: (r) => r.ttft.p50_ms, show: (r) => ms(r.ttft.p50_ms) },
    { id: "ttft_p95", label: "p95", num: true, value: (r) => r.ttft.p95_ms, show: (r) => ms(r.ttft.p95_ms) },
  ] }),
};
const rate = new Chart("#rate", "Requests per second over time by outcome; the tables below have the totals.", "");
const firstToken = new Chart("#first", "Time to first token over time, p50, p95 and p99; the table below has the totals by prompt length.", " ms");

const attained = (ratio) => (ratio == null ? "–" : h("span", { class: ratio >= 0.95 ? "good" : ratio >= 0.9 ? "warn" : "bad" }, pct(ratio)));
const tile = (label, value, sub) => h("div", { class: "tile" }, h("span", { class: "sub" }, label), h("b", {}, value), h("span", { class: "sub" }, sub));

function tiles(d) {
  const all = d.ttft.at(-1);
  const worst = d.slo.filter((row) => row.ratio != null).sort((a, b) => a.ratio - b.ratio)[0];
  const shed = d.requests.outcomes.shed ?? 0;
  const saved = Object.values(d.saved.tokens).reduce((a, b) => a + b, 0);
  const hits = d.cache.hit_exact + d.cache.shared + d.cache.hit_semantic;
  fill("#tiles",
    tile("Requests", [short(d.requests.per_s), h("small", {}, " /s")], `${short(d.requests.count)} in the window, ${num(d.requests.failed)} failed`),
    tile("TTFT p95", ms(all?.p95_ms), all ? `p50 ${ms(all.p50_ms)} · p99 ${ms(all.p99_ms)}` : "no answer yet"),
    tile("Targets met", worst ? attained(worst.ratio) : "–", worst ? `worst: ${worst.lane}, ${worst.target} ≤ ${ms(worst.limit_ms)}` : d.slo.length ? "no answer with a target yet" : "no lane has a target"),
    tile("Cache hits", d.cache.lookups ? pct(hits / d.cache.lookups) : "–", d.cache.lookups ? `exact ${pct(d.cache.hit_exact / d.cache.lookups)} · semantic ${pct(d.cache.hit_semantic / d.cache.lookups)}` : "no lookups in the window"),
    tile("Refused for load", d.requests.count ? pct(shed / d.requests.count) : "–", shed ? `${num(shed)}, most: ${d.shed[0]?.reason.replaceAll("_", " ")}` : "nobody"),
    tile("Saved", [short(saved), h("small", {}, " tokens")], d.saved.has_prices ? `${money(Object.values(d.saved.cost).reduce((a, b) => a + b, 0))} saved, ${money(d.saved.spent)} spent` : "no prices in the policy"));
}

function stages(d) {
  if (!d.stages.length) return fill("#stages", quiet.cloneNode(true));
  const most = Math.max(...d.stages.map((s) => s.share));
  fill("#stages", h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Stages" }, h("table", {},
    h("thead", {}, h("tr", {}, ["Stage", "Share of time", "Mean", "p95", "p99"].map((name, i) => h("th", { scope: "col", class: i > 1 && "num" }, name)))),
    h("tbody", {}, d.stages.map((s) => h("tr", {}, h("th", { scope: "row" }, s.stage.replaceAll("_", " ")),
      h("td", {}, meter(s.share / most, { warn: 2, bad: 2 }), pct(s.share)), [s.mean_ms, s.p95_ms, s.p99_ms].map((v) => h("td", { class: "num" }, ms(v))))))),
  h("p", { class: "sub" }, `The gateway itself: p50 ${ms(d.overhead.p50_ms)}, p99 ${ms(d.overhead.p99_ms)} a request.`)));
}

function cache(d) {
  const c = d.cache;
  if (!c.lookups && !c.bypassed) return fill("#cache", empty("No lookups yet", "A route keeps answers once its policy says cache: {mode: exact}."));
  const part = (label, count, note) => [label, c.lookups ? [meter(count / c.lookups, { warn: 2, bad: 2 }), `${pct(count / c.lookups)} · ${num(count)}`, note && h("span", { class: "sub" }, ` ${note}`)] : num(count)];
  const error = c.error && `wrong at ${c.error.route}: ${pct(c.error.ratio, 2)} of requests (${pct(c.error.low, 2)} to ${pct(c.error.high, 2)}, ${num(c.error.audits)} audits)`;
  fill("#cache", facts(part("Exact", c.hit_exact), part("Semantic", c.hit_semantic, error), part("Shared in flight", c.shared), part("Miss", c.miss), ["Not asked", c.bypassed && num(c.bypassed)], ["Kept", `${num(c.entries)} answers, ${bytes(c.bytes)}`]));
}

function saved(d) {
  const sources = Object.entries(d.saved.tokens);
  if (!sources.length) return fill("#saved", empty("Nothing saved yet", `Cache hits, shared answers and trimmed prompts are counted here.${d.requests.answered && !d.tokens.prompt ? " Tokens of a stream are known only where its client asks for usage (stream_options.include_usage)." : ""}`));
  fill("#saved", facts(...sources.map(([source, tokens]) => [source.replaceAll("_", " "), `${short(tokens)} tokens${d.saved.has_prices ? ` · ${money(d.saved.cost[source] ?? 0)}` : ""}`]),
    d.saved.has_prices && ["smaller model", money(d.saved.cost.routing ?? 0)], d.saved.has_prices && ["spent", money(d.saved.spent)]),
  !d.saved.has_prices && h("p", { class: "sub" }, "Give deployments a cost_per_mtok to see money."));
}

// Watches for some seconds, then says which stage is slow and which lever to pull.
async function diagnose(event) {
  const button = event.target;
  button.disabled = true;
  fill("#diagnosis", h("p", { class: "sub" }, "Watching the next 10 seconds…"));
  try {
    const found = await api("/admin/api/diagnosis?seconds=10");
    fill("#diagnosis", found.findings.length ? found.findings.map((f) => [h("h3", {}, `${f.stage}: ${f.cause.replaceAll("_", " ")}`), h("p", {}, f.summary), h("p", {}, h("b", {}, "Lever: "), f.lever),
      f.policy_path && h("p", {}, h("a", { href: "/admin/policy" }, f.policy_path)),
      h("p", { class: "sub" }, f.evidence.map((e) => `${e.name} ${measured(e.now, e.measure)}${e.expected == null ? "" : `, ${e.expected_is} ${measured(e.expected, e.measure)}`}`).join("; "))])
      : empty("Nothing is slow", `${num(found.num_requests)} requests in ${num(found.seconds)} s were as before and within their targets.`), found.notes.map((note) => h("p", { class: "sub" }, note)));
  } catch (error) {
    fill("#diagnosis", empty("No diagnosis", error.message));
  }
  button.disabled = false;
}
const measured = (value, measure) => (measure === "s" ? ms(value * 1000) : measure === "ratio" ? pct(value) : short(value));
$("#diagnose").addEventListener("click", diagnose);

function charts(d) {
  if (!d.series?.length || !d.requests.count) return;
  const x = d.series.map((p) => new Date(p.at * 1000));
  const dates = { xaxis: { type: "date", tickformat: "%H:%M:%S", nticks: 6 } };
  const stacked = [["completed", "good"], ["cached", "accent"], ["cancelled", "muted"], ["rejected", "calm"], ["shed", "warn"], ["failed", "bad"]];
  rate.draw(stacked.filter(([id]) => d.series.some((p) => p[id])).map(([id, tone]) => ({ x, y: d.series.map((p) => p[id]), name: id, tone, stackgroup: "all", mode: "lines", hovertemplate: "%{y:.2f}/s" })), dates);
  firstToken.draw([["p50_ms", "accent"], ["p95_ms", "calm"], ["p99_ms", "warn"]].map(([id, tone]) => ({ x, y: d.series.map((p) => p[id]), name: id.slice(0, 3), tone, mode: "lines+markers", connectgaps: false, line: { shape: "linear" }, marker: { size: 4 }, hovertemplate: "%{y:.1f} ms" })), dates);
}

function show(d) {
  frame(d);
  tiles(d);
  stages(d);
  cache(d);
  saved(d);
  for (const name of ["ttft", "slo", "shed", "queues", "deployments"]) tables[name].show(d[name]);
  if (d.series) {
    if (!d.requests.count) for (const id of ["#rate", "#first"]) { if (!$(id).classList.contains("js-plotly-plot")) fill(id, quiet.cloneNode(true)); }
    charts(d);
  }
}

const path = () => `/admin/api/overview?window=${windowS()}`;
onWindow(() => (first(path(), show), feed.open()));
first(path(), show);
const feed = new Live("overview", () => ({ window: windowS() }), show);
