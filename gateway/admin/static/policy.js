import { $, onClick, h, fill, update, num, many, pct, ms, day, ago, span, words, money, state, dot, empty, facts, sub, mono, button, plainButton, grid, none, banner, load, Table, api, act, popup, notify, save, known, param, setParams, keys } from "./core.js";
import { Chart } from "./chart.js";
import { PolicyForm } from "./form.js";

const editor = $("#yaml");
let inForce; // the answer of GET /admin/api/policy
let serial = 0;
const dirty = () => inForce && editor.value !== inForce.document;

// ── The form writes into the text ────────────────────────────────────────────────────────────────────────────────
let edits = Promise.resolve(); // one after the other
const form = new PolicyForm("#form", (changes) => {
  serial += 1; // a check under way is of an older text
  const set = changes.filter(([, value]) => value !== undefined).map(([path, value]) => ({ path, value }));
  const remove = changes.filter(([, value]) => value === undefined).map(([path]) => path);
  edits = edits.then(async () => {
    try {
      await draft((await api("policy/edit", { body: { document: editor.value, set, remove } })).document);
    } catch (error) {
      notify(error.message, "bad");
      await validate();
    }
  });
});

// ── Checking as one types ────────────────────────────────────────────────────────────────────────────────────────
function jump(line, column) {
  const lines = editor.value.split("\n");
  const before = lines.slice(0, line - 1).reduce((total, one) => total + one.length + 1, 0);
  editor.focus();
  editor.setSelectionRange(before + column - 1, before + (lines[line - 1] ?? "").length);
  editor.scrollTop = (line - 6) * 19;
}
const problems = (list) => h("ul", list.map((p) => h("li", p.line > 0 && [plainButton(`${p.line}:${p.column}`, () => jump(p.line, p.column), { class: "plain mono" }), " "], h("code", p.path), p.path && ": ", p.message)));
// What does not hold for all requests, with a request that shows it, and what is neither proven nor refuted.
const shownRequest = (request) => h("code", JSON.stringify(request));
const proof = (p) => {
  const [bad, open] = [p?.violations ?? [], p?.open_questions ?? []];
  if (!p) return false;
  if (!bad.length && !open.length) return sub("Proven for all requests.");
  const label = [bad.length && `${many(bad.length, "violation")} found`, open.length && `${many(open.length, "question")} open`].filter(Boolean).join(", ");
  const list = [...bad, ...open].map((v) => ({ ...v, message: [v.message, v.requests.map((r) => h("div", "Request: ", shownRequest(r)))] }));
  return h("details", h("summary", dot("warn", `Not proven for all requests: ${label}`)), problems(list));
};
const MARKS = { "+": "add", "-": "del", "@": "at" };
const unified = (text) => h("pre", { tabindex: 0, role: "group", "aria-label": "Text diff" }, text.split("\n").map((line) => h("span", { class: MARKS[line[0]] }, `${line}\n`)));
const changeList = (list) => h("ul", list.map((c) => h("li", c.text)));

