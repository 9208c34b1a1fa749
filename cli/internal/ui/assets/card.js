// What is known of the daemon or the topic that is chosen.

import { h } from "./dom.js";
import { age, brief, bytes, clock, plural, rate } from "./words.js";

let shown = "";

/** Fills the card; it is empty if nothing is chosen. */
export function card(root, picture, chosen) {
  const content = chosen.kind === "daemon" ? ofDaemon(picture, chosen.name) :
    chosen.kind === "topic" ? ofTopic(picture, chosen.name) : null;
  const next = JSON.stringify(content ?? null);
  // A card that hasn't changed keeps the selection of its text.
  if (next === shown) return;
  shown = next;
  const focused = root.contains(document.activeElement);
  root.replaceChildren(...(content ? draw(content) : []));
  if (focused) root.querySelector(".close")?.focus();
}

function draw({ kind, name, words, bad, facts }) {
  return [
    h("div", { class: "card" },
      h("h2", {}, h("span", { class: `kind ${kind}` }, kind), name,
        h("a", { class: "plain close", href: "#/crew", "aria-label": "Close the details" }, "×")),
      h("p", { class: bad ? "bad" : null }, words),
      h("dl", {}, ...facts.filter(([, value]) => value !== "" && value !== null)
        .flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]))),
  ];
}

function ofDaemon(picture, name) {
  const d = picture.daemons.find((one) => one.name === name);
  if (!d) return { kind: "daemon", name, words: "There is no daemon of this name.", bad: true, facts: [] };
  const now = new Date(picture.at);
  const since = (at) => (at ? age(now - new Date(at)) : null);
  const flows = picture.flows.filter((f) => f.daemon === name).sort((a, b) => b.rate - a.rate);
  return {
    kind: "daemon", name, bad: Boolean(d.problem),
    words: d.problem || d.doing || (d.state ? `It is ${d.state}.` : "It has never reported."),
    facts: [
      ["State", d.state ? `${d.state}${d.since ? ` for ${since(d.since)}` : ""}` : "unknown"],
      ["Runs", d.started ? `for ${since(d.started)}, as process ${d.pid}` : null],
      ["Restarts", d.restarts > 0 ? d.restarts : null],
      ["Processor", d.cpu >= 0 ? `${(d.cpu * 100).toFixed(1)} % of a core` : null],
      ["Memory", d.memoryBytes ? bytes(d.memoryBytes) : null],
      ["Shares both with", d.shares ? d.shares.filter((n) => n !== name).join(", ") : null],
      ["Last beat", d.beat ? `${since(d.beat)} ago` : null],
      ["Bus lag", d.lagNanoseconds >= 0 ? brief(d.lagNanoseconds / 1e6) : null],
      ["Version", d.version ?? null],
      ["Writes", flows.map((f) => `${f.topic} ${rate(f.rate)}`).join(", ") || "nothing of late"],
      ["Reads", picture.contracts.filter((c) => c.readers.includes(name)).map((c) => c.topic).join(", ")],
    ],
  };
}

function ofTopic(picture, name) {
  const t = picture.topics.find((one) => one.name === name);
  if (!t) return { kind: "topic", name, words: "There is no topic of this name.", bad: true, facts: [] };
  const contract = picture.contracts.find((c) => c.topic === name);
  const writers = picture.flows.filter((f) => f.topic === name).map((f) => f.daemon);
  return {
    kind: "topic", name, words: t.doc, bad: false,
    facts: [
      ["Rate", rate(t.rate)],
      ["Last minute", plural((t.series ?? []).reduce((sum, n) => sum + n, 0), "message")],
      ["Last", t.last ? clock(new Date(t.last), new Date(picture.at)) : "none"],
      ["Keys", contract?.kind === "state" ? t.keys : null],
      ["Writer", contract?.writer || (writers.length > 0 ? writers.join(", ") : "each daemon")],
      ["Readers", contract?.readers.join(", ") || "none but the command line"],
      ["Follow", `kubelot tap --topic ${name}`],
    ],
  };
}
