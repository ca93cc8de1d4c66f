// Line charts over time.
import { draw, make } from "./dom.js";

const WIDTH = 320;
const HEIGHT = 130;
const LEFT = 44;
const BOTTOM = 18;

/** A number as people read it. */
export function shown(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return size >= 10 || value === 0 ? value.toFixed(0) : value.toPrecision(2);
}

/**
 * A figure with one line per series; gaps where a value is null.
 * @param {string} title
 * @param {{name: string, values: (number|null)[]}[]} series
 * @param {number[]} times seconds since the epoch
 */
export function lineChart(title, series, times, unit = "") {
  const latest = times[times.length - 1] ?? 0;
  const first = Math.min(times[0] ?? 0, latest - 60);
  const values = series.flatMap((each) => each.values).filter((value) => value !== null);
  const top = Math.max(...values, 0) * 1.1 || 1;
  const x = (time) => LEFT + ((time - first) / (latest - first || 1)) * (WIDTH - LEFT - 6);
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - 8);
  const parts = [];
  for (const share of [0, 0.5, 1]) {
    const value = (top / 1.1) * share;
    parts.push(
      draw("line", { class: "grid", x1: LEFT, x2: WIDTH - 6, y1: y(value), y2: y(value) }),
      draw("text", { class: "tick", x: LEFT - 4, y: y(value) + 4, "text-anchor": "end" }, shown(value)),
    );
  }
  const minutes = Math.max(1, Math.round((latest - first) / 60));
  parts.push(
    draw("text", { class: "tick", x: LEFT, y: HEIGHT - 4 }, `${minutes} min ago`),
    draw("text", { class: "tick", x: WIDTH - 6, y: HEIGHT - 4, "text-anchor": "end" }, "now"),
  );
  series.forEach((each, number) => {
    let path = "";
    let pen = "M";
    each.values.forEach((value, index) => {
      if (value === null) { pen = "M"; return; }
      path += `${pen}${x(times[index]).toFixed(1)},${y(value).toFixed(1)}`;
      pen = "L";
    });
    parts.push(draw("path", { class: `line c${number}`, d: path }));
  });
  const last = (each) => each.values.findLast((value) => value !== null);
  const label = series.map((each) => `${each.name} ${shown(last(each))} ${unit}`.trim()).join(", ");
  const caption = make("figcaption", {}, title);
  series.forEach((each, number) =>
    caption.append(make("span", { class: `k${number}` }, `${each.name} ${shown(last(each))}${unit && ` ${unit}`}`)));
  return make("figure", {}, caption,
    draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: "100%", role: "img", "aria-label": `${title}: ${label}` }, ...parts));
}
