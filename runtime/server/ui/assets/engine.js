// The engine's last hour.
import { ask } from "./server.js";
import { lineChart, shown } from "./chart.js";

const EVERY_MS = 5000;

const CHARTS = [
  ["Tokens per second", { output: "output_tokens_per_s", computed: "computed_tokens_per_s", forced: "forced_tokens_per_s" }],
  ["Requests", { running: "running", waiting: "waiting", compiling: "compiling" }],
  ["Requests per second", { ended: "requests_per_s", "within targets": "goodput" }],
  ["Cache hit rate", { hits: "hit_rate" }, "%", 100],
  ["KV cache", { used: "kv_used", "in use": "kv_held" }, "%", 100],
  ["Time to first token", "ttft", "ms", 1000],
  ["Time per later token", "tpot", "ms", 1000],
  ["Whole request", "e2e", "ms", 1000],
  ["Steps per second", { steps: "steps_per_s", "drafts accepted": "drafts_accepted_per_s" }],
];

export async function showEngine(signal) {
  const samples = [];
  while (!signal.aborted) {
    const since = samples.length ? samples[samples.length - 1].time : 0;
    const answer = await ask(`/ui/data/engine?since=${since}`, { signal });
    samples.push(...(await answer.json()).samples);
    render(samples.slice(-720));
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

function render(samples) {
  const times = samples.map((each) => each.time);
  const last = samples[samples.length - 1];
  document.getElementById("engine-summary").textContent = last
    ? `${shown(last.output_tokens_per_s)} output tokens/s, ${last.running} running, ${last.waiting} waiting, ` +
      `KV cache ${shown(100 * last.kv_used)} % used`
    : "The first figures come within ten seconds.";
  document.getElementById("charts").replaceChildren(
    ...CHARTS.map(([title, what, unit = "", scale = 1]) => {
      const scaled = (value) => (value === null || value === undefined ? null : value * scale);
      const series = typeof what === "string"
        ? ["p50", "p90", "p99"].map((q) => ({ name: q, values: samples.map((each) => scaled(each[what]?.[q])) }))
        : Object.entries(what).map(([name, key]) => ({ name, values: samples.map((each) => scaled(each[key])) }));
      return lineChart(title, series, times, unit);
    }),
  );
}
