import { $, onClick, h, fill, num, many, pct, ms, day, ago, words, money, state, dot, empty, facts, sub, mono, button, plainButton, grid, none, banner, load, Table, api, act, openDialog, notify, save, read, known, param, setParams, keys } from "./core.js";

const editor = $("#yaml");
let inForce; // the answer of GET /admin/api/policy
let serial = 0;
const dirty = () => inForce && editor.value !== inForce.document;

// ── The form: numbers people change often, each a path of the document; the template says which ──────────────────
const inputs = new Map(); // "routes.faq.cache.ttl_s" → input

function field(label, kind, item, index) {
  const { path } = label.dataset;
  const [input, value] = [$("input,select", label), read(item, path)];
  input.value = input.dataset.was = value;
  input.addEventListener("change", () => set(`${kind}[${index}].${path}`, input, typeof value));
  inputs.set(`${kind}.${item.id}.${path}`, input);
  return label;
}
function buildForm() {
  inputs.clear();
  fill("#form", [...$("#fields").content.children].map((group) => {
    const { kind } = group.dataset;
    const items = (inForce.policy[kind] ?? []).map((item, index) => {
      const labels = [...group.cloneNode(true).querySelectorAll("label")].filter((label) => read(item, label.dataset.path) != null);
      return labels.length > 0 && h("details", { open: kind === "routes" && index < 2 }, h("summary", item.id), h("div.fields", labels.map((label) => field(label, kind, item, index))));
    });
    return items.some(Boolean) && [h("h3", group.title), items];
  }));
}
async function set(path, input, kind) {
  const text = input.value.trim();
  const value = kind === "number" ? Number(text) : text;
  if (kind === "number" && (text === "" || Number.isNaN(value))) return notify(`${path}: must be a number.`, "bad");
  try {
    editor.value = (await api("policy/edit", { body: { document: editor.value, set: [{ path, value }] } })).document;
    validate();
  } catch (error) {
    notify(error.message, "bad");
    input.value = input.dataset.was;
  }
}
function follow(changes) { // the form shows the draft
  for (const input of inputs.values()) input.value = input.dataset.was;
  for (const change of changes) {
    const input = inputs.get(change.path);
    if (input && change.new != null) input.value = change.new;
  }
}

// ── Checking as one types ────────────────────────────────────────────────────────────────────────────────────────
function jump(line, column) {
  const lines = editor.value.split("\n");
  const before = lines.slice(0, line - 1).reduce((total, one) => total + one.length + 1, 0);
  editor.focus();
  editor.setSelectionRange(before + column - 1, before + (lines[line - 1] ?? "").length);
  editor.scrollTop = (line - 6) * 19;
}
const problems = (list) => h("ul", list.map((p) => h("li", p.line > 0 && [plainButton(`${p.line}:${p.column}`, () => jump(p.line, p.column), { class: "plain mono" }), " "], h("code", p.path), p.path && ": ", p.message)));
const MARKS = { "+": "add", "-": "del", "@": "at" };
const unified = (text) => h("pre", { tabindex: 0, role: "group", "aria-label": "Text diff" }, text.split("\n").map((line) => h("span", { class: MARKS[line[0]] }, `${line}\n`)));
const changeList = (list) => h("ul", list.map((c) => h("li", c.text)));

async function validate() {
  const mine = ++serial;
  for (const id of ["plan", "reset", "patch", "apply", "try"]) $(`#${id}`).disabled = !dirty() || (inForce.read_only && ["apply", "try"].includes(id));
  $("#patch").hidden = !inForce.read_only;
  if (!dirty()) {
    fill("#verdict", dot("good", `As in force, revision ${inForce.revision.revision}`));
    fill("#diff", none("#diff"));
    return follow([]);
  }
  const body = { document: editor.value };
  try {
    const found = await api("policy/check", { body });
    if (mine !== serial) return;
    if (!found.ok) return fill("#verdict", dot("bad", many(found.problems.length, "problem")), problems(found.problems));
    fill("#verdict", dot("good", `Good; ${many(found.num_tests, "test")} of its own passed`));
    const diff = await api("policy/diff", { body });
    if (mine !== serial) return;
    follow(diff.changes);
    fill("#diff", diff.changes.length ? changeList(diff.changes) : sub("Nothing that has an effect; comments or layout only."), h("details", h("summary", "Text"), unified(diff.unified)));
  } catch (error) {
    if (mine === serial) fill("#verdict", dot("bad", error.message));
  }
}
let typing;
const draft = (text) => ((editor.value = text), validate());
editor.addEventListener("input", () => (clearTimeout(typing), (typing = setTimeout(validate, 300))));
addEventListener("beforeunload", (event) => dirty() && event.preventDefault());

