// chart.js - lines over the last minutes.
import { fill, h, svg } from "./dom.js";

const WIDTH = 600, HEIGHT = 120;

/**
 * @param {string} title
 * @param {(n: number) => string} spell
 */
export function chart(title, spell) {
  const values = h("span", { class: "values" });
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title });
  const top = h("span", { class: "top quiet" });
  const element = h("section", { class: "card chart" }, h("h2", {}, title), values, h("div", { class: "plot" }, picture, top));
  return {
    element,
    /** @param {{name: string, values: number[]}[]} lines the newest value last */
    draw(lines) {
      const highest = Math.max(1, ...lines.flatMap((l) => l.values));
      fill(picture, lines.map((line, i) => {
        const n = Math.max(2, line.values.length);
        const points = line.values.map((v, at) => `${((at + 300 - n) * WIDTH / 299).toFixed(1)},${(HEIGHT - 2 - v * (HEIGHT - 6) / highest).toFixed(1)}`);
        return svg("polyline", { class: `line line${i}`, points: points.join(" ") });
      }));
      fill(top, spell(highest));
      fill(values, lines.map((line, i) => h("span", { class: `value line${i}` }, h("i", { "aria-hidden": "true" }), `${line.name} `, h("b", {}, spell(line.values.at(-1) ?? 0)))));
    },
  };
}
