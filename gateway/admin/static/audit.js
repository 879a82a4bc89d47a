import { $, h, fill, num, day, none, facts, sub, mono, dot, plainButton, banner, Table, api, onClick, param, setParams, known } from "./core.js";

const PAGE = 100;
const MAX = 2000; // rows that a page keeps
let rows = [];
const find = $("#find");
const table = new Table("#entries", { seq: (seq, e) => plainButton(seq, () => show(e)), author: (author, e) => `${author} (${e.role})`, hash: (hash) => h("span.mono.muted", hash.slice(0, 8)) }, { key: (e) => e.seq, open: (e) => show(e) });
function draw() {
  table.show(rows.filter((e) => [e.author, e.action, e.target, e.reason].some((text) => String(text ?? "").toLowerCase().includes(find.value.toLowerCase()))));
  if (rows.length && !table.rows.length) fill("#entries", none("#one"));
}
const show = (e) => fill("#one", facts(["No.", num(e.seq)], ["When", day(e.at)], ["Who", `${e.author} (${e.role})`], ["Action", e.action], ["Target", e.target], ["Reason", e.reason], ["Hash", mono(e.hash)], ["Before", mono(e.previous)]), h("h3", "Detail"), h("pre", JSON.stringify(e.detail ?? {}, null, 1)));
async function load(before) {
  const found = await api(`audit?limit=${PAGE}&newest=true` + (before ? `&after=${Math.max(0, before - PAGE - 1)}` : ""));
  rows = [...(before ? rows : []), ...found.entries.filter((e) => !before || e.seq < before)].slice(0, MAX);
  $("#older").hidden = !rows.length || rows.at(-1).seq <= 1 || rows.length >= MAX;
  draw();
}
async function verify() {
  fill("#chain", sub("checking…"));
  const v = await api("audit/verify");
  fill("#chain", v.num_entries > 0 && (v.ok ? dot("good", `All ${num(v.num_entries)} entries verified`) : dot("bad", `Chain broken at entry ${num(v.broken_at)}: do not trust later entries`)));
}
const guarded = (work) => work.catch((error) => (banner("first", error.message, "bad"), fill("#chain")));
find.value = param("find");
find.addEventListener("input", () => (setParams({ find: find.value }), draw()));
onClick("#older", () => guarded(load(rows.at(-1).seq)));
onClick("#verify", () => guarded(verify()));
known.then(() => guarded(load().then(verify)));
