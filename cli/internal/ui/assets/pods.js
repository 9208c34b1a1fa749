// The pods: those that somebody should look at first, and beside them the chosen one with its start.

import { h, keyed, pressed, rove, set, text } from "./dom.js";
import { podPage } from "./pod.js";
import { podState } from "./state.js";
import { age, brief, plural } from "./words.js";

const ORDER = ["waiting", "stopping", "ended", "gone", "ready"];

/** Makes the view in its section. */
export function podsView(root) {
  const list = root.querySelector("#list");
  const page = podPage(root.querySelector("#pod"));
  let before = "";

  const update = (picture, [chosen = ""]) => {
    const pods = sorted(picture.pods);
    text(root.querySelector("#pods-words"), summary(picture));
    cells(root.querySelector("#cells"), pods, chosen);
    root.classList.toggle("empty", pods.length === 0);
    const now = new Date(picture.at);
    keyed(list, pods, (p) => p.uid, makeLine, (child, p) => updateLine(child, p, p.uid === chosen, now));
    rove(list, "[role=option]");
    page.update(picture, chosen);
    if (chosen !== before) list.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
    before = chosen;
  };
  return { update };
}

function sorted(pods) {
  const rank = (p) => ORDER.indexOf(p.state) + (p.failed ? -0.5 : 0);
  return [...pods].sort((a, b) => rank(a) - rank(b));
}

function summary({ pods, synced }) {
  if (pods.length === 0) return synced ? "There are no pods on this node." : "";
  const count = (state) => pods.filter((p) => p.state === state).length;
  const parts = [
    [count("ready"), "ready"], [count("waiting"), "not ready"], [count("stopping"), "stopping"],
    [count("ended"), "ended"],
  ].filter(([n]) => n > 0).map(([n, word]) => `${n} ${word}`);
  return `${plural(pods.length, "pod")}: ${parts.join(", ")}.`;
}

/** A cell for each pod: the whole node at a glance. */
function cells(root, pods, chosen) {
  keyed(root, pods, (p) => p.uid,
    (p) => h("a", { href: `#/pods/${p.uid}`, tabindex: -1, title: p.name }),
    (cell, p) => set(cell, { class: `cell ${podState(p)}${p.uid === chosen ? " chosen" : ""}` }));
}

function makeLine(pod) {
  const act = () => (location.hash = `#/pods/${pod.uid}`);
  return h("li", { role: "option", onclick: act, onkeydown: pressed(act) },
    h("span", { class: "dot", "aria-hidden": "true" }),
    h("span", { class: "who" }, h("strong", {}, pod.name), h("small", {}, pod.namespace)),
    h("span", { class: "figure" }),
    h("span", { class: "cause" }));
}

function updateLine(child, pod, chosen, now) {
  set(child, { "aria-selected": String(chosen) });
  set(child.querySelector(".dot"), { class: `dot ${podState(pod)}` });
  text(child.querySelector(".figure"), figure(pod, now));
  text(child.querySelector(".cause"), pod.state === "ready" ? "" : pod.sentence || pod.phase);
}

/** What matters most of a pod, in a few letters: how long it took, or takes. */
function figure(pod, now) {
  const restarts = pod.restarts > 0 ? ` · ${plural(pod.restarts, "restart")}` : "";
  if (pod.state === "ready" && pod.readyAt && pod.begin) {
    return `ready in ${brief(new Date(pod.readyAt) - new Date(pod.begin))}${restarts}`;
  }
  if (pod.state === "waiting") return `${pod.ready}/${pod.total} for ${age(now - new Date(pod.firstSeen))}${restarts}`;
  return `${pod.phase || pod.state}${restarts}`;
}
