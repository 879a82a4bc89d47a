import { h, onClick, copy, num, day, ago, words, button, plainButton, Table, api, act, openDialog, load, ignoreFailure, known, segment } from "./core.js";

const limits = (l) => Object.entries(l ?? {}).filter(([, v]) => typeof v === "number").map(([name, v]) => `${words(name)} ${num(v)}`).join(", ") || "none";
const all = (list) => (list?.length ? list.join(", ") : "all");
const tenants = new Table("#tenants", { models: all, lanes: all, limits, do: (_, t) => plainButton("New key", () => make(t.id), { "aria-label": `New key for ${t.id}` }) });
const change = (label, action, k, style) => plainButton(label, () => action(k), { "aria-label": `${label} ${k.id}`, class: style });
const table = new Table("#keyring", { source: (source) => (source === "document" ? "the policy" : "the store"), created_at: (at, k) => (at ? `${ago(at)} by ${k.created_by ?? "?"}` : "–"), expires_at: (at) => (at ? day(at) : "never"),
  do: (_, k) => k.source === "store" && ["active", "expiring"].includes(k.state) && [change("Rotate", rotate, k, "plain"), change("Revoke", revoke, k, "plain danger")] }, { key: (k) => `${k.tenant}/${k.id}` });

function once(made) {
  const dialog = h("dialog", { "aria-label": "New key" }, h("h2", `Key ${made.id} of ${made.tenant}`), h("p.sub", "It is shown this once and stored nowhere. ", made.note),
    h("p", h("code", { id: "secret" }, made.key)), h("menu", button("Copy", () => copy(made.key)), button("I have it", () => dialog.remove(), { class: "main" })));
  dialog.addEventListener("cancel", (event) => event.preventDefault()); // a slip of the finger would lose the key
  document.body.append(dialog);
  dialog.showModal();
}
const make_ = (path, body) => ignoreFailure(act(path, { body }).then((key) => (once(key), refresh())));
const pathOf = (k, verb) => `keys/${segment(k.tenant)}/${segment(k.id)}/${verb}`;
async function make(tenant) {
  const given = await openDialog("key", tenant);
  if (given) make_("keys", { tenant, ...(given.id && { id: given.id }), ...(given.days && { expires_in_s: Number(given.days) * 86400 }) });
}
async function rotate(k) {
  const given = await openDialog("rotate", k.id);
  if (given) make_(pathOf(k, "rotate"), { overlap_s: Number(given.hours) * 3600 });
}
async function revoke(k) {
  const given = await openDialog("revoke", `${k.id} of ${k.tenant}`);
  if (given) ignoreFailure(act(pathOf(k, "revoke"), { body: given.reason ? { reason: given.reason } : {} }, "Revoked.").then(refresh));
}
onClick("#add", async () => {
  const given = await openDialog("tenant");
  if (!given) return;
  const { etag } = await api("policy");
  const models = given.models.split(",").map((m) => m.trim()).filter(Boolean);
  ignoreFailure(act("tenants", { headers: { "if-match": etag }, body: { id: given.id, reason: given.reason, ...(models.length && { models }) } }, "Added.").then(refresh));
});
const refresh = () => load(async () => {
  const [t, k] = await Promise.all([api("tenants"), api("keys")]);
  tenants.show(t.tenants.map((one) => ({ ...one, num_keys: one.keys.document + one.keys.store })));
  table.show(k.keys);
});
known.then(refresh);
