import { $, h, fill, num, day, empty, facts, banner, Table, api, param, setParams, known } from "./core.js";

const PAGE = 100;
const MAX = 2000; // rows that a page keeps
let rows = [];
const find = $("#find");
const table = new Table("#entries", { name: "Audit log", key: (e) => e.seq, open: (e) => show(e), none: empty("Nothing was changed yet", "Policy revisions, keys, admins, purges and logins are written here, each with a hash of the one before."), columns: [
  { id: "seq", label: "No.", num: true, value: (e) => e.seq, show: (e) => h("button", { class: "plain", type: "button", onclick: () => show(e) }, e.seq) },
  { id: "at", label: "When", value: (e) => e.at, show: (e) => day(e.at) },
  { id: "author", label: "Who", value: (e) => e.author, show: (e) => `${e.author} (${e.role})` },
  { id: "action", label: "What", value: (e) => e.action },
  { id: "target", label: "Of", value: (e) => e.target },
  { id: "reason", label: "Why", wrap: true, value: (e) => e.reason },
  { id: "hash", label: "Hash", value: (e) => e.hash, show: (e) => h("span", { class: "mono muted" }, e.hash.slice(0, 12)) },
] });
const draw = () => table.show(rows.filter((e) => !find.value || [e.author, e.action, e.target, e.reason].some((text) => String(text ?? "").toLowerCase().includes(find.value.toLowerCase()))));
function show(e) {
  fill("#one", facts(["No.", num(e.seq)], ["When", day(e.at)], ["Who", `${e.author} (${e.role})`], ["What", e.action], ["Of", e.target], ["Why", e.reason], ["Hash", h("code", {}, e.hash)], ["Before", h("code", {}, e.previous)]), h("h3", {}, "Detail"), h("pre", {}, JSON.stringify(e.detail ?? {}, null, 1)));
}
async function load(before) {
  const found = await api(`/admin/api/audit?limit=${PAGE}&newest=true${before ? `&after=${Math.max(0, before - PAGE - 1)}` : ""}`);
  const fresh = found.entries.filter((e) => !before || e.seq < before);
  rows = (before ? [...rows, ...fresh] : fresh).slice(0, MAX);
  $("#older").hidden = !rows.length || rows.at(-1).seq <= 1 || rows.length >= MAX;
  draw();
}
async function verify() {
  fill("#chain", h("span", { class: "sub" }, "checking…"));
  const v = await api("/admin/api/audit/verify");
  fill("#chain", !v.num_entries ? null : v.ok ? h("span", { class: "dot good" }, `All ${num(v.num_entries)} entries hang together`) : h("span", { class: "dot bad" }, `Broken at entry ${num(v.broken_at)}: what follows cannot be trusted`));
}
const guarded = (work) => work.catch((error) => (banner("first", error.message, "bad"), fill("#chain")));
find.value = param("find");
find.addEventListener("input", () => (setParams({ find: find.value }), draw()));
$("#older").addEventListener("click", () => guarded(load(rows.at(-1).seq)));
$("#verify").addEventListener("click", () => guarded(verify()));
known.then(() => guarded(load().then(verify)));
