// The prefix cache as a picture: a row per leaf, prompts from left to right.
import { draw } from "./dom.js";
import { ask, events } from "./server.js";

const ROW = 18;
const MAX_WIDTH = 2400;

export async function showCache(signal) {
  const answer = await ask("/ui/data/cache", { signal });
  for await (const tree of events(answer)) {
    if (signal.aborted) return;
    render(tree);
  }
}

function render({ nodes, left_out: leftOut }) {
  const children = new Map();
  for (const node of nodes) {
    const list = children.get(node.parent) ?? [];
    list.push(node);
    children.set(node.parent, list);
  }
  const places = new Map();
  let row = 0;
  let longest = 1;
  // Depth first, without recursion: prompts may be long.
  const pending = (children.get(null) ?? []).map((node) => [node, 0]).reverse();
  const order = [];
  while (pending.length) {
    const [node, start] = pending.pop();
    places.set(node.id, { start, row });
    order.push(node);
    longest = Math.max(longest, start + node.tokens);
    const below = children.get(node.id) ?? [];
    if (!below.length) row += 1;
    for (const child of [...below].reverse()) pending.push([child, start + node.tokens]);
  }
  const rows = new Map(); // how many rows a node spans
  for (const node of [...order].reverse()) {
    const below = children.get(node.id) ?? [];
    rows.set(node.id, below.reduce((sum, child) => sum + rows.get(child.id), 0) || 1);
  }
  const total = nodes.reduce((sum, node) => sum + node.tokens, 0);
  document.getElementById("cache-summary").textContent =
    `${total.toLocaleString("en")} tokens in ${nodes.length} runs` +
    (leftOut ? `, ${leftOut} older ones left out` : "") + (nodes.length ? "" : ": send a request to see it grow");
  const scale = Math.min(2, MAX_WIDTH / longest);
  const svg = draw("svg", { width: Math.max(200, longest * scale + 2), height: Math.max(ROW, row * ROW), role: "group",
    "aria-label": "The tree of cached prefixes" });
  const kept = document.activeElement?.dataset?.node;
  for (const node of order) {
    const { start, row: top } = places.get(node.id);
    const heat = [0, 4, 16, 64].findIndex((limit) => node.age <= limit);
    const kinds = `node h${heat < 0 ? 4 : heat}${node.held ? " held" : ""}${node.next_use !== null ? " expected" : ""}`;
    const block = draw("rect", {
      class: kinds, x: start * scale + 1, y: top * ROW + 1, width: Math.max(1.5, node.tokens * scale - 1),
      height: rows.get(node.id) * ROW - 2, tabindex: 0, role: "button", "data-node": node.id,
      "aria-label": `${node.tokens} tokens, last use ${node.age} requests ago${node.held ? ", in use" : ""}`,
    });
    const tell = () => describe(node);
    block.addEventListener("click", tell);
    block.addEventListener("focus", tell);
    svg.append(block);
  }
  document.getElementById("tree").replaceChildren(svg);
  if (kept) svg.querySelector(`[data-node="${CSS.escape(kept)}"]`)?.focus({ preventScroll: true });
}

function describe(node) {
  const facts = document.getElementById("node-facts");
  facts.hidden = false;
  const lines = [
    `${node.tokens} tokens, ${node.pages} pages, ${node.hits} requests began with it`,
    node.age ? `last used ${node.age} requests ago` : "used by the last request",
    node.held ? "in use now" : "",
    node.next_use === null ? "" : `a program will use it again, in about ${Math.round(node.next_use)} requests`,
    node.tenant ? `tenant ${node.tenant}` : "",
    node.text === null ? "another tenant's text" : `\n${node.text}${node.tokens > 48 ? " …" : ""}`,
  ];
  facts.textContent = lines.filter(Boolean).join("\n");
}
