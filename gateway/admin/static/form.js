// The policy's form. The template #fields says which controls a route, lane, deployment or tenant has:
// data-path is a control's place in it; data-when "path=value value" shows the control only beside these choices, and
// data-initial is what it begins with then; data-owned leaves the document when its choice goes; data-scale 100 shows a
// share as a percentage.
import { $, h, button, fill, read, words } from "./core.js";

const TYPING_MS = 400;
const round = (value) => Number(value.toPrecision(12));
const steps = (path) => path.replaceAll(/\[(\d+)\]/g, ".$1").split(".");
const idOf = (candidate) => candidate.id ?? candidate;
const weightOf = (candidate) => candidate.weight ?? 1;
const BY_WEIGHT = ["weighted", "sticky"];

function put(tree, path, value) {
  const keys = steps(path);
  const last = keys.pop();
  const parent = keys.reduce((node, key) => (node[key] ??= {}), tree);
  if (value === undefined) delete parent[last]; else parent[last] = value;
}

// One value of the document: a number or a text in a field, or a choice among radio buttons.
class Control {
  constructor(section, element, at = section.at) {
    const { path, when, scale = 1, initial, owned, kind, options } = element.dataset;
    const [choice, values] = when?.split("=") ?? [];
    Object.assign(this, { section, element, path, full: `${at}.${path}`, scale: Number(scale), initial, isOwned: owned != null, isText: kind === "text", options });
    this.when = when && { path: choice, values: values.split(" ") };
    this.isChoice = element.tagName === "FIELDSET";
    this.why = h("p.why.bad", { id: `${this.full}-why`, hidden: true });
    element.append(this.why);
    if (this.isChoice) element.addEventListener("change", (event) => section.set(this, event.target.value));
    else this.bind($("input", element));
  }
  bind(input) {
    this.input = input;
    input.setAttribute("aria-describedby", this.why.id);
    const take = () => {
      clearTimeout(this.typing);
      this.typing = null;
      if (input.value.trim() !== this.taken) this.take(input.value.trim());
    };
    input.addEventListener("input", () => (clearTimeout(this.typing), (this.typing = setTimeout(take, TYPING_MS))));
    input.addEventListener("change", take);
  }
  take(text) {
    this.taken = text;
    const value = text === "" ? undefined : this.isText ? text : round(Number(text.replace("%", "")) / this.scale);
    this.isNaN = Number.isNaN(value);
    if (this.isNaN) this.complain([]);
    else this.section.set(this, value);
  }
  start() {
    if (this.options) return [...this.element.querySelectorAll("input")].at(-1)?.value;
    return this.initial === undefined ? undefined : this.isText || this.isChoice ? this.initial : Number(this.initial);
  }
  show(value) {
    if (this.isChoice) return this.element.querySelectorAll("input").forEach((radio) => (radio.checked = radio.value === value));
    const isHere = document.activeElement === this.input;
    if (this.typing || (isHere && this.input.ariaInvalid)) return;
    const text = value == null ? "" : String(typeof value === "number" ? round(value * this.scale) : value);
    if (!isHere || this.taken === undefined) [this.input.value, this.isNaN] = [text];
    this.taken = this.input.value.trim();
  }
  // What a field with the focus cannot read is no part of the draft: an answer about an earlier draft does not clear it.
  complain(messages) {
    if (this.isNaN) messages = ["Must be a number."];
    this.why.hidden = !messages.length;
    fill(this.why, messages.join(" "));
    if (this.input) this.input.ariaInvalid = messages.length ? "true" : null;
  }
}

