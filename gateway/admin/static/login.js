import { $, h, fill, api, known, param, session } from "./core.js";

const form = $("#login");
const next = param("next").startsWith("/admin/") ? param("next") : "/admin/";
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = $("button", form);
  button.disabled = true;
  try {
    await api("/admin/api/login", { method: "POST", body: Object.fromEntries(new FormData(form)) });
    location.replace(next);
  } catch (error) {
    fill("#why", h("div", { class: "banner bad" }, error.message));
    button.disabled = false;
    form.elements.password.select();
  }
});
known.then(() => {
  if (["open", "session"].includes(session.mode)) fill("#why", h("div", { class: "banner calm" }, session.mode === "open" ? "No admin exists yet, so reading needs no login. " : "You are logged in. ", h("a", { href: next }, "Go on")));
  if (session.login?.oidc) $("#oidc").hidden = false;
});
