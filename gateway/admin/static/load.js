import { num, many, short, ms, pct, sum, meter, tiles, frame, Table, livePage } from "./core.js";

const byLane = { key: (r) => r.lane + (r.reason ?? r.target ?? "") };
const lanes = new Table("#lanes", { waiting: (n, r) => [meter(n / r.max_queue), `${num(n)} of ${num(r.max_queue)}`], drained_per_s: (n) => (n == null ? "–" : `${short(n)} /s`), on_overload: (steps) => steps.join(" → ").replaceAll("_", " ") }, byLane);
const permits = new Table("#permits", { in_flight: (n, r) => [meter(n / r.limit), num(n)] });
const shed = new Table("#shed", {}, byLane);
const degraded = new Table("#degraded", {}, { key: (r) => r.step });
const targets = new Table("#targets", { target: (target, r) => `${target} ≤ ${ms(r.limit_ms)}` }, byLane);

livePage("load", (d) => {
  frame(d);
  const refused = sum(d.shed, "count");
  tiles(
    ["Waiting now", num(sum(d.queues, "waiting")), `in ${many(d.queues.length, "lane")}`],
    ["Forecast wait", ms(Math.max(0, ...d.queues.map((q) => q.predicted_wait_ms))), "longest of all lanes, for a new request"],
    ["In flight", num(sum(d.deployments, "in_flight")), `of ${num(sum(d.deployments, "limit"))} permits`],
    ["Shed", num(refused), d.requests.count ? `${pct(refused / d.requests.count)} of ${num(d.requests.count)}` : "no requests yet"]);
  lanes.show(d.queues);
  permits.show(d.deployments);
  shed.show(d.shed);
  degraded.show(Object.entries(d.degraded).map(([step, count]) => ({ step, count })));
  targets.show(d.slo);
});