// One route, lane, deployment or tenant. Its controls are made when it is opened first.
class Section {
  constructor(form, group, index, id, open) {
    Object.assign(this, { form, group, index, id, at: `${group.dataset.kind}[${index}]`, controls: [], prices: [] });
    this.gist = h("span.sub");
    this.body = h("div");
    this.element = h("details", { id: `${group.dataset.kind}.${id}`, open, ontoggle: () => this.element.open && this.make() }, h("summary", h("b", id), " ", this.gist), this.body);
    if (open) this.make();
  }
  get item() {
    return this.form.policy[this.group.dataset.kind][this.index];
  }
  make() {
    if (this.controls.length) return;
    fill(this.body, [...this.group.cloneNode(true).children]);
    this.controls = [...this.body.querySelectorAll("[data-path]")].map((element) => new Control(this, element));
    for (const { full, element } of this.controls) for (const radio of element.querySelectorAll("[type=radio]")) radio.name = full;
    this.candidates = $("[data-candidates]", this.body);
    const why = this.candidates && $(".why", this.candidates);
    this.list = { full: `${this.at}.select.candidates`, element: this.candidates, complain: (messages) => ((why.hidden = !messages.length), fill(why, messages.join(" "))) };
    this.show(this.form.problems);
  }
  // Sets a value, or removes it where it is undefined, together with what the choice needs or no longer has.
  set(control, value) {
    const changes = [[control.full, value]];
    for (const other of this.controls.filter((one) => one.when?.path === control.path)) {
      const has = read(this.item, other.path) != null;
      if (!other.when.values.includes(value)) other.isOwned && changes.push([other.full, undefined]);
      else if (!has && other.start() !== undefined) changes.push([other.full, other.start()]);
    }
    const candidates = this.item.select?.candidates;
    if (control.path === "select.policy" && !BY_WEIGHT.includes(value) && candidates.some((one) => weightOf(one) !== 1)) changes.push([`${this.at}.select.candidates`, candidates.map(idOf)]);
    this.form.set(changes);
  }
  show(problems) {
    const { item } = this;
    fill(this.gist, this.group.dataset.kind === "routes" && [`${words(item.cache.mode === "off" ? "cache off" : item.cache.mode)}, ${words(item.select.policy)}`]);
    if (!this.controls.length) return;
    if (this.candidates) this.showCandidates(item.select.candidates);
    for (const group of this.body.querySelectorAll("[data-when]")) {
      const [path, values] = group.dataset.when.split("=");
      group.hidden = !values.split(" ").includes(read(item, path));
    }
    for (const control of this.controls) control.show(read(item, control.path));
    for (const { control, id } of this.prices) control.show(read(this.deployment(id), control.path));
    this.complain(problems);
  }
  // A message stands at the control of its path, else at the first one inside it, else only in the list above.
  complain(problems) {
    const controls = [...this.prices.map((one) => one.control), ...this.controls, ...(this.candidates ? [this.list] : [])];
    const inside = (long, short) => long === short || long.startsWith(`${short}.`) || long.startsWith(`${short}[`);
    const messages = new Map();
    for (const { path, message } of problems) {
      const isAt = ({ full, element }) => !element.closest("[hidden]") && inside(path, full);
      const found = controls.find(isAt) ?? (path.startsWith(`${this.at}.`) && controls.find(({ full, element }) => !element.closest("[hidden]") && inside(full, path)));
      if (found) messages.set(found, [...(messages.get(found) ?? []), `${message[0].toUpperCase()}${message.slice(1)}.`]);
    }
    for (const control of controls) control.complain(messages.get(control) ?? []);
  }

