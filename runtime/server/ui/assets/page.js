// The page's frame: one view at a time, by tabs.
import { fail } from "./dom.js";
import { onKey } from "./server.js";
import { startPlayground } from "./playground.js";
import { showCache } from "./cache.js";
import { showEngine } from "./engine.js";
import { showPrograms } from "./programs.js";

const views = { cache: showCache, programs: showPrograms, engine: showEngine };
const tabs = [...document.querySelectorAll('[role="tab"]')];
let current = "playground";
let closing = null; // ends what the open view has running

function open(name) {
  current = name;
  closing?.abort();
  closing = new AbortController();
  fail(null);
  for (const tab of tabs) {
    const chosen = tab.getAttribute("aria-controls") === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
  views[name]?.(closing.signal).catch(fail);
  history.replaceState(null, "", `#${name}`);
}

tabs.forEach((tab, index) => {
  tab.addEventListener("click", () => open(tab.getAttribute("aria-controls")));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(index + step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
});

onKey(() => open(current));
startPlayground();
const wanted = location.hash.slice(1);
open(tabs.some((tab) => tab.getAttribute("aria-controls") === wanted) ? wanted : "playground");
