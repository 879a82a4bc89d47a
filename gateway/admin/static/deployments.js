import { $, h, fill, update, num, short, ms, pct, money, state, meter, level, facts, sub, mono, button, none, grid, frame, Table, plainButton, load, api, livePage, act, popup, settle, segment } from "./core.js";

const ratio = (part, whole) => (whole ? part / whole : null);
const kvUsed = (d) => (d.report?.kv_total ? 1 - d.report.kv_free / d.report.kv_total : null);
const prefix = (d) => d.engine && ratio(d.engine.prefix_hit_tokens, d.engine.prefix_queried_tokens);
const accepted = (d) => d.engine && ratio(d.engine.accepted_tokens, d.engine.drafted_tokens);
const whole = (value) => pct(value, 0);
const table = new Table("#compare", { in_flight: (n, d) => `${n} of ${d.limit}` });
const groups = new Table("#groups", { num_members: (n, g) => num(n) + (g.num_left_out ? ` (${num(g.num_left_out)} left out)` : ""), age_s: (s, g) => g.error ?? (s == null ? "not yet" : "current") });

async function drain(d) {
  const back = d.state === "draining";
  const given = await popup(back ? "back" : "drain", d.id);
  if (given) settle(act(`deployments/${segment(d.id)}/drain`, { body: { drain: !back, reason: given.reason } }, back ? `${d.id} gets requests again.` : `${d.id} is draining.`).then(reload));
}

function engine(d) {
  const { report: r, engine: e } = d;
  if (!r) return sub("This server reports no load. These figures come from its responses.");
  const [used, hits, drafts] = [kvUsed(d), prefix(d), accepted(d)];
  return facts(
    ["Sequences", [r.max_num_seqs > 0 && meter(r.running / r.max_num_seqs, { warn: 0.9, bad: 1.1 }), num(r.running) + (r.max_num_seqs ? ` of ${r.max_num_seqs}` : "") + ` running, ${num(r.waiting)} waiting`]],
    ["KV in use", used != null && [meter(used), `${whole(used)} of ${num(r.kv_total)} blocks, ${num(r.kv_cached)} of them prefix cache`]],
    ["Step", `${ms(r.step_ms)}, ${short(r.tokens_per_s)} tokens/s`],
    ...(e ? [["Prefix hits", hits == null ? "no prompt yet" : [level(hits), `${pct(hits)} of ${short(e.prefix_queried_tokens)} prompt tokens`]],
      ["Speculation", !e.speculates ? "off" : drafts == null ? "on, no draft tokens yet" : [level(drafts), `${pct(drafts)} of ${short(e.drafted_tokens)} draft tokens accepted`]],
      ["Preempted", `${num(e.preemptions)} since it started`]] : []));
}
const forecasts = (d) => [grid(`Forecast of ${d.id}`, ["Prompt tokens", "Forecast, empty cache", "Measured p50", "p95", "Answers"], d.forecast.map((f) => [f.bucket, ms(f.forecast_ms), ms(f.measured?.p50_ms), ms(f.measured?.p95_ms), num(f.measured?.count ?? 0)])),
  sub(d.forecast_error_p50 == null ? "No forecast has been measured yet." : `Forecast error: p50 ${whole(d.forecast_error_p50)}, p90 ${whole(d.forecast_error_p90)}.`)];
function card(d) {
  const [prices, back] = [d.cost_per_mtok, d.state === "draining"];
  return h("section.card", { id: d.id, "data-key": d.id, "aria-label": d.id },
    h("header", h("h2", d.id), state(d.state), h("span.sub", d.model), button(back ? "Resume" : "Drain", () => drain(d), { "data-edit": true, class: back ? "" : "danger" })),
    d.description && sub(d.description),
    facts(["In flight", [meter(d.in_flight / d.limit), `${num(d.in_flight)} of ${num(d.limit)} permits, ${num(d.waiting)} waiting`]], ["Traffic", d.requests == null ? `counted for ${d.group}` : `${num(d.requests)} requests, ${num(d.failed)} failed`], ["Broken streams", d.streams && `${num(d.streams.resumed)} continued elsewhere, ${num(d.streams.lost)} ended with an error`], ["First token", `p50 ${ms(d.ttft.p50_ms)}, p95 ${ms(d.ttft.p95_ms)}`],
      ["Per token", `${ms(d.forecast_tpot_ms)} forecast`], ["Price", prices && `${prices.prompt} in, ${prices.completion} out a million tokens; spent ${money(d.cost)}`], ["Zone", d.zone], ["Address", mono(d.url)]),
    h("h3", "Engine"), engine(d), h("h3", "Time to first token, forecast and measured"), forecasts(d));
}
const cascades = new Table("#cascades", {
  confidence: (value) => (value > 1 ? "none is enough" : pct(value)), good_ratio: (value, c) => (value == null ? "–" : `${pct(value)} of ${num(c.num_above)}, at least ${pct(c.good_ratio_low)}`),
  do: (_, c) => plainButton("Take back", () => takeBack(c), { disabled: c.state === "default", "aria-label": `Take back: ${c.weak}`, "data-edit": true }),
}, { key: (c) => `${c.weak} ${c.strong} ${c.min_quality}` });
const showCascades = () => load(async () => cascades.show((await api("routing/cascades")).cascades));
async function takeBack({ weak, strong }) {
  if (await popup("undo", `${weak} and ${strong}`)) settle(act("routing/cascades/take-back", { body: { weak, strong } }, "The default is in force.").then(showCascades));
}
showCascades();
let isScrolled = false;
const reload = livePage("deployments", (found) => {
  frame(found);
  table.show(found.deployments.map((d) => ({ ...d, kv_used: kvUsed(d), prefix_hits: prefix(d), accepted: accepted(d) })));
  groups.show(found.groups);
  const box = $("#cards");
  const selected = getSelection();
  if (selected.isCollapsed || !box.contains(selected.anchorNode)) update(box, found.deployments.map(card)); // else somebody is copying
  if (!found.deployments.length) fill(box, none("#compare"));
  if (location.hash && !isScrolled) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  isScrolled = true;
});
