import { h, fill, num, short, ms, pct, state, meter, empty, frame, Live, Table, onWindow, windowS, first } from "./core.js";

const lanes = new Table("#lanes", { name: "Lanes", key: (r) => r.lane, none: empty("No lanes", "The policy has none."), columns: [
  { id: "lane", label: "Lane", value: (r) => r.lane },
  { id: "weight", label: "Weight", num: true, value: (r) => r.weight },
  { id: "waiting", label: "Waiting", num: true, value: (r) => r.waiting, show: (r) => [meter(r.waiting / r.max_queue), `${num(r.waiting)} of ${num(r.max_queue)}`] },
  { id: "predicted_wait_ms", label: "A newcomer waits", num: true, value: (r) => r.predicted_wait_ms, show: (r) => ms(r.predicted_wait_ms) },
  { id: "drained_per_s", label: "Leaving", num: true, value: (r) => r.drained_per_s, show: (r) => (r.drained_per_s == null ? "–" : `${short(r.drained_per_s)} /s`) },
  { id: "waited", label: "Waited", num: true, value: (r) => r.wait.count, show: (r) => short(r.wait.count) },
  ...["p50_ms", "p95_ms", "p99_ms"].map((id) => ({ id, label: `Wait ${id.slice(0, 3)}`, num: true, value: (r) => r.wait[id], show: (r) => ms(r.wait[id]) })),
  { id: "ttft_slo_ms", label: "TTFT target", num: true, value: (r) => r.ttft_slo_ms, show: (r) => ms(r.ttft_slo_ms) },
  { id: "on_overload", label: "On overload", value: (r) => r.on_overload.join(" → ").replaceAll("_", " ") },
] });
const permits = new Table("#permits", { name: "Permits", none: empty("No deployments", "The policy names none."), columns: [
  { id: "id", label: "Deployment", value: (r) => r.id, show: (r) => h("a", { href: `/admin/deployments#${encodeURIComponent(r.id)}` }, r.id) },
  { id: "state", label: "State", value: (r) => r.state, show: (r) => state(r.state) },
  { id: "in_flight", label: "In flight", num: true, value: (r) => r.in_flight, show: (r) => [meter(r.in_flight / r.limit), num(r.in_flight)] },
  { id: "limit", label: "Limit", num: true, value: (r) => r.limit },
  { id: "waiting", label: "Waiting", num: true, value: (r) => r.waiting },
] });
const shed = new Table("#shed", { name: "Refused for load", key: (r) => r.lane + r.reason, none: empty("Nobody was refused", "Every request of this window found room in time."), columns: [
  { id: "lane", label: "Lane", value: (r) => r.lane || "–" }, { id: "reason", label: "Reason", value: (r) => r.reason.replaceAll("_", " ") }, { id: "count", label: "Count", num: true, value: (r) => r.count }] });
const degraded = new Table("#degraded", { name: "Degraded", key: (r) => r.step, none: empty("Everybody got what they asked for", "No step of a degrade ladder was taken in this window."), columns: [
  { id: "step", label: "Step", value: (r) => r.step.replaceAll("_", " ") }, { id: "count", label: "Requests", num: true, value: (r) => r.count }] });
const targets = new Table("#targets", { name: "Latency targets", key: (r) => r.lane + r.target, none: empty("No latency targets", "No lane of the policy has an slo."), columns: [
  { id: "lane", label: "Lane", value: (r) => r.lane }, { id: "target", label: "Target", value: (r) => `${r.target} ≤ ${ms(r.limit_ms)}` },
  { id: "ratio", label: "Met", num: true, value: (r) => r.ratio, show: (r) => pct(r.ratio) }, { id: "missed", label: "Missed", num: true, value: (r) => r.missed }, { id: "shed", label: "Shed", num: true, value: (r) => r.shed }] });

const tile = (label, value, sub) => h("div", { class: "tile" }, h("span", { class: "sub" }, label), h("b", {}, value), h("span", { class: "sub" }, sub));
function show(d) {
  frame(d);
  const sum = (list, name) => list.reduce((total, row) => total + row[name], 0);
  const longest = Math.max(0, ...d.queues.map((q) => q.predicted_wait_ms));
  fill("#tiles",
    tile("Waiting now", num(sum(d.queues, "waiting")), `in ${d.queues.length} lane${d.queues.length === 1 ? "" : "s"}`),
    tile("A newcomer waits up to", ms(longest), "by what is leaving now"),
    tile("In flight", num(sum(d.deployments, "in_flight")), `of ${num(sum(d.deployments, "limit"))} permits`),
    tile("Refused for load", num(sum(d.shed, "count")), d.requests.count ? `${pct(sum(d.shed, "count") / d.requests.count)} of ${num(d.requests.count)}` : "no requests yet"));
  lanes.show(d.queues);
  permits.show(d.deployments);
  shed.show(d.shed);
  degraded.show(Object.entries(d.degraded).map(([step, count]) => ({ step, count })));
  targets.show(d.slo);
}
const path = () => `/admin/api/load?window=${windowS()}`;
onWindow(() => (first(path(), show), feed.open()));
first(path(), show);
const feed = new Live("load", () => ({ window: windowS() }), show);
