import { h, segment, onClick, fill, num, many, short, ms, pct, bytes, money, words, sum, level, meter, empty, none, facts, tiles, sub, grid, frame, api, Table, livePage } from "./core.js";
import { Chart } from "./chart.js";

const attained = (ratio) => (ratio == null ? "–" : h(`span.${ratio >= 0.95 ? "good" : ratio >= 0.9 ? "warn" : "bad"}`, pct(ratio)));
const REJECTED = { 400: "a field or the JSON is wrong", 401: "no valid API key", 403: "the key may not use the model", 404: "unknown model or path", 413: "the request is too large", 429: "over the tenant's limit" };
const tables = {
  ttft: new Table("#ttft", {}, { key: (r) => r.bucket }),
  slo: new Table("#slo", { target: (target, r) => `${target} ≤ ${ms(r.limit_ms)}`, ratio: attained }, { key: (r) => r.lane + r.target }),
  quotes: new Table("#quotes", { ratio: attained }, { key: (r) => r.bound }),
  shed: new Table("#shed", {}, { key: (r) => r.lane + r.reason }),
  rejected: new Table("#rejected", { status: (status) => h("a", { href: `/admin/requests?outcome=rejected&status=${status}` }, status), why: (_, r) => REJECTED[r.status] ?? "the request is wrong" }, { key: (r) => r.status }),
  queues: new Table("#queues", { waiting: (n, r) => [meter(n / r.max_queue), num(n)] }, { key: (r) => r.lane }),
  deployments: new Table("#deployments", { in_flight: (n, r) => `${n} of ${r.limit}` }),
};
const rate = new Chart("#rate", "Requests per second over time by outcome; the tables below have the totals.");
const firstToken = new Chart("#first", "Time to first token over time, p50, p95 and p99; the table below has the totals by prompt length.", "s");

function showTiles(d) {
  const all = d.ttft.at(-1);
  const worst = d.slo.filter((row) => row.ratio != null).sort((a, b) => a.ratio - b.ratio)[0];
  const { count, per_s, failed } = d.requests;
  const [shed, saved, money_] = [d.requests.outcomes.shed ?? 0, sum(Object.values(d.saved.tokens)), sum(Object.values(d.saved.cost ?? {}))];
  const of = (n) => pct(n / d.cache.lookups);
  const { routes_without_cache: off, num_routes } = d.cache;
  const rejected = sum(d.rejected, "count");
  const cacheOff = off.length > 0 && [`cache is off on ${num(off.length)} of ${many(num_routes, "route")}, `, h("a", { href: `/admin/policy#routes.${segment(off[0])}.cache.mode` }, "turn it on")];
  tiles(
    ["Requests", [short(per_s), h("small", " /s")], `${short(count)} in the window, ${num(failed)} failed`, "/admin/requests"],
    ["TTFT p95", ms(all?.p95_ms), all ? `p50 ${ms(all.p50_ms)} · p99 ${ms(all.p99_ms)}` : "no answer yet", "#ttft-title"],
    ["Targets met", attained(worst?.ratio), worst ? `worst: ${worst.lane}, ${worst.target} ≤ ${ms(worst.limit_ms)}` : d.slo.length ? "no answer with a target yet" : "no lane has a target", "/admin/load#targets-title"],
    ["Cache hits", d.cache.lookups ? of(d.cache.hit_exact + d.cache.shared + d.cache.hit_semantic) : "–", d.cache.lookups ? [`exact ${of(d.cache.hit_exact)} · semantic ${of(d.cache.hit_semantic)}`, off.length > 0 && h("br"), cacheOff] : cacheOff || "no lookups in the window", "/admin/cache"],
    ["Shed", count ? pct(shed / count) : "–", shed ? `${num(shed)}, most: ${words(d.shed[0]?.reason)}` : "no request refused for load", "/admin/requests?outcome=shed"],
    ["Rejected", num(rejected), rejected ? d.rejected.slice(0, 3).map((r) => `${r.status}: ${num(r.count)}`).join(" · ") : "no 400, 401 or 403", "/admin/requests?outcome=rejected"],
    ["Saved", [short(saved), h("small", " tokens")], d.saved.has_prices ? `${money(money_)} saved, ${money(d.saved.spent)} spent` : "no prices in the policy", "#saved-title"]);
}

function stages(d) {
  const most = Math.max(...d.stages.map((s) => s.share));
  fill("#stages", d.stages.length ? [grid("Stages", ["Stage", "Share of time", "Mean", "p95", "p99"], d.stages.map((s) => [words(s.stage), [level(s.share / most), pct(s.share)], ms(s.mean_ms), ms(s.p95_ms), ms(s.p99_ms)]), 2),
    sub(`The gateway itself: p50 ${ms(d.overhead.p50_ms)}, p99 ${ms(d.overhead.p99_ms)} a request.`)] : none("#stages"));
}