  // ── Candidates: which deployments, in which order, by which weight, at which price ──────────────────────────────
  deployment(id) {
    return this.form.policy.deployments.find((one) => one.id === id);
  }
  showCandidates(list) {
    const isWeighted = BY_WEIGHT.includes(this.item.select.policy);
    const others = this.form.policy.deployments.map(idOf).filter((id) => !list.some((one) => idOf(one) === id));
    const state = JSON.stringify([list, isWeighted, others]);
    if (state === this.listed) return;
    this.listed = state;
    const change = (next, focus) => {
      this.form.set([[`${this.at}.select.candidates`, next.map((one) => (weightOf(one) === 1 ? idOf(one) : { id: idOf(one), weight: one.weight }))]]);
      $(`[aria-label="${focus}"]`, this.candidates)?.focus();
    };
    const weight = (one) => h("label", "Weight ", h("input", { value: weightOf(one), size: 4, inputmode: "decimal", "aria-label": `Weight of ${idOf(one)}`,
      onchange: (event) => Number(event.target.value) > 0 && change(list.map((each) => (each === one ? { id: idOf(one), weight: Number(event.target.value) } : each)), `Weight of ${idOf(one)}`) }));
    const name = (verb, id) => `${verb} ${id}`;
    const row = (one, i) => h("li", h("span", idOf(one)), isWeighted && weight(one),
      i > 0 && button("Move up", () => change([...list.slice(0, i - 1), one, list[i - 1], ...list.slice(i + 1)], name("Move up", idOf(one))), { "aria-label": name("Move up", idOf(one)) }),
      list.length > 1 && button("Remove", () => change(list.filter((each) => each !== one)), { "aria-label": name("Remove", idOf(one)) }));
    fill($("ol", this.candidates), list.map(row));
    fill($("[data-others]", this.candidates), others.map((id) => button(`Add ${id}`, () => change([...list, id]))));
    for (const { element, full } of this.controls.filter((one) => one.options))
      fill($(".options", element), list.map((one) => h("label", h("input", { type: "radio", name: full, value: idOf(one) }), idOf(one))));
    this.showPrices(list.map(idOf));
  }
  showPrices(ids) {
    const box = $("[data-prices]", this.body);
    const price = (id, path, label) => h("div.field", { "data-path": `cost_per_mtok.${path}` }, h("label.field", `${id}, ${label}`, h("input", { inputmode: "decimal", autocomplete: "off" })));
    this.prices = ids.flatMap((id) => {
      const at = `deployments[${this.form.policy.deployments.findIndex((one) => one.id === id)}]`;
      return [["prompt", "prompt"], ["completion", "answer"]].map(([path, label]) => ({ id, control: new Control({ at, set: (control, value) => this.form.set([[control.full, value]]) }, price(id, path, label)) }));
    });
    fill($(".fields", box), this.prices.map((one) => one.control.element));
  }
}

export class PolicyForm {
  // `edit` gets changes of the document as [path, value]; an undefined value is removed.
  constructor(box, edit) {
    Object.assign(this, { box: $(box), edit, problems: [], sections: [] });
  }
  // The changes show at once; the checked draft follows.
  set(changes) {
    for (const [path, value] of changes) put(this.policy, path, value);
    this.refresh();
    this.edit(changes);
  }
  show(policy, problems = []) {
    if (policy) this.policy = structuredClone(policy);
    this.problems = problems;
    this.refresh();
  }
  refresh() {
    const groups = [...$("#fields").content.children];
    const items = JSON.stringify(groups.map((group) => this.policy[group.dataset.kind].map(idOf)));
    if (items === this.items) return this.sections.forEach((section) => section.show(this.problems));
    this.items = items;
    const open = new Set(this.sections.filter((one) => one.element.open).map((one) => one.element.id));
    this.sections = [];
    fill(this.box, groups.map((group) => {
      const { kind } = group.dataset;
      const made = this.policy[kind].map((item, i) => new Section(this, group, i, item.id, open.size ? open.has(`${kind}.${item.id}`) : kind === "routes" && i === 0));
      this.sections.push(...made);
      return made.length > 0 && [h("h3", group.title), made.map((one) => one.element)];
    }));
    for (const section of this.sections) section.show(this.problems);
  }
  // Opens and focuses what a path such as routes.faq.cache.ttl_s names.
  reveal(path) {
    const section = this.sections.find(({ element }) => path === element.id || path.startsWith(`${element.id}.`));
    if (!section) return;
    section.element.open = true;
    section.make();
    section.show(this.problems);
    const control = section.controls.find((one) => `${section.element.id}.${one.path}` === path && !one.element.closest("[hidden]"));
    (control?.element ?? section.element).scrollIntoView({ block: "center" });
    $(control?.isChoice ? "input:checked" : control ? "input" : "summary", control?.element ?? section.element)?.focus({ preventScroll: true });
  }
}
