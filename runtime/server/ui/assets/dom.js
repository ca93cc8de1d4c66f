// Elements, and the line for what fails.

const problem = document.getElementById("problem");

/** Shows an error; null takes it away. */
export function fail(error) {
  if (error?.name === "AbortError") return;
  problem.textContent = error ? String(error.message ?? error) : "";
  problem.hidden = !error;
}

/** An element with attributes and children; texts are never markup. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";
export function draw(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