let failing = []; // tests of the draft that fail, as paths, where nothing else is wrong with it
let changed = []; // what the draft changes
async function validate() {
  const mine = ++serial;
  const text = editor.value;
  const enable = (isGood) => {
    for (const id of ["plan", "reset", "patch"]) $(`#${id}`).disabled = !dirty();
    for (const id of ["apply", "try"]) $(`#${id}`).disabled = !dirty() || inForce.read_only || !isGood;
  };
  $("#patch").hidden = !inForce.read_only;
  [failing, changed] = [[], []];
  if (!dirty()) {
    enable(false);
    fill("#verdict", dot("good", `In force: revision ${inForce.revision.revision}`));
    fill("#diff", none("#diff"));
    return form.show(inForce.policy);
  }
  enable(!$("#apply").disabled);
  try {
    const found = await api("policy/check", { body: { document: text } });
    if (mine !== serial) return;
    form.show(found.policy, found.problems);
    const tests = found.problems.map((p) => p.path.match(/^tests\[\d+\]/)?.[0]);
    failing = found.policy && tests.every(Boolean) ? [...new Set(tests)] : [];
    enable(found.ok || failing.length > 0);
    if (!found.ok) fill("#verdict", failing.length ? dot("warn", `${many(failing.length, "test")} of the policy would fail`) : dot("bad", many(found.problems.length, "problem")), problems(found.problems));
    else fill("#verdict", dot("good", `Valid; ${many(found.num_tests, "test")} passed`), proof(found.proof));
    if (!found.policy) return fill("#diff", sub("The changes show once the draft can be read."));
    const diff = await api("policy/diff", { body: { document: text } });
    if (mine !== serial) return;
    changed = diff.changes.map((c) => c.text);
    fill("#diff", changed.length ? changeList(diff.changes) : sub("No effect: only comments or layout differ."), h("details", h("summary", "Text"), unified(diff.unified)));
  } catch (error) {
    if (mine === serial) fill("#verdict", dot("bad", error.message));
  }
}
let typing;
const draft = (text) => ((editor.value = text), validate());
editor.addEventListener("input", () => (clearTimeout(typing), (typing = setTimeout(validate, 300))));
addEventListener("beforeunload", (event) => dirty() && event.preventDefault());

// ── Plan, apply ──────────────────────────────────────────────────────────────────────────────────────────────────
const blast = (b) => facts(["Tenants", b.tenants === "all" ? "all" : b.tenants.join(", ") || "none"], ["Routes", b.routes.join(", ") || "none"],
  ["Requests of the last day", b.share_of_last_day == null ? "none yet" : `${pct(b.share_of_last_day)} of ${num(b.requests_last_day)} (known for ${span(b.known_for_s)})`]);
const REPLAYED = [["Cache hits", (s) => `${pct(s.hit_ratio)} ± ${pct(s.hit_ratio_error)}`], ["Cost of 1,000 requests", (s) => money(s.cost_per_1k)], ["Shed", (s) => pct(s.shed_ratio)], ["TTFT p50", (s) => ms(s.ttft_p50_ms)], ["TTFT p95", (s) => ms(s.ttft_p95_ms)],
  ["Deployments", (s) => Object.entries(s.deployments).map(([id, v]) => `${id} ${pct(v, 0)}`).join(", ")]];
