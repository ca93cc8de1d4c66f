// Chat with the model: streaming, constraints, tools, and where each token came from.
import { fail, make } from "./dom.js";
import { ask, events } from "./server.js";
import { asCurl, asProgram, asPython } from "./snippets.js";

const field = (id) => document.getElementById(id);
const messages = []; // as they are sent
let running = null;
let constraintNumber = 0;
const MAX_TURNS = 8; // of one question, with tools that answer by themselves

export function startPlayground() {
  field("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = field("question").value.trim();
    if (!text || running) return;
    field("question").value = "";
    add({ role: "user", content: text });
    answer().catch(fail);
  });
  field("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      field("ask").requestSubmit();
    }
  });
  field("stop").addEventListener("click", () => running?.abort());
  field("clear").addEventListener("click", () => {
    running?.abort();
    messages.length = 0;
    field("messages").replaceChildren();
    field("token-facts").hidden = true;
    fail(null);
  });
  field("constraint").addEventListener("input", checkConstraint);
  field("constraint-kind").addEventListener("change", checkConstraint);
  field("tools").addEventListener("input", () => { readTools(); });
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", () => copy(button));
  }
}

function add(message, title = message.role) {
  messages.push(message);
  const item = make("li", { class: message.role }, make("h2", {}, title), message.content ?? "");
  field("messages").append(item);
  return item;
}

/** The body of the next request, as the settings say. */
export function body() {
  const system = field("system").value.trim();
  const found = {
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    temperature: Number(field("temperature").value),
    max_tokens: Number(field("max-tokens").value),
  };
  if (field("seed").value) found.seed = Number(field("seed").value);
  const constraint = readConstraint();
  if (constraint) Object.assign(found, constraint);
  const tools = readTools();
  if (tools?.length) found.tools = tools;
  return found;
}

function readConstraint() {
  const text = field("constraint").value.trim();
  switch (text ? field("constraint-kind").value : "none") {
    case "json_schema":
      return { response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema: JSON.parse(text) } } };
    case "regex":
      return { structured_outputs: { regex: text } };
    case "grammar":
      return { structured_outputs: { grammar: text } };
    default:
      return null;
  }
}

/** Checks the constraint while it is typed. */
async function checkConstraint() {
  const kind = field("constraint-kind").value;
  field("constraint-field").hidden = kind === "none";
  const state = field("constraint-state");
  const number = ++constraintNumber;
  await new Promise((resolve) => setTimeout(resolve, 250)); // until the typing pauses
  if (number !== constraintNumber) return;
  let text = "";
  let isBad = true;
  try {
    const constraint = readConstraint();
    isBad = false;
    if (constraint) {
      const result = await (await ask("/v1/grammar/check", { method: "POST", body: constraint })).json();
      isBad = !result.supported || result.empty === true;
      text = isBad ? [result.path, result.reason].filter(Boolean).join(": ") : `Exact. For example: ${result.sample}`;
    }
  } catch (error) {
    text = error.message;
    isBad = true;
  }
  if (number !== constraintNumber) return;
  state.textContent = text;
  state.className = isBad ? "bad" : "good";
}

function readTools() {
  const text = field("tools").value.trim();
  const state = field("tools-state");
  state.textContent = "";
  if (!text) return null;
  try {
    const tools = JSON.parse(text);
    if (!Array.isArray(tools)) throw new Error("a list is expected");
    return tools;
  } catch (error) {
    state.textContent = error.message;
    state.className = "bad";
    return null;
  }
}

async function answer() {
  fail(null);
  running = new AbortController();
  setRunning(true);
  try {
    for (let turn = 0; turn < MAX_TURNS; turn += 1) {
      const calls = await oneTurn(running.signal);
      if (!calls.length) return;
      if (field("step").checked) return showCalls(calls);
      for (const call of calls) addResult(call, field("mock").value);
    }
  } finally {
    running = null;
    setRunning(false);
  }
}

function setRunning(isRunning) {
  field("send").disabled = isRunning;
  field("stop").disabled = !isRunning;
}

