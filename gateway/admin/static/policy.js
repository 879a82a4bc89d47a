import { $, h, fill, num, pct, ms, day, ago, money, state, empty, facts, banner, Table, api, act, ask, say, save, known, param, setParams, absent, keys } from "./core.js";

const editor = $("#yaml");
let inForce; // the answer of GET /admin/api/policy
let serial = 0;
const dirty = () => inForce && editor.value !== inForce.document;

// ── The form: numbers people change often, each a path of the document ───────────────────────────────────────────
const FIELDS = {
  routes: [["cache.mode", "Cache"], ["cache.ttl_s", "Kept for, s"], ["cache.max_error_ratio", "Wrong answers at most"], ["cache.audit_ratio", "Audited"], ["select.policy", "Selection"], ["select.min_quality", "Quality at least"], ["timeouts.first_token_ms", "First token within, ms"]],
  lanes: [["weight", "Weight"], ["max_queue", "Queue"], ["slo.ttft_p95_ms", "TTFT p95, ms"], ["slo.tpot_p95_ms", "Per token p95, ms"]],
  deployments: [["limits.max_in_flight", "In flight"], ["cost_per_mtok.prompt", "Price in"], ["cost_per_mtok.completion", "Price out"]],
  tenants: [["limits.requests_per_min", "Requests a minute"], ["limits.tokens_per_min", "Tokens a minute"], ["limits.max_in_flight", "In flight"]],
};
const CHOICES = { "cache.mode": ["off", "exact", "exact_then_semantic"] };
const at = (object, path) => path.split(".").reduce((value, key) => value?.[key], object);
const inputs = new Map(); // "routes.faq.cache.ttl_s" → input

function buildForm() {
  inputs.clear();
  fill("#form", Object.entries(FIELDS).map(([kind, fields]) => (inForce.policy[kind] ?? []).some((item) => fields.some(([path]) => at(item, path) != null)) && [h("h3", {}, kind[0].toUpperCase() + kind.slice(1)),
    (inForce.policy[kind] ?? []).map((item, index) => {
      const shown = fields.filter(([path]) => at(item, path) != null);
      return shown.length > 0 && h("details", { open: kind === "routes" && index < 2 }, h("summary", {}, item.id),
        h("div", { class: "fields" }, shown.map(([path, label]) => {
          const value = at(item, path);
          const props = { onchange: () => set(`${kind}[${index}].${path}`, input, typeof value) };
          const input = CHOICES[path] ? h("select", props, CHOICES[path].map((one) => h("option", { selected: one === value }, one))) : h("input", { ...props, value, inputmode: typeof value === "number" ? "decimal" : null });
          inputs.set(`${kind}.${item.id}.${path}`, input);
          input.dataset.was = value;
          return h("label", { class: "field" }, label, input);
        })));
    })]));
}
async function set(path, input, kind) {
  const text = input.value.trim();
  const value = kind === "number" ? Number(text) : text;
  if (kind === "number" && (text === "" || Number.isNaN(value))) return say(`${path}: a number is wanted.`, "bad");
  try {
    editor.value = (await api("/admin/api/policy/edit", { method: "POST", body: { document: editor.value, set: [{ path, value }] } })).document;
    judge();
  } catch (error) {
    say(error.message, "bad");
    input.value = input.dataset.was;
  }
}
function follow(changes) { // the form shows the draft
  for (const input of inputs.values()) input.value = input.dataset.was;
  for (const change of changes) {
    const input = inputs.get(change.path) ?? inputs.get(`${change.what}s.${change.id}.${change.path.split(".").slice(2).join(".")}`);
    if (input && change.new != null) input.value = change.new;
  }
}

