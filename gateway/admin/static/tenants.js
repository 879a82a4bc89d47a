import { $, h, fill, num, day, ago, state, empty, banner, Table, api, act, ask, known } from "./core.js";

const limits = (l) => Object.entries(l ?? {}).filter(([, v]) => typeof v === "number").map(([name, v]) => `${name.replaceAll("_", " ")} ${num(v)}`).join(", ") || "none";
const tenants = new Table("#tenants", { name: "Tenants", none: empty("No tenants", "Without tenants every caller is the same, and no key is asked for on this machine."), columns: [
  { id: "id", label: "Tenant", value: (t) => t.id },
  { id: "models", label: "Models", wrap: true, value: (t) => (t.models?.length ? t.models.join(", ") : "all") },
  { id: "lanes", label: "Lanes", value: (t) => (t.lanes?.length ? t.lanes.join(", ") : "all") },
  { id: "limits", label: "Limits", wrap: true, value: (t) => limits(t.limits) },
  { id: "requests_last_day", label: "Requests, last day", num: true, value: (t) => t.requests_last_day },
  { id: "keys", label: "Keys", num: true, value: (t) => t.keys.document + t.keys.store },
  { id: "new", label: "Action", show: (t) => h("button", { class: "plain", type: "button", "aria-label": `New key for ${t.id}`, onclick: () => make(t.id) }, "New key") },
] });
const table = new Table("#keyring", { name: "Keys", key: (k) => `${k.tenant}/${k.id}`, none: empty("No keys", "A key made here works on every replica within a second."), columns: [
  { id: "tenant", label: "Tenant", value: (k) => k.tenant },
  { id: "id", label: "Key", value: (k) => k.id },
  { id: "state", label: "State", value: (k) => k.state, show: (k) => state(k.state) },
  { id: "source", label: "Kept in", value: (k) => (k.source === "document" ? "the policy" : "the store") },
  { id: "created_at", label: "Made", value: (k) => k.created_at, show: (k) => (k.created_at ? `${ago(k.created_at)} by ${k.created_by ?? "?"}` : "–") },
  { id: "expires_at", label: "Expires", value: (k) => k.expires_at, show: (k) => (k.expires_at ? day(k.expires_at) : "never") },
  { id: "sha256_start", label: "SHA-256", value: (k) => k.sha256_start, show: (k) => h("span", { class: "mono" }, `${k.sha256_start}…`) },
  { id: "do", label: "Action", show: (k) => k.source === "store" && ["active", "expiring"].includes(k.state) && [
    h("button", { class: "plain", type: "button", "aria-label": `Rotate ${k.id}`, onclick: () => rotate(k) }, "Rotate"), h("button", { class: "plain danger", type: "button", "aria-label": `Revoke ${k.id}`, onclick: () => revoke(k) }, "Revoke")] },
] });

function once(made) {
  const dialog = h("dialog", { "aria-label": "New key" }, h("h2", {}, `Key ${made.id} of ${made.tenant}`), h("p", { class: "sub" }, "It is shown this once and kept nowhere. ", made.note ?? ""),
    h("p", {}, h("code", { id: "secret" }, made.key)), h("menu", {}, h("button", { type: "button", onclick: () => navigator.clipboard?.writeText(made.key) }, "Copy"), h("button", { class: "main", type: "button", onclick: () => dialog.remove() }, "I have it")));
  document.body.append(dialog);
  dialog.showModal();
}
const quietly = (work) => work.catch(() => {});
const made = (path, body) => quietly(act(path, { body }).then((key) => (once(key), load())));
async function make(tenant) {
  const given = await ask(`New key for ${tenant}`, "Name it after who will use it.", [{ name: "id", label: "Name", required: false }, { name: "days", label: "Expires after days (empty: never)", type: "number", required: false, more: { min: 1 } }], "Make key");
  if (given) made("/admin/api/keys", { tenant, ...(given.id && { id: given.id }), ...(given.days && { expires_in_s: Number(given.days) * 86400 }) });
}
async function rotate(k) {
  const given = await ask(`Rotate ${k.id}?`, "A new key is made; the old one goes on for a while.", [{ name: "hours", label: "Hours both are good", type: "number", value: "24", more: { min: 1 } }], "Rotate");
  if (given) made(`/admin/api/keys/${encodeURIComponent(k.tenant)}/${encodeURIComponent(k.id)}/rotate`, { overlap_s: Number(given.hours) * 3600 });
}
async function revoke(k) {
  const given = await ask(`Revoke ${k.id} of ${k.tenant}?`, "It stops working on every replica within a second. This cannot be taken back.", [{ name: "reason", label: "Reason", required: false }], "Revoke", { danger: true });
  if (given) quietly(act(`/admin/api/keys/${encodeURIComponent(k.tenant)}/${encodeURIComponent(k.id)}/revoke`, { body: given.reason ? { reason: given.reason } : {} }, "Revoked.").then(load));
}
$("#add").addEventListener("click", async () => {
  const given = await ask("New tenant", "It becomes part of the policy, as a revision of its own.", [{ name: "id", label: "Id" }, { name: "models", label: "Models, comma-separated (empty: all)", required: false }, { name: "reason", label: "Reason, for the history" }], "Add");
  if (!given) return;
  const { etag } = await api("/admin/api/policy");
  const models = given.models.split(",").map((m) => m.trim()).filter(Boolean);
  quietly(act("/admin/api/tenants", { headers: { "if-match": etag }, body: { id: given.id, reason: given.reason, ...(models.length && { models }) } }, "Added.").then(load));
});
async function load() {
  try {
    const [t, k] = await Promise.all([api("/admin/api/tenants"), api("/admin/api/keys")]);
    tenants.show(t.tenants);
    table.show(k.keys);
    banner("first", null);
  } catch (error) {
    banner("first", error.message, "bad");
    for (const id of ["#tenants", "#keyring"]) fill(id, empty("Not known", error.message));
  }
}
known.then(load);
