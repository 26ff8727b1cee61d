// openapi.mjs - reads /v1/openapi.json as a generated client would: is it OpenAPI 3.1, and is every
// route there and answers as it says? Calls each of them once with what the document says it takes.
//   node openapi.mjs URL    prints a JSON object: the status of each operation
import { Validator } from "@seriousme/openapi-schema-validator";
import Ajv from "ajv/dist/2020.js";

const base = process.argv[2];
const text = await (await fetch(base + "/v1/openapi.json")).text();
const doc = JSON.parse(text);

const validity = await new Validator().validate(JSON.parse(text));
if (!validity.valid) throw new Error(JSON.stringify(validity.errors));

// A member that no schema names is an error here; for clients it is none.
function close(schema) {
  if (schema === null || typeof schema !== "object") return;
  if (schema.properties && schema.additionalProperties === undefined) schema.additionalProperties = false;
  Object.values(schema).forEach(close);
}
close(doc.components.schemas);
const ajv = new Ajv({ strict: false });
ajv.addSchema(doc, "doc");
const compile = (schema) => ajv.compile(JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"doc#/')));

const samples = {
  ns: "n1", name: "l1", owner: "o1", id: "s1", table: "t", account: "0123456789abcdef", queue: "q",
  email: "a@b.example", peer: "127.0.0.1:1", verb: "read", fence: 1, priority: 14, level: 2, rules: "read *", kinds: "granted",
};
const special = {
  namespaceCreate: { name: "n1" }, namespaceUpdate: { description: "d" }, sessionOpen: { id: "s1" }, acquire: { owner: "o1", wait_ms: 1 },
  release: { owner: "o1" }, renew: { owner: "o1" }, check: { owner: "o1" }, body: { owner: "o1", body: "x" }, convert: { owner: "o1", mode: "shared" },
  accountCreate: { email: "a@b.example", name: "N", account: "0123456789abcdef" }, accountUpdate: { email: "c@d.example" }, logLevel: { level: "info" },
  txn: { session: "s1", statements: [{ assert: { set: { table: "t", key: "k", value: 1 } } }] }, clusterPriority: { priority: 14 },
  tokenCreate: { rules: "read *" }, clusterTransfer: { name: "n1" }, clusterAdd: { name: "n9", peer: "127.0.0.1:1" }, clusterLevel: { level: 2 },
  queuePush: {},
};
// What must be there before, and what takes it away.
const first = ["namespaceCreate", "sessionOpen", "acquire", "accountCreate", "tokenCreate", "txn", "renew", "check", "body", "convert", "glockAcquire", "glockAcquirePUT"];
const last = ["glockRelease", "release", "break", "sessionClose", "namespaceDelete", "tokenRotate", "tokenRevoke", "accountDelete", "authInit"];

const operations = [];
for (const [path, item] of Object.entries(doc.paths))
  for (const [method, operation] of Object.entries(item)) operations.push({ path, method, operation, id: operation.operationId });
const rank = (id) => (first.includes(id) ? first.indexOf(id) : last.includes(id) ? 1000 + last.indexOf(id) : 500);
operations.sort((a, b) => rank(a.id) - rank(b.id));
if (new Set(operations.map((o) => o.id)).size !== operations.length) throw new Error("an operationId is there twice");

let token = "none", fence = 1;
function request({ path, method, operation, id }) {
  const query = new URLSearchParams();
  let url = path;
  for (const p of operation.parameters) {
    let value = samples[p.name];
    if (path.startsWith("/v1/tokens/") && p.name === "id") value = token;
    if (path.startsWith("/v1/cluster/members/")) value = "n1";
    if (path.startsWith("/locks/") && p.name === "fence") value = fence;
    if (p.in === "path") url = url.replace(`{${p.name}}`, encodeURIComponent(value ?? "x"));
    else if (p.in === "query" && p.required) query.set(p.name, value);
  }
  if (id.startsWith("glockAcquire")) query.set("nonce", "x");
  if (id === "namespaceDelete") query.set("force", "true");
  const body = operation.requestBody?.content["application/json"] && (special[id] ?? {});
  if (body) {
    const ok = compile(operation.requestBody.content["application/json"].schema);
    if (!ok(body)) throw new Error(`${id}: the document does not take ${JSON.stringify(body)}: ${ajv.errorsText(ok.errors)}`);
  }
  return [base + url + (query.size ? "?" + query : ""), {
    method: method.toUpperCase(), body: body && JSON.stringify(body), headers: body ? { "Content-Type": "application/json" } : {},
  }];
}

const statuses = {};
for (const o of operations) {
  const [url, options] = request(o);
  const stop = new AbortController();
  const answer = await fetch(url, { ...options, signal: stop.signal });
  statuses[o.id] = answer.status;
  const told = o.operation.responses[answer.status] ?? o.operation.responses.default;
  if (answer.status < 300 && told === o.operation.responses.default) throw new Error(`${o.id}: ${answer.status} is not in the document`);
  const type = (answer.headers.get("content-type") ?? "").split(";")[0];
  if (type === "text/event-stream") {
    stop.abort();
    if (!told.content[type]) throw new Error(`${o.id}: a stream`);
    continue;
  }
  const bytes = await answer.text();
  if (!bytes) {
    if (told.content) throw new Error(`${o.id}: nothing came, and the document says ${JSON.stringify(told)}`);
    continue;
  }
  if (!told.content?.[type]) throw new Error(`${o.id}: ${answer.status} ${type} is not in the document: ${bytes}`);
  if (type !== "application/json") continue;
  const value = JSON.parse(bytes);
  const fits = compile(told.content[type].schema);
  if (!fits(value)) throw new Error(`${o.id}: ${ajv.errorsText(fits.errors)}: ${bytes}`);
  if (o.id === "tokenCreate") token = value.id;
  if (o.id.startsWith("glockAcquire")) fence = value.fence;
}
console.log(JSON.stringify(statuses));