// ── Checking as one types ────────────────────────────────────────────────────────────────────────────────────────
function jump(line, column = 1) {
  const before = editor.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  editor.focus();
  editor.setSelectionRange(before + column - 1, before + (editor.value.split("\n")[line - 1] ?? "").length);
  editor.scrollTop = (line - 6) * 19;
}
const problems = (list) => h("ul", {}, list.map((p) => h("li", {}, p.line > 0 && [h("button", { class: "plain mono", type: "button", onclick: () => jump(p.line, p.column) }, `${p.line}:${p.column}`), " "], h("code", {}, p.path), p.path && ": ", p.message)));
const unified = (text) => h("pre", { tabindex: 0, role: "group", "aria-label": "Text diff" }, text.split("\n").map((line) => h("span", { class: line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : line.startsWith("@") ? "at" : null }, `${line}\n`)));
const changeList = (list) => h("ul", {}, list.map((c) => h("li", {}, c.text)));

async function judge() {
  const mine = ++serial;
  buttons();
  if (!dirty()) {
    fill("#verdict", h("span", { class: "dot good" }, `As in force, revision ${inForce.revision.revision}`));
    fill("#diff", empty("No changes", "Edit the form or the text; both are checked as you type and nothing applies before you say so."));
    return follow([]);
  }
  const body = { document: editor.value };
  try {
    const found = await api("/admin/api/policy/check", { method: "POST", body });
    if (mine !== serial) return;
    if (!found.ok) return fill("#verdict", h("span", { class: "dot bad" }, `${found.problems.length} problem${found.problems.length > 1 ? "s" : ""}`), problems(found.problems));
    fill("#verdict", h("span", { class: "dot good" }, `Good; ${found.num_tests} test${found.num_tests === 1 ? "" : "s"} of its own passed`));
    const diff = await api("/admin/api/policy/diff", { method: "POST", body });
    if (mine !== serial) return;
    follow(diff.changes);
    fill("#diff", diff.changes.length ? changeList(diff.changes) : h("p", { class: "sub" }, "Nothing that has an effect; comments or layout only."), h("details", {}, h("summary", {}, "Text"), unified(diff.unified)));
  } catch (error) {
    if (mine === serial) fill("#verdict", h("span", { class: "dot bad" }, error.message));
  }
}
let typing;
editor.addEventListener("input", () => (clearTimeout(typing), (typing = setTimeout(judge, 300))));
addEventListener("beforeunload", (event) => dirty() && event.preventDefault());