// What the records say of the draft, with intervals; each figure may be unknown, with the reason.
const EVALUATED = { good_ratio: ["Good answers", (v) => pct(v, 2)], cost_per_1k: ["Cost of 1,000 requests", money], slow_ratio: ["Late first tokens", (v) => pct(v, 2)], ttft_ms: ["Time to first token", ms], wrong_hit_ratio: ["Wrong similar hits", (v) => pct(v, 2)] };
const bounded = (show, e) => (e.value == null ? "none" : `${show(e.value)} (${show(e.low)} to ${show(e.high)})`);
const signed = (show) => (v) => (v > 0 ? "+" : "") + show(v);
function evaluated({ recorded, new: draft, differences }) {
  if (draft.why_not) return [h("h3", "Evaluated from the records"), sub(`Not evaluated: ${draft.why_not}.`)];
  const before = Object.fromEntries(recorded.measures.map((m) => [m.name, m.estimate]));
  const apart = Object.fromEntries(differences.map((d) => [d.name, d.difference]));
  const rows = draft.measures.map(({ name, estimate: e, why_not: why }) => {
    const [label, show] = EVALUATED[name];
    return [label, before[name] ? bounded(show, before[name].doubly_robust) : "–", ...(why || !e ? ["unknown", "unknown"] : [bounded(show, e.doubly_robust), bounded(show, e.propensity)]), apart[name] ? bounded(signed(show), apart[name].doubly_robust) : "–", e ? num(Math.round(e.num_effective)) : "–", e ? pct(e.unseen) : "–"];
  });
  const known = draft.measures.filter((m) => m.estimate);
  const doubts = draft.measures.filter((m) => m.why_not).map((m) => h("li", `${EVALUATED[m.name][0]}: the records cannot tell: ${m.why_not}.`));
  return [h("h3", `Evaluated from ${num(draft.num_requests)} recorded requests`), grid("Evaluation", ["Figure", "In force", "Draft, doubly robust", "Draft, inverse propensity", "Draft less in force", "Effective requests", "Not recorded"], rows, 9),
    doubts.length > 0 && h("ul", doubts), sub("Each interval holds at 95 %, however often it is read. Times are those at the recorded load: a policy that moves many requests changes the load itself."),
    known.length > 0 && [h("h4", "Width of the interval by requests"), h("figure", { id: "widths" }), grid("Widths", ["Requests", ...known.map((m) => EVALUATED[m.name][0])], widths(known), 1)]];
}
const wide = ([low, high]) => high - low;
const widths = (known) => known[0].estimate.widths.filter((_, i, all) => (all.length - 1 - i) % 5 === 0).map(({ n }) => [num(n), ...known.map((m) => {
  const at = m.estimate.widths.findLast((point) => point.n <= n);
  return at ? EVALUATED[m.name][1](wide(at.doubly_robust)) : "–";
})]);
function drawWidths({ new: draft }) {
  const first = draft.measures.find((m) => m.estimate);
  if (!first) return;
  const [label] = EVALUATED[first.name];
  const line = (kind, name, tone) => ({ x: first.estimate.widths.map((p) => p.n), y: first.estimate.widths.map((p) => wide(p[kind])), name, tone, mode: "lines", hovertemplate: "%{y:.3f}" });
  new Chart("#widths", `Width of the interval of ${label.toLowerCase()} by the number of requests; the table below has the numbers.`)
    .draw([line("doubly_robust", "doubly robust", "accent"), line("propensity", "inverse propensity", "warn")], { xaxis: { type: "log", title: { text: `requests (${label.toLowerCase()})` } } });
}
const replay = (r) => [h("h3", `${num(r.num_requests)} recorded requests, replayed in ${r.took_s.toFixed(1)} s`), Object.entries(r.new.errors).map(([code, n]) => h("p.warn", `${num(n)} would be refused: ${code} (in force: ${r.old.errors[code] ?? 0})`)),
  grid("Replay", ["Measure", "In force", "Draft"], REPLAYED.map(([label, of]) => [label, of(r.old), of(r.new)]), 9), evaluated(r.estimates),
  h("p", r.moved.map((m) => `${num(m.count)} from ${m.route_from || "refused"} to ${m.route_to || "refused"}`).join("; ")), r.notes.map((note) => sub(note))];
const show = (...content) => {
  fill("#planned", ...content);
  $("#planned").closest(".card").scrollIntoView({ block: "nearest" });
};
// The draft without those of its own tests that would fail.
async function passing() {
  await edits;
  return failing.length ? (await api("policy/edit", { body: { document: editor.value, remove: failing } })).document : editor.value;
}
async function plan() {
  fill("#planned", sub("Replaying recent requests…"));
  try {
    const p = await api("policy/plan", { body: { document: await passing(), replay: true } });
    show(p.ok ? [p.blast_radius && blast(p.blast_radius), proof(p.proof), p.replay ? replay(p.replay) : sub(`No replay: ${p.replay_why_not}`)] : problems(p.problems));
    if (p.replay) drawWidths(p.replay.estimates);
  } catch (error) {
    fill("#planned", empty("No plan", error.message));
  }
}
async function commit(path, body, done, method) {
  try {
    await act(`policy${path}`, { method, headers: { "if-match": inForce.etag }, body }, done);
    watched = undefined; // an end that this page brings about is not news
    await refresh();
  } catch ({ error }) {
    const { conflict, problems: found } = error ?? {};
    if (conflict) show(h("h3", "Somebody else has applied a revision"), facts(["Revision", `${conflict.theirs.number} by ${conflict.theirs.author}: ${conflict.theirs.reason}`]), changeList(conflict.changes ?? []),
      button("Load that revision, keep my draft", () => refresh(editor.value)));
    else if (found) fill("#verdict", problems(found));
  }
}
const inShort = (texts) => (texts.length < 4 ? texts.join("; ") : `${texts.slice(0, 3).join("; ")}; and ${texts.length - 3} more`).slice(0, 500);
// Asks for a reason, with what the draft changes and which tests would go, then commits it.
async function submit(name, path, done, more, method) {
  await edits;
  const note = h("div", changed.length > 0 && h("ul", changed.slice(0, 8).map((text) => h("li", text))), changed.length > 8 && sub(`and ${num(changed.length - 8)} more`),
    failing.length > 0 && h("p.warn", `${many(failing.length, "test")} of the policy would fail and ${failing.length === 1 ? "is" : "are"} removed.`));
  const given = await popup(name, "", note, { reason: inShort(changed) });
  if (given) commit(path, { document: await passing(), reason: given.reason, ...more(given) }, done, method);
}
const apply = () => submit("apply", "", "Applied.", () => ({}), "PUT");

