// Lines over time by Plotly, which is fetched only once the rest of a page is there.
import { $, h, fill, sub } from "./core.js";

let library;
const plotly = () => (library ??= new Promise((resolve, reject) => {
  const src = $("[data-library]").dataset.library;
  document.head.append(h("script", { src, onload: () => resolve(window.Plotly), onerror: () => reject(new Error("The charting library did not load.")) }));
}));

function colour(name) {
  const probe = h(`i.${name}`, { hidden: true });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const settled = () => new Promise((resolve) => (window.requestIdleCallback ?? setTimeout)(resolve, { timeout: 500 }));

export class Chart { // `unit` "s": values are seconds, and shown as milliseconds where they are small
  constructor(selector, label, unit = "") {
    this.box = $(selector);
    this.box.setAttribute("role", "img");
    this.box.setAttribute("aria-label", label);
    this.unit = unit;
    document.addEventListener("theme", () => this.traces && this.draw(this.traces, this.layout));
  }
  get isDrawn() {
    return this.box.classList.contains("js-plotly-plot");
  }
  clear(text) { // what was drawn stays: a chart that comes and goes is harder to read than an old one
    if (!this.isDrawn) fill(this.box, text);
  }
  async draw(traces, layout = {}) {
    Object.assign(this, { traces, layout });
    if (this.busy || document.hidden) return;
    this.busy = true;
    try {
      if (!library) await settled();
      const draw = await plotly();
      if (!this.isDrawn) fill(this.box);
      const [color, line] = [colour("muted"), colour("line")];
      const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, automargin: true, fixedrange: true };
      const toned = ({ tone, ...trace }) => ({ ...trace, line: { color: colour(tone), width: 1.6 }, marker: { color: colour(tone), ...trace.marker } });
      await draw.react(this.box, this.traces.map(toned), {
        margin: { l: 8, r: 8, t: 4, b: 8 }, font: { color, size: 11, family: "system-ui, sans-serif" }, paper_bgcolor: "#0000", plot_bgcolor: "#0000", showlegend: true,
        legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, hovermode: "x unified", hoverlabel: { bgcolor: colour("surface"), bordercolor: line, font: { color: colour("text") } },
        ...this.layout, xaxis: { ...axis, showgrid: false, tickangle: 0, ...this.layout.xaxis }, yaxis: { ...axis, rangemode: "tozero", ticksuffix: this.unit, tickformat: this.unit && "~s", nticks: 5 },
      }, { displayModeBar: false, responsive: true });
    } catch (error) {
      fill(this.box, sub(error.message));
    } finally {
      this.busy = false;
    }
  }
}