// ── Plan, apply, canary ──────────────────────────────────────────────────────────────────────────────────────────
function buttons() {
  const changed = dirty();
  for (const id of ["plan", "reset", "patch"]) $(`#${id}`).disabled = !changed;
  for (const id of ["apply", "try"]) $(`#${id}`).disabled = !changed || inForce.read_only;
  $("#patch").hidden = !inForce.read_only;
}
const share = (value) => (value == null ? "–" : pct(value));
function blast(b) {
  return b && facts(["Reaches", `${b.tenants === "all" ? "all tenants" : b.tenants.join(", ") || "no tenant"}; ${b.routes.length ? `routes ${b.routes.join(", ")}` : "no route"}`],
    ["Of the last day", b.share_of_last_day == null ? "not known yet" : `${pct(b.share_of_last_day)} of ${num(b.requests_last_day)} requests (${b.hours_known.toFixed(1)} h known)`]);
}
function replay(r) {
  const rows = [["Cache hits", (s) => share(s.hit_ratio)], ["of them wrong", (s) => share(s.hit_ratio_error)], ["Cost of 1,000", (s) => money(s.cost_per_1k)], ["Shed", (s) => share(s.shed_ratio)], ["TTFT p50", (s) => ms(s.ttft_p50_ms)], ["TTFT p95", (s) => ms(s.ttft_p95_ms)],
    ["Deployments", (s) => Object.entries(s.deployments).map(([id, v]) => `${id} ${pct(v, 0)}`).join(", ")]];
  return [h("h3", {}, `${num(r.num_requests)} recorded requests, decided again in ${r.took_s.toFixed(1)} s`),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Replay" }, h("table", {}, h("thead", {}, h("tr", {}, ["", "In force", "Draft"].map((n) => h("th", { scope: "col" }, n)))),
      h("tbody", {}, rows.map(([label, of]) => h("tr", {}, h("th", { scope: "row" }, label), h("td", {}, of(r.old)), h("td", {}, of(r.new))))))),
    r.moved.length > 0 && h("p", {}, r.moved.map((m) => `${num(m.count)} from ${m.route_from} to ${m.route_to}`).join("; ")), r.notes.map((note) => h("p", { class: "sub" }, note))];
}
async function plan() {
  fill("#planned", h("p", { class: "sub" }, "Replaying what was asked lately…"));
  try {
    const p = await api("/admin/api/policy/plan", { method: "POST", body: { document: editor.value, replay: true } });
    fill("#planned", p.ok ? [blast(p.blast_radius), p.replay ? replay(p.replay) : h("p", { class: "sub" }, `No replay: ${p.replay_why_not ?? "nothing was recorded"}`)] : problems(p.problems));
  } catch (error) {
    fill("#planned", empty("No plan", error.message));
  }
}
async function commit(path, options, done) {
  try {
    await act(path, options, done);
    await load();
  } catch (error) {
    const conflict = error.error?.conflict;
    if (conflict) fill("#planned", h("h3", {}, "Somebody else applied a revision meanwhile"), facts(["Theirs", `${conflict.theirs.number} by ${conflict.theirs.author}: ${conflict.theirs.reason}`]), changeList(conflict.changes ?? []),
      h("button", { type: "button", onclick: () => load({ keep: true }) }, "Put my draft on top of theirs"));
    else if (error.error?.problems) fill("#verdict", problems(error.error.problems));
  }
}
const why = (title, text, button, fields = []) => ask(title, text, [...fields, { name: "reason", label: "Reason, for the history" }], button);
async function apply() {
  const given = await why("Apply this policy?", "It is in force on every replica within a second.", "Apply");
  if (given) await commit("/admin/api/policy", { method: "PUT", headers: { "if-match": inForce.etag }, body: { document: editor.value, reason: given.reason } }, "Applied.");
}
async function tryOut() {
  const given = await why("Try it on a part of the traffic?", "It ends by itself when it does measurably worse.", "Start canary", [{ name: "percent", label: "Percent of requests", value: "10", type: "number", more: { min: 1, max: 100 } }]);
  if (given) await commit("/admin/api/policy/canary", { headers: { "if-match": inForce.etag }, body: { document: editor.value, reason: given.reason, percent: Number(given.percent) } }, "The canary runs.");
}
function canary(c) {
  const end = async (verb, text) => {
    const given = await why(`${text} the canary?`, null, text);
    if (given) await commit(`/admin/api/policy/canary/${verb}`, { body: { reason: given.reason } }, "Done.");
  };
  const arm = (a) => `${pct(a.ratio, 2)} of ${num(a.count)} (${pct(a.low, 2)} to ${pct(a.high, 2)})`;
  return [facts(["State", state(c.state)], ["Gets", `${c.percent} % of requests${c.tenants ? ` of ${c.tenants.join(", ")}` : ""}`], ["By", `${c.author}, ${ago(c.at)}: ${c.reason}`], ["Ended", c.ended_at && `${day(c.ended_at)}: ${c.why ?? ""}`]),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Evidence" }, h("table", {}, h("thead", {}, h("tr", {}, ["", "In force", "Canary", "May rise by", ""].map((n) => h("th", { scope: "col" }, n)))),
      h("tbody", {}, c.evidence.metrics.map((m) => h("tr", {}, h("th", { scope: "row" }, m.name), h("td", {}, arm(m.old)), h("td", {}, arm(m.new)), h("td", {}, pct(m.limit)), h("td", { class: m.verdict === "worse" ? "bad" : "" }, m.verdict)))))),
    c.state === "running" && h("div", { class: "bar-of-tools" }, h("button", { class: "main", type: "button", onclick: () => end("promote", "Promote") }, "Promote"), h("button", { class: "danger", type: "button", onclick: () => end("stop", "Stop") }, "Stop"))];
}