// ── Canary ───────────────────────────────────────────────────────────────────────────────────────────────────────
const tryOut = () => submit("try", "/canary", "The canary runs.", (given) => ({ percent: Number(given.percent) }));
async function end(verb) {
  const given = await popup(verb, "", "", { reason: $("#canary dd").textContent });
  if (given) commit(`/canary/${verb}`, { reason: given.reason }, verb === "promote" ? "Promoted." : "Stopped.");
}
const MEASURES = { error: "Failed requests", rejected: "Rejected requests", slow: "Slow first tokens", shed: "Refused for load", wrong: "Marked wrong by feedback", audit: "Found wrong by audits" };
const arm = (a) => a.count === 0 ? "none yet" : `${pct(a.ratio, 2)} of ${num(a.count)} (${pct(a.low, 2)} to ${pct(a.high, 2)})`;
const diffs = new Map(); // of canaries, by id
async function diffOf(c) {
  if (!diffs.has(c.id)) diffs.set(c.id, await api("policy/diff", { body: { document: c.document, against: c.base?.number } }).then((d) => d.changes ?? [], () => []));
  return diffs.get(c.id);
}
// One sentence from all measures: worse if one is, else whether there are enough requests.
function verdict({ state: is, guard, evidence: { metrics } }) {
  const worse = metrics.filter((m) => m.verdict === "worse").map((m) => MEASURES[m.name] ?? m.name);
  if (worse.length) return dot("bad", `Worse: ${worse.join(", ").toLowerCase()}`);
  const seen = Math.max(0, ...metrics.map((m) => m.new.count));
  if (metrics.every((m) => m.verdict === "too few")) return dot("muted", `Too few requests for a verdict: ${num(seen)} of ${num(guard?.min_requests ?? seen)}`);
  return dot("good", is === "running" ? `No worse so far, after ${many(seen, "request")}` : `No worse, after ${many(seen, "request")}`);
}
const canary = (c, diff) => h("div", { "data-key": c.id }, facts(["Verdict", verdict(c)], ["State", state(c.state)], ["Traffic", `${c.percent} % of requests` + (c.tenants ? ` of ${c.tenants.join(", ")}` : "")], ["Started", `by ${c.author}, ${ago(c.at)}: ${c.reason}`], ["Ended", c.ended_at && `${day(c.ended_at)} by ${c.ended_by}: ${c.why ?? ""}`]),
  c.state === "running" && h("div.bar-of-tools", { "data-edit": true }, button("Promote", () => end("promote"), { class: "main" }), button("Stop", () => end("stop"), { class: "danger" })),
  diff.length > 0 && [h("h3", c.base ? `Changes from revision ${c.base.number}` : "Changes"), changeList(diff)], h("h3", "Measured"),
  grid("Evidence", ["Measure", "In force", "Canary", "May rise by", "Verdict"], c.evidence.metrics.map((m) => [MEASURES[m.name] ?? m.name, arm(m.old), arm(m.new), pct(m.limit), h(m.verdict === "worse" ? "b.bad" : "span", m.verdict)]), 9));
