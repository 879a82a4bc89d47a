import { $, h, fill, num, short, ms, pct, money, state, meter, empty, facts, frame, Live, Table, onWindow, windowS, first, act, ask } from "./core.js";

const ratio = (part, whole) => (whole ? part / whole : null);
const kvUsed = (d) => (d.report?.kv_total ? 1 - d.report.kv_free / d.report.kv_total : null);
const prefix = (d) => d.engine && ratio(d.engine.prefix_hit_tokens, d.engine.prefix_queried_tokens);
const accepted = (d) => d.engine && ratio(d.engine.accepted_tokens, d.engine.drafted_tokens);
const table = new Table("#compare", { name: "Deployments", none: empty("No deployments", "The policy names none."), columns: [
  { id: "id", label: "Deployment", value: (d) => d.id },
  { id: "model", label: "Model", value: (d) => d.model },
  { id: "state", label: "State", value: (d) => d.state, show: (d) => state(d.state) },
  { id: "in_flight", label: "In flight", num: true, value: (d) => d.in_flight, show: (d) => `${d.in_flight} of ${d.limit}` },
  { id: "waiting", label: "Waiting", num: true, value: (d) => d.waiting },
  { id: "requests", label: "Requests", num: true, value: (d) => d.requests, show: (d) => short(d.requests) },
  { id: "failed", label: "Failed", num: true, value: (d) => d.failed },
  { id: "ttft_p95_ms", label: "TTFT p95", num: true, value: (d) => d.ttft.p95_ms, show: (d) => ms(d.ttft.p95_ms) },
  { id: "forecast_error_p50", label: "Forecast error p50", num: true, value: (d) => d.forecast_error_p50, show: (d) => pct(d.forecast_error_p50, 0) },
  { id: "kv_used", label: "KV in use", num: true, value: kvUsed, show: (d) => pct(kvUsed(d), 0) },
  { id: "prefix_hits", label: "Prefix hits", num: true, value: prefix, show: (d) => pct(prefix(d), 0) },
  { id: "accepted", label: "Drafts accepted", num: true, value: accepted, show: (d) => pct(accepted(d), 0) },
  { id: "cost", label: "Spent", num: true, value: (d) => d.cost, show: (d) => money(d.cost) },
] });
let latest;

async function drain(d) {
  const back = d.state === "draining";
  const given = await ask(back ? `Take ${d.id} back?` : `Drain ${d.id}?`,
    back ? "It gets requests again as soon as a probe finds it ready." : "It gets no new requests, on any replica; those under way end as they would. With nobody else on a route, its requests are refused.",
    [{ name: "reason", label: "Reason", required: false }], back ? "Take back" : "Drain", { danger: !back });
  if (given) await act(`/admin/api/deployments/${encodeURIComponent(d.id)}/drain`, { body: { drain: !back, reason: given.reason } }, back ? `${d.id} is back.` : `${d.id} drains.`).then(reload, () => {});
}

function engine(d) {
  const r = d.report;
  if (!r) return h("p", { class: "sub" }, "It publishes no load of its own; what is known of it comes from its answers.");
  const used = kvUsed(d);
  return facts(
    ["Rows", [r.max_rows > 0 && meter(r.running / r.max_rows, { warn: 0.9, bad: 1.1 }), `${num(r.running)}${r.max_rows ? ` of ${r.max_rows}` : ""} running, ${num(r.waiting)} waiting`]],
    ["KV in use", used != null && [meter(used), `${pct(used, 0)} of ${num(r.kv_total)} blocks, ${num(r.kv_cached)} hold prefixes`]],
    ["Step", `${ms(r.step_ms)}, ${short(r.tokens_per_s)} tokens/s`],
    d.engine && ["Prefix hits", prefix(d) == null ? "no prompt yet" : [meter(prefix(d), { warn: 2, bad: 2 }), `${pct(prefix(d))} of ${short(d.engine.prefix_queried_tokens)} prompt tokens`]],
    d.engine && ["Speculation", !d.engine.speculates ? "off" : accepted(d) == null ? "on, nothing drafted yet" : [meter(accepted(d), { warn: 2, bad: 2 }), `${pct(accepted(d))} of ${short(d.engine.drafted_tokens)} drafted tokens accepted`]],
    d.engine && ["Preempted", `${num(d.engine.preemptions)} since it started`]);
}
function forecasts(d) {
  return h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": `Forecast of ${d.id}` }, h("table", {},
    h("thead", {}, h("tr", {}, ["Prompt tokens", "Forecast now", "Measured p50", "p95", "Answers"].map((name, i) => h("th", { scope: "col", class: i && "num" }, name)))),
    h("tbody", {}, d.forecast.map((f) => h("tr", {}, h("th", { scope: "row" }, f.bucket), [ms(f.forecast_ms), ms(f.measured?.p50_ms), ms(f.measured?.p95_ms), num(f.measured?.count ?? 0)].map((v) => h("td", { class: "num" }, v)))))),
  h("p", { class: "sub" }, d.forecast_error_p50 == null ? "No forecast was put to the test yet." : `Of the last forecasts half were off by up to ${pct(d.forecast_error_p50, 0)}, nine in ten by up to ${pct(d.forecast_error_p90, 0)}.`));
}
function card(d) {
  const prices = d.cost_per_mtok;
  return h("section", { class: "card", id: d.id, "aria-label": d.id },
    h("header", {}, h("h2", {}, d.id), state(d.state), h("span", { class: "sub" }, d.model), h("button", { type: "button", "data-drain": d.id, class: d.state === "draining" ? "" : "danger", onclick: () => drain(d) }, d.state === "draining" ? "Take back" : "Drain")),
    facts(["In flight", [meter(d.in_flight / d.limit), `${num(d.in_flight)} of ${num(d.limit)} permits, ${num(d.waiting)} waiting`]], ["Traffic", `${num(d.requests)} requests, ${num(d.failed)} failed`], ["First token", `p50 ${ms(d.ttft.p50_ms)}, p95 ${ms(d.ttft.p95_ms)}`],
      ["Per token", `${ms(d.forecast_tpot_ms)} forecast`], ["Price", prices && `${prices.prompt} in, ${prices.completion} out a million tokens; spent ${money(d.cost)}`], ["Zone", d.zone], ["Address", h("span", { class: "mono" }, d.url)]),
    h("h3", {}, "Engine"), engine(d), h("h3", {}, "Forecast against real, time to first token"), forecasts(d));
}
function show(found) {
  latest = found;
  frame(found);
  table.show(found.deployments);
  const box = $("#cards");
  if (box.contains(document.activeElement) && document.activeElement.dataset.drain) {
    const id = document.activeElement.dataset.drain;
    fill(box, found.deployments.map(card));
    box.querySelector(`[data-drain="${CSS.escape(id)}"]`)?.focus();
  } else if (getSelection().isCollapsed || !box.contains(getSelection().anchorNode)) fill(box, found.deployments.map(card));
  if (!found.deployments.length) fill(box, empty("No deployments", "The policy names none."));
  if (location.hash && !show.scrolled) {
    show.scrolled = true;
    document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  }
}
const path = () => `/admin/api/deployments?window=${windowS()}`;
const reload = () => first(path(), show);
onWindow(() => (reload(), feed.open()));
reload();
const feed = new Live("deployments", () => ({ window: windowS() }), show);
