import { $, h, fill, api, known, param, session } from "./core.js";

const form = $("#login");
const next = param("next").startsWith("/admin/") ? param("next") : "/admin/";
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const submit = $("button", form);
  submit.disabled = true;
  try {
    await api("login", { body: Object.fromEntries(new FormData(form)) });
    location.replace(next);
  } catch (error) {
    fill("#why", h("div.banner.bad", error.message));
    submit.disabled = false;
    form.elements.password.select();
  }
});
known.then(() => {
  if (["open", "session"].includes(session.mode)) fill("#why", h("div.banner.calm", session.mode === "open" ? "No admin exists yet, so reading needs no login. " : "You are logged in. ", h("a", { href: next }, "Go on")));
  $("#oidc").hidden = !session.login?.oidc;
});