// ── History ──────────────────────────────────────────────────────────────────────────────────────────────────────
const history_ = new Table("#history", { name: "Policy history", key: (r) => r.revision, none: empty("No history yet", "Each change that is applied appears here, with who made it and why."), columns: [
  { id: "number", label: "No.", num: true, value: (r) => r.number },
  { id: "revision", label: "Revision", value: (r) => r.revision, show: (r) => (r.number > 0 ? h("a", { class: "mono", href: `?revision=${r.number}`, onclick: (e) => (e.preventDefault(), look(r.number)) }, r.revision) : h("span", { class: "mono" }, r.revision)) },
  { id: "kind", label: "Kind", value: (r) => (r.of ? `${r.kind} of ${r.of}` : r.kind) },
  { id: "author", label: "By", value: (r) => r.author },
  { id: "at", label: "When", value: (r) => r.at, show: (r) => day(r.at) },
  { id: "reason", label: "Why", wrap: true, value: (r) => r.reason },
  { id: "back", label: "Action", show: (r) => r.number > 0 && r.revision !== inForce.revision.revision && h("button", { class: "plain", type: "button", "aria-label": `Roll back to ${r.number}`, onclick: () => back(r) }, "Roll back") },
] });
async function look(number) {
  setParams({ revision: number });
  try {
    const r = await api(`/admin/api/policy/revisions/${number}`);
    fill("#planned", h("h3", {}, `Revision ${number} by ${r.revision.author}: ${r.revision.reason}`), changeList(r.changes), unified(r.unified), h("button", { type: "button", onclick: () => ((editor.value = r.document), judge()) }, "Take its text as draft"));
    $("#planned").scrollIntoView({ block: "nearest" });
  } catch (error) {
    fill("#planned", empty("Not known", error.message));
  }
}
async function back(r) {
  const given = await why(`Roll back to revision ${r.number}?`, `By ${r.author}: ${r.reason}`, "Roll back");
  if (given) await commit("/admin/api/policy/rollback", { headers: { "if-match": inForce.etag }, body: { revision: r.number, reason: given.reason } }, "Rolled back.");
}

async function load({ keep = false } = {}) {
  const draft = editor.value;
  inForce = await api("/admin/api/policy");
  editor.value = keep ? draft : inForce.document;
  banner("readonly", inForce.read_only && `${(inForce.read_only_why ?? "This policy is read only").replace(/^t/, "T")}.`, "calm");
  banner("bad", !inForce.status.is_current && `What is written is not in force: ${inForce.status.error}`, "bad");
  buildForm();
  judge();
  history_.show((await api("/admin/api/policy/revisions?limit=50")).revisions);
  await api("/admin/api/policy/canary").then(({ canary: c, past }) => fill("#canary", c || past.length ? canary(c ?? past[0]) : empty("No canary", "A draft can be tried on a part of the traffic first; it ends by itself when it does measurably worse.")),
    (error) => fill("#canary", absent(error) ? empty("Not in this version", "This gateway has no canaries.") : empty("Not known", error.message)));
}
$("#plan").addEventListener("click", plan);
$("#apply").addEventListener("click", apply);
$("#try").addEventListener("click", tryOut);
$("#reset").addEventListener("click", () => ((editor.value = inForce.document), judge()));
$("#patch").addEventListener("click", async () => save("policy.patch", await api("/admin/api/policy/patch", { method: "POST", body: { document: editor.value }, text: true }), "text/x-diff"));
keys.set("p", () => $("#plan").click());
known.then(() => load()).then(() => param("revision") && look(param("revision")), (error) => banner("first", error.message, "bad"));