const ended = (list) => h("details", { "data-key": "ended" }, h("summary", "Earlier canaries"), h("ul", list.map((one) => h("li", `${day(one.at)} by ${one.author}, ${words(one.state)}: ${[one.reason, one.why].filter(Boolean).join("; ")}`))));
let watched; // the canary that ran at the last refresh
async function watch() {
  const { canary: c, past } = await api("policy/canary");
  const shown = c ?? past[0];
  const earlier = past.slice(c ? 0 : 1);
  if (!shown) fill("#canary", none("#canary"));
  else update($("#canary"), [canary(shown, await diffOf(shown)), ...(earlier.length ? [ended(earlier)] : [])]);
  $("#canary").closest(".card").classList.toggle("first", Boolean(c));
  if (watched && !c && past[0]?.id === watched) {
    notify(`The canary has ended (${words(past[0].state)}): ${past[0].why ?? ""}`, past[0].state === "promoted" ? "good" : "bad");
    if (!dirty()) await refresh(null, true); // it may have become the policy in force
  }
  watched = c?.id;
}
setInterval(() => document.hidden || !watched || $("dialog[open]") || watch().catch((error) => banner("first", error.message)), 2000);

// ── History ──────────────────────────────────────────────────────────────────────────────────────────────────────
const link = (revision, r) => (r.number > 0 ? h("a.mono", { href: `?revision=${r.number}`, onclick: (e) => (e.preventDefault(), reveal(r.number)) }, revision) : mono(revision));
const history_ = new Table("#history", { revision: link, kind: (kind, r) => (r.of ? `${kind} of ${r.of}` : kind), do: (_, r) => r.number > 0 && r.revision !== inForce.revision.revision && plainButton("Roll back", () => back(r), { "aria-label": `Roll back to ${r.number}`, "data-edit": true }) }, { key: (r) => r.revision });
async function reveal(number) {
  setParams({ revision: number });
  try {
    const { revision: r, document: text, changes, unified: lines } = await api(`policy/revisions/${number}`);
    show(h("h3", `Revision ${number} by ${r.author}: ${r.reason}`), changeList(changes), unified(lines), button("Edit this revision", () => draft(text)));
  } catch (error) {
    show(empty("Not found", error.message));
  }
}
async function back(r) {
  const given = await popup("rollback", r.number, `By ${r.author}: ${r.reason}`, { reason: `back to revision ${r.number}` });
  if (given) commit("/rollback", { revision: r.number, reason: given.reason }, "Rolled back.");
}

// With `keeps`, what somebody has begun to write meanwhile stays.
const refresh = (text, keeps = false) => load(async () => {
  const newest = await api("policy");
  if (keeps && dirty()) text = editor.value;
  inForce = newest;
  banner("readonly", inForce.read_only && `${(inForce.read_only_why ?? "This policy is read only").replace(/^t/, "T")}.`, "calm");
  banner("bad", !inForce.status.is_current && `The newest revision is not in force: ${inForce.status.error}`, "bad");
  await draft(text ?? inForce.document);
  history_.show((await api("policy/revisions?limit=50")).revisions);
  await watch();
});
for (const [id, action] of Object.entries({ plan, apply, try: tryOut, reset: () => draft(inForce.document) })) onClick(`#${id}`, action);
onClick("#patch", async () => save("policy.patch", await api("policy/patch", { body: { document: editor.value }, text: true }), "text/x-diff"));
keys.set("p", plan);
const target = () => location.hash && form.reveal(decodeURIComponent(location.hash.slice(1)));
addEventListener("hashchange", target);
known.then(() => refresh()).then(() => (param("revision") ? reveal(param("revision")) : target()));