/** One answer of the model; its tool calls. */
async function oneTurn(signal) {
  const request = { ...body(), stream: true, stream_options: { include_usage: true },
    logprobs: true, top_logprobs: 5, return_token_origins: true };
  const response = await ask("/v1/chat/completions", { method: "POST", body: request, signal });
  const message = { role: "assistant", content: "" };
  const item = make("li", { class: "assistant" }, make("h2", {}, "assistant"));
  const reasoning = make("details", {}, make("summary", {}, "Reasoning"));
  const reasoningText = make("div");
  reasoning.append(reasoningText);
  const tokens = make("div", { class: "tokens" });
  const calls = [];
  field("messages").append(item);
  item.append(tokens);
  let usage = null;
  for await (const chunk of events(response)) {
    if (chunk.error) throw new Error(chunk.error.message);
    usage = chunk.usage ?? usage;
    for (const choice of chunk.choices) {
      const { content, reasoning_content: thought, tool_calls: parts = [] } = choice.delta;
      if (thought) {
        if (!reasoning.isConnected) item.insertBefore(reasoning, tokens);
        reasoningText.textContent += thought;
      }
      if (content) message.content += content;
      const entries = choice.logprobs?.content ?? [];
      // Tokens of reasoning and of calls have entries, too, but belong elsewhere.
      if (content && entries.map((each) => each.token).join("") === content) {
        tokens.append(...entries.map(tokenElement));
      } else if (content) {
        tokens.append(content);
      }
      for (const part of parts) {
        const call = (calls[part.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
        call.id = part.id ?? call.id;
        call.function.name += part.function?.name ?? "";
        call.function.arguments += part.function?.arguments ?? "";
      }
    }
  }
  if (calls.length) message.tool_calls = calls;
  for (const call of calls) {
    item.append(make("div", { class: "call" }, `${call.function.name}(${call.function.arguments})`));
  }
  messages.push(message);
  if (usage) field("usage").textContent = describeUsage(usage);
  return calls;
}

function describeUsage(usage) {
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  const forced = usage.completion_tokens_details?.forced_tokens ?? usage.forced_tokens ?? 0;
  return `${usage.prompt_tokens} prompt tokens (${cached} cached), ${usage.completion_tokens} output tokens` +
    (forced ? ` (${forced} forced)` : "");
}

function tokenElement(entry) {
  const element = make("span", { class: `token ${entry.origin}`, tabindex: 0 }, entry.token);
  const tell = () => describeToken(entry);
  element.addEventListener("mouseenter", tell);
  element.addEventListener("focus", tell);
  return element;
}

function describeToken(entry) {
  const percent = (logprob) => `${(100 * Math.exp(logprob)).toFixed(1)} %`;
  const lines = [`${JSON.stringify(entry.token)}  ${entry.origin}, ${percent(entry.logprob)}`];
  if (entry.num_allowed !== null) lines.push(`the grammar allowed ${entry.num_allowed.toLocaleString("en")} tokens here`);
  for (const other of entry.top_logprobs) lines.push(`  ${percent(other.logprob).padStart(7)}  ${JSON.stringify(other.token)}`);
  field("token-facts").textContent = lines.join("\n");
  field("token-facts").hidden = false;
}

/** Asks for the result of each call; the model goes on when all are there. */
function showCalls(calls) {
  const form = make("form", { class: "results" });
  const inputs = calls.map((call) => {
    const input = make("textarea", { rows: 2 });
    input.value = field("mock").value;
    form.append(make("label", {}, `Result of ${call.function.name}(${call.function.arguments})`, input));
    return input;
  });
  form.append(make("button", { type: "submit" }, "Send results"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    form.remove();
    calls.forEach((call, index) => addResult(call, inputs[index].value));
    answer().catch(fail);
  });
  field("messages").append(make("li", { class: "tool" }, form));
  inputs[0].focus();
}

function addResult(call, content) {
  add({ role: "tool", tool_call_id: call.id, content }, `result of ${call.function.name}`);
}

async function copy(button) {
  try {
    const write = { curl: asCurl, openai: asPython, dsl: asProgram }[button.dataset.copy];
    await navigator.clipboard.writeText(write(body(), location.origin));
    const text = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = text; }, 1500);
  } catch (error) {
    fail(error);
  }
}
