// The node's day: what the bus's history has of evictions, restarts and pressure, as lanes over the time and as a list.

import { h, keyed, s, set, text } from "./dom.js";
import { age, bytes, clock, plural } from "./words.js";

const LANES = {
  pressure: "Pressure", eviction: "Evictions", restart: "Restarts", daemon: "Daemons", ready: "Node ready",
};
const LASTING = ["pressure", "ready"];
const HOUR = 3600e3;

/** Makes the view in its section. */
export function dayView(root) {
  const update = (picture) => {
    const now = new Date(picture.at);
    const all = picture.happenings ?? [];
    text(root.querySelector("#day-words"), summary(picture, all, now));
    signals(root.querySelector("#signals"), picture.node.signals ?? []);
    lanes(root.querySelector("#lanes"), all, picture.from ? new Date(picture.from) : now, now);
    list(root.querySelector("#happenings"), all, now);
  };
  return { update };
}

function summary(picture, all, now) {
  if (!picture.from) return "The bus has no history yet.";
  const from = new Date(picture.from);
  const count = (kind) => all.filter((one) => one.kind === kind).length;
  const parts = [["eviction", "eviction"], ["restart", "restart"], ["pressure", "pressure change"]]
    .map(([kind, word]) => [count(kind), word]).filter(([n]) => n > 0).map(([n, word]) => plural(n, word));
  const what = parts.length > 0 ? parts.join(", ") : "nothing that a person must look at";
  return `The bus's history begins at ${clock(from, now)}, ${age(now - from)} ago. Since then: ${what}.`;
}

/** What evictions are decided by: how much is left, and the threshold. */
function signals(root, all) {
  keyed(root, all, (one) => one.name + (one.path ?? ""), (one) => h("div", { class: "signal" },
    h("p", {}, h("strong", {}, one.name), h("span", { class: "left" })),
    s("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("rect", { class: "all", width: 100, height: 6, rx: 1 }), s("rect", { class: "used", height: 6, rx: 1 }),
      s("rect", { class: "limit", width: 0.7, height: 6 })),
    h("small", {})),
  (child, one) => {
    const part = (n) => Math.min(100, (100 * n) / Math.max(1, one.capacity));
    const figure = (n) => (one.bytes ? bytes(n) : n.toLocaleString("en"));
    set(child, { class: `signal${one.under ? " under" : ""}` });
    text(child.querySelector(".left"), `${figure(one.available)} left`);
    set(child.querySelector(".used"), { width: (100 - part(one.available)).toFixed(1) });
    set(child.querySelector(".limit"), { x: one.limit ? (100 - part(one.limit)).toFixed(1) : -10 });
    const threshold = one.threshold ? `, evicts below ${one.threshold}` : "";
    text(child.querySelector("small"), `of ${figure(one.capacity)}${threshold}`);
  });
}

/** The span of time that is drawn: a day, or less if the history is short. */
function drawn(from, now) {
  const wanted = [HOUR / 4, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR];
  const length = wanted.find((l) => now - from <= l * 0.9) ?? 24 * HOUR;
  return { begin: new Date(now - length), length };
}

function lanes(root, all, from, now) {
  const { begin, length } = drawn(from, now);
  const at = (time) => `${Math.max(0, (100 * (time - begin)) / length).toFixed(2)}%`;
  const placed = (element, time) => {
    element.style.left = at(time);
    return element;
  };
  const before = h("div", { class: "before" });
  before.style.width = at(from);
  const count = (kind) => all.filter((one) => one.kind === kind).length;
  set(root, { "aria-label": `What happened since ${clock(from, now)}: ` +
    Object.entries(LANES).map(([kind, name]) => `${name} ${count(kind)}`).join(", ") });
  root.replaceChildren(
    ...Object.entries(LANES).map(([kind, name]) => h("div", { class: "lane" },
      h("span", { class: "label" }, name, h("span", { class: "count" }, String(count(kind)))),
      h("div", { class: "track" },
        ...(LASTING.includes(kind) ? spans(all, kind, now) : []).map(([a, b]) => {
          const span = placed(h("b"), a);
          span.style.width = `${(100 * (b - Math.max(a, begin))) / length}%`;
          return span;
        }),
        ...all.filter((one) => one.kind === kind && new Date(one.at) >= begin).map((one) => placed(
          h("i", { class: one.bad ? "bad" : "good", title: `${clock(new Date(one.at), now)} ${one.what}` }),
          new Date(one.at)))))),
    h("div", { class: "scale" }, before, ...ticks(begin, length).map((time) =>
      placed(h("span", {}, time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })), time))));
}

/** From when to when it was bad, for what lasts. */
function spans(all, kind, now) {
  const found = [];
  let since;
  for (const one of all.filter((other) => other.kind === kind)) {
    if (one.bad) since ??= new Date(one.at);
    else if (since) {
      found.push([since, new Date(one.at)]);
      since = undefined;
    }
  }
  return since ? [...found, [since, now]] : found;
}

function ticks(begin, length) {
  const step = [HOUR / 20, HOUR / 6, HOUR / 2, HOUR, 2 * HOUR, 4 * HOUR].find((one) => length / one <= 8);
  const zone = begin.getTimezoneOffset() * 60e3;
  const all = [];
  for (let t = Math.ceil((begin - zone) / step) * step + zone; t < begin.getTime() + length * 0.97; t += step) {
    all.push(new Date(t));
  }
  return all;
}

function list(root, all, now) {
  const latest = [...all].reverse();
  if (latest.length === 0) {
    root.replaceChildren(h("li", { class: "nothing", "data-key": "none" }, "Nothing that the bus remembers."));
    return;
  }
  keyed(root, latest, (one) => `${one.at} ${one.kind} ${one.what}`, (one) => h("li", { class: one.bad ? "bad" : null },
    h("time", { datetime: one.at }), h("span", { class: `kind ${one.kind}` }, one.kind),
    about(one)),
  (child, one) => text(child.querySelector("time"), clock(new Date(one.at), now)));
}

/** What happened, as a link to what it happened to. */
function about(one) {
  if (one.pod) return h("a", { href: `#/pods/${one.pod.uid}` }, one.what);
  if (one.daemon) return h("a", { href: `#/crew/daemon/${one.daemon}` }, one.what);
  return h("span", {}, one.what);
}
