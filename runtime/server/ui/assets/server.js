// Requests to the server, with the key that was typed.

const KEY = "ramet-api-key";
const field = document.getElementById("api-key");
field.value = sessionStorage.getItem(KEY) ?? "";

/** Calls back when the key has changed. */
export function onKey(callback) {
  document.getElementById("key")?.addEventListener("submit", (event) => event.preventDefault());
  field.addEventListener("change", () => {
    sessionStorage.setItem(KEY, field.value);
    callback();
  });
}

/** Asks the server. Rejects with the server's own message. */
export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (field.value) headers.authorization = `Bearer ${field.value}`;
  if (options.body !== undefined) headers["content-type"] = "application/json";
  const answer = await fetch(path, {
    ...options,
    headers,
    body: options.body === undefined ? undefined : JSON.stringify(options.body),
  });
  if (!answer.ok) {
    const text = await answer.text();
    let message = text;
    try { message = JSON.parse(text).error.message ?? text; } catch { /* not JSON */ }
    throw new Error(message || `${answer.status}`);
  }
  return answer;
}

/** Server-sent events of an answer, as parsed JSON. */
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const line = part.split("\n").find((each) => each.startsWith("data:"));
      if (line === undefined || line === "data: [DONE]") continue;
      yield JSON.parse(line.slice(5));
    }
  }
}
