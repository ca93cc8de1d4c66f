// The API's document, readable: a section per route, with the fields of its body.
import { fail, make } from "./dom.js";
import { ask, onKey } from "./server.js";

const MAX_DEPTH = 4;

async function load() {
  fail(null);
  const document_ = await (await ask("/openapi.json")).json();
  const sections = Object.entries(document_.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, route]) => section(document_, path, method, route)));
  document.getElementById("routes").replaceChildren(...sections);
}

function section(document_, path, method, route) {
  const details = make("details", { id: `${method}${path}` },
    make("summary", {}, make("code", {}, `${method.toUpperCase()} ${path}`), ` ${route.description ?? route.summary ?? ""}`));
  const schema = Object.values(route.requestBody?.content ?? {})[0]?.schema;
  if (schema) details.append(make("h2", {}, "Body"), fields(document_, schema, 0));
  for (const parameter of route.parameters ?? []) {
    details.append(make("p", {}, make("code", {}, parameter.name), ` in the ${parameter.in}`));
  }
  return details;
}

/** A schema with its reference followed. */
function resolved(document_, schema) {
  const name = schema.$ref?.split("/").pop();
  return name ? document_.components.schemas[name] ?? {} : schema;
}

function fields(document_, reference, depth) {
  const schema = resolved(document_, reference);
  const list = make("ul");
  const required = new Set(schema.required ?? []);
  for (const [name, value] of Object.entries(schema.properties ?? {})) {
    const field = resolved(document_, value);
    const item = make("li", {}, make("code", {}, name), ` ${kind(document_, value)}${required.has(name) ? ", required" : ""}`);
    if (field.description) item.append(`. ${field.description}`);
    if (depth < MAX_DEPTH && field.properties) item.append(fields(document_, value, depth + 1));
    list.append(item);
  }
  return list;
}

function kind(document_, reference) {
  const schema = resolved(document_, reference);
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return [...new Set(options.map((each) => kind(document_, each)))].join(" or ");
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${schema.items ? kind(document_, schema.items) : "anything"}`;
  return schema.title && schema.properties ? schema.title : schema.type ?? "anything";
}

onKey(() => load().catch(fail));
load().catch(fail);
