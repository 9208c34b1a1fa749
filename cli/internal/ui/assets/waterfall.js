// A pod's start as a waterfall: a table whose middle column has the bars, so that it can be read as well as seen.

import { h } from "./dom.js";
import { brief } from "./words.js";

const WORDS = {
  admit: "admitted", volumes: "volumes", sandbox: "sandbox and network", pull: "image", create: "create",
  start: "start", probe: "probe", ready: "status says Ready",
};

/** The table of a start. What is under way lasts until now. */
export function waterfall(start, stages, now) {
  const spans = start.spans ?? [];
  if (spans.length === 0) {
    return h("p", { class: "nothing" }, start.partial ?
      "The bus's history doesn't reach back to it." : "Nothing has been done for it yet.");
  }
  const first = new Date(start.begin); // of the year 1 if nobody knows
  const begin = Math.min(...(first > 0 ? [first] : []), ...spans.map((s) => new Date(s.from)));
  const ended = spans.map((s) => (s.to ? new Date(s.to).getTime() : now.getTime()));
  const end = Math.max(begin + 1, ...ended, start.ready ? new Date(start.ready) : begin);
  const scale = { begin, length: end - begin };
  return h("div", {},
    h("p", { class: "split" }, split(start, spans, stages, begin, now)),
    h("table", { class: "waterfall" },
      h("thead", {}, h("tr", {},
        h("th", { scope: "col" }, "Step"), h("th", { scope: "col", class: "axis" }, axis(scale)),
        h("th", { scope: "col" }, "Took"))),
      h("tbody", {}, ...spans.map((span) => row(span, scale, now)))),
    start.partial ? h("p", { class: "hint" }, "The beginning is missing: the history is too short.") : null);
}

/** How long it took in all, and the stages that took most of it. */
function split(start, spans, stages, begin, now) {
  const whole = start.ready ? `Ready after ${brief(new Date(start.ready) - begin)}` :
    `Not ready after ${brief(now - begin)}`;
  const parts = stages.map((stage) => [WORDS[stage], union(spans.filter((s) => s.stage === stage), now)])
    .filter(([, took]) => took >= 1).sort((a, b) => b[1] - a[1]).slice(0, 3)
    .map(([word, took]) => `${word} ${brief(took)}`);
  return parts.length > 0 ? `${whole}. Most of it: ${parts.join(", ")}.` : `${whole}.`;
}

/** For how long at least one of the spans lasted, in milliseconds. */
function union(spans, now) {
  let sum = 0;
  let until = -Infinity;
  const times = spans.map((s) => [new Date(s.from).getTime(), s.to ? new Date(s.to).getTime() : now.getTime()]);
  for (const [from, to] of times.sort((a, b) => a[0] - b[0])) {
    sum += Math.max(0, to - Math.max(from, until));
    until = Math.max(until, to);
  }
  return sum;
}

/** The marks above the bars. */
function axis({ length }) {
  const rough = length / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const marks = [];
  for (let at = 0; at <= length * 0.93; at += step) {
    marks.push(placed(h("span", {}, at === 0 ? "0" : brief(at)), at / length));
  }
  return h("div", { class: "marks" }, ...marks);
}

function placed(element, from, width) {
  element.style.left = `${(100 * from).toFixed(2)}%`;
  if (width !== undefined) element.style.width = `${(100 * width).toFixed(2)}%`;
  return element;
}

function row(span, { begin, length }, now) {
  const from = new Date(span.from) - begin;
  const took = (span.to ? new Date(span.to) : now) - new Date(span.from);
  const open = span.to ? "" : " open";
  const look = `bar ${span.stage}${span.error ? " failed" : ""}${open}`;
  const bar = placed(h("div", { class: look }), from / length, took / length);
  const object = [span.object, span.image].filter(Boolean).join(", ");
  return h("tr", { class: span.error ? "failed" : null },
    h("th", { scope: "row" }, WORDS[span.stage] ?? span.stage, " ", object ? h("small", {}, object) : null),
    h("td", {}, h("div", { class: "track" }, h("span", { class: "unseen" }, `begins after ${brief(from)}`), bar),
      span.error ? h("p", { class: "error" }, span.error) : null),
    h("td", { class: "took" }, span.to ? brief(took) : `${brief(took)} …`));
}
