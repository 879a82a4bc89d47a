import { $, h, fill, api, known, param, segment, session } from "./core.js";

// The requested page: one of ours, or the overview. The browser brings its fragment along.
const [, link] = /^#link=([\w-]+)$/.exec(location.hash) ?? [];
const at = new URL(param("next") || "/admin/", location.origin);
const isOurs = at.origin === location.origin && /^\/admin\/(?!api\/|static\/|login$)[^\\]*$/.test(at.pathname) && !at.pathname.includes("//");
const next = isOurs ? at.pathname + at.search + (link ? "" : location.hash) : "/admin/";
const why = (text, tone = "bad") => fill("#why", h("div.banner", { class: tone }, text));

async function enter(path, body) {
  try {
    await api(path, { body });
    location.replace(next);
    return true;
  } catch (error) {
    why(error.message);
    return false;
  }
}
for (const [id, path] of [["login", "login"], ["token", "login/token"]]) {
  const form = $(`#${id}`);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const submit = $("button", form);
    submit.disabled = true;
    if (await enter(path, Object.fromEntries(new FormData(form)))) return;
    submit.disabled = false;
    $("[type=password]", form).select();
  });
}
function show() {
  const { password, oidc, token_path } = session.login;
  if (token_path) fill("#token-path", token_path);
  $("#login").hidden = !password;
  $("#by-token").open = !password && !oidc;
  $("#oidc").hidden = !oidc;
  $("#oidc a").href = `${oidc}?next=${segment(next)}`;
  const isOpen = session.mode === "open";
  if (!link && (isOpen || session.mode === "session")) why([isOpen ? "Reading needs no sign-in here, changes do. " : "You are signed in. ", h("a", { href: next }, "Continue")], "calm");
}
known.then(show);
if (link) {
  history.replaceState(null, "", location.pathname + location.search); // the secret leaves the address
  enter("login/links/redeem", { link });
}
