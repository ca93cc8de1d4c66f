// Runs of programs on the server, as timelines.
import { make } from "./dom.js";
import { ask } from "./server.js";

const EVERY_MS = 2000;
let shownRun = null;

export async function showPrograms(signal) {
  while (!signal.aborted) {
    const { runs } = await (await ask("/ui/data/runs", { signal })).json();
    list(runs, signal);
    if (shownRun === null && runs.length) await show(runs[0], signal);
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

function list(runs, signal) {
  const items = runs.map((run) => {
    const button = make("button", { type: "button" },
      `${run.program} · ${run.num_calls} calls · ${run.seconds.toFixed(2)} s${run.error ? " · failed" : ""}`);
    button.addEventListener("click", () => show(run, signal));
    return make("li", {}, button);
  });
  const old = document.getElementById("runs");
  if (old.childElementCount !== items.length || !old.contains(document.activeElement)) old.replaceChildren(...items);
  if (!runs.length) {
    document.getElementById("program-summary").textContent =
      "Programs sent to /v1/programs appear here, with a lane for each branch.";
  }
}

async function show(run, signal) {
  shownRun = run.id;
  const text = await (await ask(`/ui/data/runs/${encodeURIComponent(run.id)}`, { signal })).text();
  const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
  svg.querySelectorAll("script").forEach((each) => each.remove());
  document.getElementById("timeline").replaceChildren(document.adoptNode(svg));
  document.getElementById("program-summary").textContent =
    `${run.program}: ${run.num_calls} calls, ${run.prompt_tokens} prompt tokens (${run.cached_tokens} cached), ` +
    `${run.completion_tokens} output tokens, ${run.seconds.toFixed(3)} s${run.error ? `. ${run.error}` : ""}`;
}
