// types.mjs - src/answers.d.ts from the schemas of the HTTP API: what a page takes for an answer is what
// the server says that it answers.
import { readFileSync, writeFileSync } from "node:fs";

/** @type {Record<string, any>} */
const schemas = JSON.parse("{" + readFileSync(new URL("../src/command/schemas.json", import.meta.url), "utf8") + "}");
schemas.Code = { type: "string" };

/** @param {any} s @returns {string} */
function type(s) {
  if (s.$ref) return s.$ref.split("/").pop();
  if (s.anyOf) return s.anyOf.map(type).join(" | ");
  if ("const" in s) return JSON.stringify(s.const);
  if (s.enum) return s.enum.map((/** @type {string} */ v) => JSON.stringify(v)).join(" | ");
  if (Array.isArray(s.type)) return s.type.map((/** @type {string} */ t) => type({ type: t })).join(" | ");
  if (s.type === "array") return `(${type(s.items)})[]`;
  if (s.type === "object" && s.properties) {
    const members = Object.entries(s.properties).map(([k, v]) => `${k}${s.required?.includes(k) ? "" : "?"}: ${type(v)}`);
    return `{ ${members.join("; ")} }`;
  }
  if (s.type === "object") return `Record<string, ${s.additionalProperties ? type(s.additionalProperties) : "unknown"}>`;
  return { string: "string", integer: "number", number: "number", boolean: "boolean", null: "null" }[/** @type {string} */ (s.type)] ?? "unknown";
}

const lines = Object.entries(schemas).map(([name, s]) => `export type ${name} = ${type(s)};`);
writeFileSync(new URL("src/answers.d.ts", import.meta.url), `// Made by make console from src/command/schemas.json.\n${lines.join("\n")}\n`);