function cache({ cache: c }) {
  if (!c.lookups && !c.bypassed) return fill("#cache", none("#cache"));
  const part = (label, count, note) => [label, c.lookups ? [level(count / c.lookups), `${pct(count / c.lookups)} · ${num(count)}`, note && h("span.sub", ` ${note}`)] : num(count)];
  const error = c.error && `wrong at ${c.error.route}: ${pct(c.error.ratio, 2)} of requests (${pct(c.error.low, 2)} to ${pct(c.error.high, 2)}, ${many(c.error.audits, "audit")})`;
  fill("#cache", facts(part("Exact", c.hit_exact), part("Semantic", c.hit_semantic, error), part("Shared in flight", c.shared), part("Miss", c.miss), ["Bypassed", c.bypassed && num(c.bypassed)], ["Stored", `${num(c.entries)} entries, ${bytes(c.bytes)}`]));
}

function saved({ saved: s, requests, tokens }) {
  const [sources, cut] = [Object.entries(s.tokens), sum(Object.values(s.cut_short))];
  if (!sources.length && !cut) return fill("#saved", none("#saved"), requests.answered > 0 && !tokens.prompt && sub("Streams report tokens only with stream_options.include_usage."));
  fill("#saved", facts(...sources.map(([source, n]) => [words(source), `${short(n)} tokens` + (s.has_prices ? ` · ${money(s.cost[source] ?? 0)}` : "")]),
    ...(cut ? [["begun, then cancelled", `${short(cut)} tokens`]] : []), ...(s.has_prices ? [["smaller model", money(s.cost.routing ?? 0)], ["spent", money(s.spent)]] : [])), !s.has_prices && sub("Give deployments a cost_per_mtok to see money."));
}

// Watches for some seconds, then says which stage is slow and which lever to pull.
const measured = (value, measure) => (measure === "s" ? ms(value * 1000) : measure === "ratio" ? pct(value) : short(value));
const finding = (f) => [h("h3", `${f.stage}: ${words(f.cause)}`), h("p", f.summary), h("p", h("b", "Remedy: "), f.lever), f.policy_path && h("p", h("a", { href: "/admin/policy" }, f.policy_path)),
  sub(f.evidence.map((e) => `${e.name} ${measured(e.now, e.measure)}` + (e.expected == null ? "" : `, ${e.expected_is} ${measured(e.expected, e.measure)}`)).join("; "))];
async function diagnose({ target }) {
  target.disabled = true;
  fill("#diagnosis", sub("Measuring for 10 seconds…"));
  try {
    const { findings, num_requests, seconds, conclusion, notes } = await api("diagnosis?seconds=10");
    fill("#diagnosis", findings.length ? findings.map(finding) : empty(`${num(num_requests)} requests in ${num(seconds)} s`, conclusion), notes.map((note) => sub(note)));
  } catch (error) {
    fill("#diagnosis", empty("No diagnosis", error.message));
  }
  target.disabled = false;
}
onClick("#diagnose", diagnose);

const STACKED = { completed: "good", cached: "accent", cancelled: "muted", rejected: "calm", shed: "warn", failed: "bad" };
const LINES = { p50_ms: "accent", p95_ms: "calm", p99_ms: "warn" };
function charts({ series, requests }) {
  if (!series) return; // only when a step of theirs is over
  if (!requests.count) return [rate, firstToken].forEach((chart) => chart.clear(none("#ttft")));
  const x = series.map((p) => new Date(p.at * 1000));
  const line = ([id, tone], unit, more) => ({ x, y: series.map((p) => p[id] && p[id] / unit), name: id.split("_")[0], tone, ...more });
  const dates = { xaxis: { type: "date", tickformat: "%H:%M:%S", nticks: innerWidth < 500 ? 3 : 6 } };
  rate.draw(Object.entries(STACKED).filter(([id]) => series.some((p) => p[id])).map((one) => line(one, 1, { stackgroup: "all", mode: "lines", hovertemplate: "%{y:.2f}/s" })), dates);
  firstToken.draw(Object.entries(LINES).map((one) => line(one, 1000, { mode: "lines+markers", marker: { size: 4 }, hovertemplate: "%{y:.3~s}s" })), dates);
}

livePage("overview", (d) => {
  frame(d);
  showTiles(d);
  stages(d);
  cache(d);
  saved(d);
  for (const name of Object.keys(tables)) tables[name].show(d[name]);
  charts(d);
});
