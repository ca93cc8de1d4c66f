// A request as a command or a program.

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** JSON as a Python expression. */
export function python(value, indent = 0) {
  const pad = "    ".repeat(indent + 1);
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value)) {
    if (!value.length) return "[]";
    return `[\n${value.map((each) => `${pad}${python(each, indent + 1)},\n`).join("")}${pad.slice(4)}]`;
  }
  if (typeof value === "object") {
    const entries = Object.entries(value);
    if (!entries.length) return "{}";
    return `{\n${entries.map(([key, each]) => `${pad}${JSON.stringify(key)}: ${python(each, indent + 1)},\n`).join("")}${pad.slice(4)}}`;
  }
  return String(value);
}

export function asCurl(body, origin) {
  return `curl ${origin}/v1/chat/completions -H 'content-type: application/json' -d ${quoted(JSON.stringify(body))}\n`;
}

export function asPython(body, origin) {
  const { structured_outputs: extra, ...rest } = body;
  const fields = Object.entries(rest).map(([key, value]) => `    ${key}=${python(value, 1)},\n`).join("");
  const extras = extra ? `    extra_body=${python({ structured_outputs: extra }, 1)},\n` : "";
  return `from openai import OpenAI

client = OpenAI(base_url="${origin}/v1", api_key="none")
answer = client.chat.completions.create(
    model=client.models.list().data[0].id,
${fields}${extras})
print(answer.choices[0].message.content)
`;
}

export function asProgram(body, origin) {
  const options = [`max_tokens=${body.max_tokens}`, `temperature=${body.temperature}`];
  if (body.seed !== undefined) options.push(`seed=${body.seed}`);
  const schema = body.response_format?.json_schema?.schema;
  const { regex, grammar } = body.structured_outputs ?? {};
  const names = ["connect", "program"];
  let constraint = "";
  if (schema) { names.push("json"); constraint = `, json(${python(schema, 1)})`; }
  if (regex) { names.push("regex"); constraint = `, regex(${JSON.stringify(regex)})`; }
  if (grammar) { names.push("ebnf"); constraint = `, ebnf(${JSON.stringify(grammar)})`; }
  const turns = body.messages
    .filter((each) => each.role !== "tool" && each.content)
    .map((each) => `    s.${each.role}(${JSON.stringify(each.content)})\n`)
    .join("");
  return `from ramet import ${names.sort().join(", ")}


@program
def ask(s):
${turns}    return s.gen("answer"${constraint}, ${options.join(", ")})


print(ask.run(backend=connect("${origin}")).result)
`;
}