// ── Plan, apply ──────────────────────────────────────────────────────────────────────────────────────────────────
const blast = (b) => facts(["Reaches", (b.tenants === "all" ? "all tenants; " : `${b.tenants.join(", ") || "no tenant"}; `) + (b.routes.length ? `routes ${b.routes.join(", ")}` : "no route")],
  ["Of the last day", b.share_of_last_day == null ? "not known yet" : `${pct(b.share_of_last_day)} of ${num(b.requests_last_day)} requests (${b.hours_known.toFixed(1)} h known)`]);
const REPLAYED = [["Cache hits", (s) => pct(s.hit_ratio)], ["of them wrong", (s) => pct(s.hit_ratio_error)], ["Cost of 1,000", (s) => money(s.cost_per_1k)], ["Shed", (s) => pct(s.shed_ratio)], ["TTFT p50", (s) => ms(s.ttft_p50_ms)], ["TTFT p95", (s) => ms(s.ttft_p95_ms)],
  ["Deployments", (s) => Object.entries(s.deployments).map(([id, v]) => `${id} ${pct(v, 0)}`).join(", ")]];
const replay = (r) => [h("h3", `${num(r.num_requests)} recorded requests, decided again in ${r.took_s.toFixed(1)} s`), grid("Replay", ["", "In force", "Draft"], REPLAYED.map(([label, of]) => [label, of(r.old), of(r.new)]), 9),
  r.moved.length > 0 && h("p", r.moved.map((m) => `${num(m.count)} from ${m.route_from} to ${m.route_to}`).join("; ")), r.notes.map((note) => sub(note))];
async function plan() {
  fill("#planned", sub("Replaying recent requests…"));
  try {
    const p = await api("policy/plan", { body: { document: editor.value, replay: true } });
    fill("#planned", p.ok ? [p.blast_radius && blast(p.blast_radius), p.replay ? replay(p.replay) : sub(`No replay: ${p.replay_why_not ?? "nothing was recorded"}`)] : problems(p.problems));
  } catch (error) {
    fill("#planned", empty("No plan", error.message));
  }
}
async function commit(path, body, done, method) {
  try {
    await act(`policy${path}`, { method, headers: { "if-match": inForce.etag }, body }, done);
    await refresh();
  } catch ({ error }) {
    const { conflict, problems: found } = error ?? {};
    if (conflict) fill("#planned", h("h3", "Somebody else applied a revision meanwhile"), facts(["Theirs", `${conflict.theirs.number} by ${conflict.theirs.author}: ${conflict.theirs.reason}`]), changeList(conflict.changes ?? []),
      button("Put my draft on top of theirs", () => refresh(editor.value)));
    else if (found) fill("#verdict", problems(found));
  }
}
async function apply() {
  const given = await openDialog("apply");
  if (given) commit("", { document: editor.value, reason: given.reason }, "Applied.", "PUT");
}

