import { $, h, fill, facts, onClick, copy, num, day, ago, words, button, plainButton, Table, api, act, popup, load, settle, known, segment } from "./core.js";

let access = {}; // who needs a key, and how many keys work
const limits = (l) => Object.entries(l ?? {}).filter(([, v]) => typeof v === "number").map(([name, v]) => `${words(name)} ${num(v)}`).join(", ") || "none";
const all = (list) => (list?.length ? list.join(", ") : "all");
const tenants = new Table("#tenants", { models: all, lanes: all, limits, do: (_, t) => plainButton("New key", () => make(t.id), { "aria-label": `New key for ${t.id}`, "data-edit": true }) });
const change = (label, action, k, style) => plainButton(label, () => action(k), { "aria-label": `${label} ${k.id}`, class: style, "data-edit": true });
const table = new Table("#keyring", { tenant: (t, k) => (k.has_tenant ? t : `${t} (not in the policy)`), source: (source) => (source === "document" ? "the policy" : "the store"), created_at: (at, k) => (at ? `${ago(at)} by ${k.created_by ?? "?"}` : "–"), expires_at: (at) => (at ? day(at) : "never"),
  do: (_, k) => k.source === "store" && ["active", "expiring"].includes(k.state) && [change("Rotate", rotate, k, "plain"), change("Revoke", revoke, k, "plain danger")] }, { key: (k) => `${k.tenant}/${k.id}` });

function once(made) {
  const dialog = h("dialog", { "aria-label": "New key" }, h("h2", `Key ${made.id} of ${made.tenant}`), h("p.sub", "Copy it now: it is shown once and not stored. ", made.note),
    h("p", h("code", { id: "secret" }, made.key)), h("menu", button("Copy", () => copy(made.key)), button("Done", () => dialog.remove(), { class: "main" })));
  dialog.addEventListener("cancel", (event) => event.preventDefault()); // a slip of the finger would lose the key
  document.body.append(dialog);
  dialog.showModal();
}
// A choice that a dialog shows where it has to be made; the fields of a hidden one are not sent.
const asks = (name, isShown) => (dialog) => isShown || $(`[data-ask=${name}]`, dialog)?.remove();
const isFirst = () => !access.is_required && !access.num_usable;
const needed = (given) => given.when && { required: given.when === "now" };
const make_ = (path, body) => settle(act(path, { body }).then((key) => (once(key), refresh())));
const pathOf = (k, verb) => `keys/${segment(k.tenant)}/${segment(k.id)}/${verb}`;
async function make(tenant) {
  const given = await popup("key", tenant, "", {}, asks("first", isFirst()));
  if (given) make_("keys", { tenant, ...(given.id && { id: given.id }), ...(given.days && { expires_in_s: Number(given.days) * 86400 }), ...needed(given) });
}
async function rotate(k) {
  const given = await popup("rotate", k.id);
  if (given) make_(pathOf(k, "rotate"), { overlap_s: Number(given.hours) * 3600 });
}
async function revoke(k) {
  const isLast = access.is_required && access.num_usable === 1;
  const given = await popup("revoke", `${k.id} of ${k.tenant}`, isLast && "It is the last key that works.", {}, asks("last", isLast && !access.why_required));
  if (given) settle(act(pathOf(k, "revoke"), { body: { ...(given.reason && { reason: given.reason }), ...(isLast && { then: given.then ?? "nobody" }) } }, "Revoked.").then(refresh));
}
async function decide(required) {
  const given = await popup(required ? "require" : "optional");
  if (given) settle(act("keys/requirement", { body: { required, reason: given.reason } }, required ? "Keys are required now." : "Keys are optional now.").then(refresh));
}
function showAccess() {
  const { is_required: required, num_usable: n, why_required: why } = access;
  const edit = { "data-edit": true };
  fill("#access", facts(["Calls without a key", required ? ["refused with 401", why && `, because ${why}`] : "served for programs on this machine, as the tenant dev"], ["Keys that work", num(n)]),
    required ? !why && h("p", button("Make keys optional", () => decide(false), edit)) : n > 0 && h("p", button("Require keys", () => decide(true), edit)));
}
onClick("#add", async () => {
  const given = await popup("tenant", "", "", {}, asks("first", isFirst()));
  if (!given) return;
  const { etag } = await api("policy");
  const models = given.models.split(",").map((m) => m.trim()).filter(Boolean);
  settle(act("tenants", { headers: { "if-match": etag }, body: { id: given.id, reason: given.reason, ...(models.length && { models }) } }, "The tenant is added.").then(() => (given.key ? act("keys", { body: { tenant: given.id, ...needed(given) } }).then(once) : null)).finally(refresh));
});
const refresh = () => load(async () => {
  const [t, k] = await Promise.all([api("tenants"), api("keys")]);
  tenants.show(t.tenants.map((one) => ({ ...one, num_keys: one.keys.document + one.keys.store })));
  access = k.access;
  showAccess();
  table.show(k.keys);
});
known.then(refresh);
