// The reference of HTTP at /docs, drawn from /openapi.json.
import { el } from "/dom.js";

const METHODS = ["get", "put", "post", "delete", "patch"];
let all = null; // the document

const named = (reference) => reference.slice(2).split("/").reduce((at, key) => at[key], all);
const whole = (thing) => (thing.$ref ? named(thing.$ref) : thing);

// Text with `code` in it.
const words = (text) =>
  (text || "").split(/(`[^`]+`)/).map((part) => (part.startsWith("`") ? el("code", { text: part.slice(1, -1) }) : part));
const paragraphs = (text) =>
  (text || "").trim().split(/\n\s*\n/).filter(Boolean).map((one) => el("p", {}, words(one.replaceAll("\n", " "))));

const joined = (parts, between) => parts.flatMap((part, i) => (i ? [between, part] : [part]));

// What a value may be, in a few words.
function type(schema) {
  if (schema === true || !Object.keys(schema).length) return ["anything"];
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop();
    return [el("a", { href: "#schema-" + name, text: name })];
  }
  if ("const" in schema) return [el("code", { text: JSON.stringify(schema.const) })];
  if (schema.enum) return joined(schema.enum.map((one) => el("code", { text: JSON.stringify(one) })), " ");
  for (const [key, between] of [["oneOf", " or "], ["anyOf", " or "], ["allOf", " and "]])
    if (schema[key] && !schema.properties) return joined(schema[key].map(type), between);
  const types = [schema.type || "object"].flat();
  return joined(types.map((one) => {
    if (one === "array" && schema.items) return ["array of ", type(schema.items)];
    if (one === "object" && schema.additionalProperties && schema.additionalProperties !== true)
      return ["object of ", type(schema.additionalProperties)];
    return one;
  }), " or ");
}

const BOUNDS = [
  ["format", ""], ["minimum", "from "], ["maximum", "to "], ["minLength", "at least characters: "], ["maxLength", "at most characters: "],
  ["minItems", "at least items: "], ["maxItems", "at most items: "], ["pattern", "pattern "], ["default", "default "],
];
const bounds = (schema) =>
  BOUNDS.filter(([key]) => key in schema).map(([key, word]) => word + (key === "default" ? JSON.stringify(schema[key]) : schema[key])).join(", ");

const table = (caption, head, rows) =>
  rows.length === 0 ? null : el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", { class: "unseen", text: caption }),
      el("thead", {}, el("tr", {}, head.map((text) => el("th", { scope: "col", text })))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((cell) => el("td", {}, cell)))))));

function properties(caption, schema) {
  const required = new Set(schema.required || []);
  return table(caption, ["key", "value", "meaning"], Object.entries(schema.properties || {}).map(([name, one]) => [
    [el("code", { text: name }), required.has(name) ? el("span", { class: "dim", text: " required" }) : null],
    [type(one), bounds(one) ? el("span", { class: "dim", text: " " + bounds(one) }) : null],
    words(one.description),
  ]));
}

const content = (media) =>
  Object.entries(media || {}).map(([name, one]) => [el("code", { text: name }), ": ", type(one.schema || true), " "]);

function operation(path, shared, method, one) {
  const parameters = [...shared, ...(one.parameters || [])].map(whole);
  const title = method.toUpperCase() + " " + path;
  return el("details", { id: one.operationId, class: "card" },
    el("summary", {}, el("code", { class: "strong", text: title }), " ", words(one.summary)),
    paragraphs(one.description),
    table("Parameters of " + title, ["parameter", "value", "meaning"], parameters.map((p) => [
      [el("code", { text: p.name }), el("span", { class: "dim", text: ` ${p.in}${p.required ? ", required" : ""}` })],
      [type(p.schema || true), el("span", { class: "dim", text: " " + bounds(p.schema || {}) })], words(p.description),
    ])),
    one.requestBody ? el("p", {}, el("span", { class: "strong", text: "Body " }), content(whole(one.requestBody).content)) : null,
    table("Answers of " + title, ["status", "body", "meaning"], Object.entries(one.responses).map(([status, r]) =>
      [el("code", { text: status }), content(whole(r).content), words(whole(r).description)])));
}

const schemaCard = ([name, schema]) =>
  el("details", { id: "schema-" + name, class: "card" },
    el("summary", {}, el("code", { class: "strong", text: name })), paragraphs(schema.description),
    properties("Keys of " + name, schema) || el("p", {}, type(schema), " ", el("span", { class: "dim", text: bounds(schema) })));

function draw(main, nav) {
  const parts = all.tags.map((tag) => [tag.name, [el("h2", { id: "tag-" + tag.name, text: tag.name }), paragraphs(tag.description),
    Object.entries(all.paths).flatMap(([path, item]) => METHODS.filter((method) => item[method] && item[method].tags.includes(tag.name))
      .map((method) => operation(path, item.parameters || [], method, item[method])))]]);
  parts.push(["schemas", [el("h2", { id: "tag-schemas", text: "schemas" }), Object.entries(all.components.schemas).map(schemaCard)]]);
  nav.append(...parts.map(([name]) => el("a", { href: "#tag-" + name, text: name })));
  main.append(el("h1", { text: "HTTP reference" }), ...paragraphs(all.info.description), ...parts.flatMap(([, nodes]) => nodes).flat(3).filter(Boolean));
}

// What an address names is opened and shown.
function show() {
  const found = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!found) return;
  if (found.localName === "details") found.open = true;
  found.scrollIntoView();
}

const main = document.getElementById("main");
try {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw new Error("the daemon answered " + answer.status);
  all = await answer.json();
  main.replaceChildren();
  draw(main, document.getElementById("nav"));
  document.getElementById("version").textContent = "verifierd " + all.info.version;
  addEventListener("hashchange", show);
  show();
} catch (error) {
  main.replaceChildren(el("p", { class: "bad", text: "The description could not be read: " + error.message }));
}
