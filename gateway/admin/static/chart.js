// Lines over time by Plotly, which is fetched only once the rest of a page is there.
import { h, fill } from "./core.js";

let library;
const plotly = () => (library ??= new Promise((resolve, reject) => {
  const src = document.querySelector("[data-library]").dataset.library;
  document.head.append(h("script", { src, onload: () => resolve(window.Plotly), onerror: () => reject(new Error("The charting library did not load.")) }));
}));

export function colour(name) {
  const probe = h("i", { class: name, hidden: true });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const settled = () => new Promise((resolve) => (window.requestIdleCallback ?? setTimeout)(resolve, { timeout: 500 }));

export class Chart {
  constructor(selector, label, unit) {
    this.box = document.querySelector(selector);
    this.box.setAttribute("role", "img");
    this.box.setAttribute("aria-label", label);
    this.unit = unit;
    document.addEventListener("theme", () => this.traces && this.draw(this.traces, this.layout));
  }
  async draw(traces, layout = {}) {
    Object.assign(this, { traces, layout });
    if (this.busy || document.hidden) return;
    this.busy = true;
    try {
      if (!library) await settled();
      const draw = await plotly();
      if (!this.box.classList.contains("js-plotly-plot")) this.box.replaceChildren();
      const [text, line] = [colour("muted"), colour("line")];
      const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, fixedrange: true };
      await draw.react(this.box, this.traces.map(({ tone, ...trace }) => ({ ...trace, ...(tone && { line: { color: colour(tone), width: 1.6, ...trace.line }, marker: { color: colour(tone) } }) })), {
        margin: { l: 8, r: 8, t: 4, b: 8 }, font: { color: text, size: 11, family: "system-ui, sans-serif" }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 11 } }, hovermode: "x unified", hoverlabel: { bgcolor: colour("surface"), bordercolor: line, font: { color: colour("text") } },
        ...this.layout, xaxis: { ...axis, showgrid: false, ...this.layout.xaxis }, yaxis: { ...axis, rangemode: "tozero", ticksuffix: this.unit, nticks: 5, ...this.layout.yaxis },
      }, { displayModeBar: false, responsive: true });
    } catch (error) {
      fill(this.box, h("p", { class: "sub" }, error.message));
    } finally {
      this.busy = false;
    }
  }
}