// ── Canary ───────────────────────────────────────────────────────────────────────────────────────────────────────
async function tryOut() {
  const given = await openDialog("try");
  if (given) commit("/canary", { document: editor.value, reason: given.reason, percent: Number(given.percent) }, "The canary runs.");
}
async function end(verb) {
  const given = await openDialog(verb);
  if (given) commit(`/canary/${verb}`, { reason: given.reason }, "Done.");
}
const arm = (a) => `${pct(a.ratio, 2)} of ${num(a.count)} (${pct(a.low, 2)} to ${pct(a.high, 2)})`;
const canary = (c) => [facts(["State", state(c.state)], ["Gets", `${c.percent} % of requests` + (c.tenants ? ` of ${c.tenants.join(", ")}` : "")], ["By", `${c.author}, ${ago(c.at)}: ${c.reason}`], ["Ended", c.ended_at && `${day(c.ended_at)} by ${c.ended_by}: ${c.why ?? ""}`]),
  grid("Evidence", ["", "In force", "Canary", "May rise by", "Verdict"], c.evidence.metrics.map((m) => [m.name, arm(m.old), arm(m.new), pct(m.limit), h(m.verdict === "worse" ? "b.bad" : "span", m.verdict)]), 9),
  c.state === "running" && h("div.bar-of-tools", button("Promote", () => end("promote"), { class: "main" }), button("Stop", () => end("stop"), { class: "danger" }))];
let watched; // the canary that ran at the last refresh
async function watch() {
  const { canary: c, past } = await api("policy/canary");
  const shown = c ?? past[0];
  fill("#canary", shown ? canary(shown) : none("#canary"), past.length > 1 && h("details", h("summary", "Earlier ones"), h("ul", past.slice(c ? 0 : 1).map((one) => h("li", `${day(one.at)} by ${one.author}, ${words(one.state)}: ${one.reason}; ${one.why}`)))));
  if (watched && !c && past[0]?.id === watched) notify(`The canary has ended (${words(past[0].state)}): ${past[0].why ?? ""}`, past[0].state === "promoted" ? "good" : "bad");
  watched = c?.id;
}
setInterval(() => document.hidden || !watched || $("#canary :focus, dialog[open]") || watch().catch((error) => banner("first", error.message)), 2000);

// ── History ──────────────────────────────────────────────────────────────────────────────────────────────────────
const link = (revision, r) => (r.number > 0 ? h("a.mono", { href: `?revision=${r.number}`, onclick: (e) => (e.preventDefault(), showRevision(r.number)) }, revision) : mono(revision));
const history_ = new Table("#history", { revision: link, kind: (kind, r) => (r.of ? `${kind} of ${r.of}` : kind), do: (_, r) => r.number > 0 && r.revision !== inForce.revision.revision && plainButton("Roll back", () => back(r), { "aria-label": `Roll back to ${r.number}` }) }, { key: (r) => r.revision });
async function showRevision(number) {
  setParams({ revision: number });
  try {
    const { revision: r, document: text, changes, unified: lines } = await api(`policy/revisions/${number}`);
    fill("#planned", h("h3", `Revision ${number} by ${r.author}: ${r.reason}`), changeList(changes), unified(lines), button("Take its text as draft", () => draft(text)));
    $("#planned").scrollIntoView({ block: "nearest" });
  } catch (error) {
    fill("#planned", empty("Not known", error.message));
  }
}
async function back(r) {
  const given = await openDialog("rollback", r.number, `By ${r.author}: ${r.reason}`);
  if (given) commit("/rollback", { revision: r.number, reason: given.reason }, "Rolled back.");
}

const refresh = (text) => load(async () => {
  inForce = await api("policy");
  banner("readonly", inForce.read_only && `${(inForce.read_only_why ?? "This policy is read only").replace(/^t/, "T")}.`, "calm");
  banner("bad", !inForce.status.is_current && `What is written is not in force: ${inForce.status.error}`, "bad");
  buildForm();
  draft(text ?? inForce.document);
  history_.show((await api("policy/revisions?limit=50")).revisions);
  await watch();
});
for (const [id, action] of Object.entries({ plan, apply, try: tryOut, reset: () => draft(inForce.document) })) onClick(`#${id}`, action);
onClick("#patch", async () => save("policy.patch", await api("policy/patch", { body: { document: editor.value }, text: true }), "text/x-diff"));
keys.set("p", plan);
known.then(() => refresh()).then(() => param("revision") && showRevision(param("revision")));
