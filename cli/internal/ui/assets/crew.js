// The crew at work: daemons around the bus, and who says what to whom at which rate. The list of topics says the same
// in words.

import { edge, flow, light, pause } from "./arrows.js";
import { card } from "./card.js";
import { h, keyed, pressed, rove, s, set, text } from "./dom.js";
import { BOX, places } from "./geometry.js";
import { daemonState } from "./state.js";
import { plural, rate } from "./words.js";

/** Makes the view in its section. */
export function crewView(root) {
  const svg = root.querySelector("#picture");
  const ways = s("g", { class: "ways" });
  const nodes = s("g", { class: "nodes" });
  svg.append(ways, nodes);
  const motion = root.querySelector("#motion");
  motion.addEventListener("click", () => {
    const on = motion.getAttribute("aria-pressed") !== "true";
    set(motion, { "aria-pressed": String(on) });
    pause(on);
  });

  let picture;
  let chosen = {}; // a daemon or a topic
  let looked; // what the pointer or the focus is on, as chosen

  const choose = (kind, name) => {
    const again = chosen.kind === kind && chosen.name === name;
    location.hash = again ? "#/crew" : `#/crew/${kind}/${name}`;
  };
  const look = (at) => {
    looked = at;
    lightUp();
  };
  const lightUp = () => {
    const at = looked ?? chosen;
    for (const group of ways.children) light(group, concerns(group.edge, at), Boolean(at.name));
    for (const node of nodes.children) {
      node.classList.toggle("lit", at.kind === "daemon" && node.dataset.key === at.name);
    }
    if (picture) text(root.querySelector("#caption"), caption(picture, at));
  };

  return {
    update(next, [kind, name]) {
      picture = next;
      chosen = kind && name ? { kind, name } : {};
      const at = places(next.daemons.map((d) => d.name));
      text(root.querySelector("#crew-words"), summary(next));
      keyed(ways, edges(next, at), (e) => `${e.from}>${e.to}`,
        (e) => edge(at.get(e.from), at.get(e.to)),
        (group, e) => {
          group.edge = e;
          flow(group, next.bus.up ? e.rate : 0);
        });
      // The bus writes next to nothing itself: it carries what the others write.
      const carried = next.topics.reduce((sum, t) => sum + t.rate, 0);
      const daemons = next.daemons.map((d) => (d.name === "bus" ? { ...d, carries: carried } : d));
      keyed(nodes, daemons, (d) => d.name,
        (d) => nodeOf(d, at.get(d.name), choose, look),
        (node, d) => draw(node, d, chosen.kind === "daemon" && chosen.name === d.name));
      rove(nodes, "[role=button]");
      topics(root.querySelector("#topics"), next, chosen, choose, look);
      card(root.querySelector("#card"), next, chosen);
      lightUp();
    },
  };
}

/** A sentence on the whole crew. */
function summary(picture) {
  const known = picture.daemons.filter((d) => d.state);
  const all = picture.daemons.length;
  const ill = known.filter((d) => d.problem || d.state !== "healthy");
  const flows = rate(picture.topics.reduce((sum, t) => sum + t.rate, 0));
  if (known.length === 0) return "No daemon has reported yet.";
  if (ill.length > 0) return `${plural(ill.length, "daemon")} not healthy: ${ill.map((d) => d.name).join(", ")}.`;
  if (known.length < all) {
    return `Only ${known.length} of ${all} daemons ${known.length === 1 ? "has" : "have"} reported so far.`;
  }
  return `All ${all} daemons are healthy. Messages on the bus: ${flows}.`;
}

/** The ways between daemons, with the topics on them. What each daemon says to several others, its health, has none. */
function edges(picture, at) {
  const rates = new Map(picture.topics.map((t) => [t.name, t.rate]));
  const all = new Map();
  for (const { topic, writer, readers } of picture.contracts) {
    if (!writer || !at.has(writer)) continue;
    for (const reader of readers.filter((r) => r !== writer && at.has(r))) {
      const key = `${writer}>${reader}`;
      const one = all.get(key) ?? { from: writer, to: reader, topics: [], rate: 0 };
      one.topics.push(topic);
      one.rate += rates.get(topic) ?? 0;
      all.set(key, one);
    }
  }
  return [...all.values()];
}

function concerns(edge, at) {
  if (at.kind === "daemon") return edge.from === at.name || edge.to === at.name;
  return at.kind === "topic" && edge.topics.includes(at.name);
}

function caption(picture, at) {
  if (at.kind === "topic") {
    const topic = picture.topics.find((t) => t.name === at.name);
    return topic ? `${topic.name}, ${rate(topic.rate)}: ${topic.doc}` : "";
  }
  if (at.kind === "daemon") {
    const daemon = picture.daemons.find((d) => d.name === at.name);
    return daemon ? `${daemon.name}: ${daemon.problem || daemon.doing || daemon.state || "has never reported"}` : "";
  }
  return "Each arrow is a topic that one daemon writes and another reads. It moves while messages flow.";
}

function nodeOf(daemon, place, choose, look) {
  const act = () => choose("daemon", daemon.name);
  const hub = daemon.name === "bus";
  const shape = hub
    ? s("circle", { class: "box", r: 50 })
    : s("rect", { class: "box", x: -BOX.width / 2, y: -BOX.height / 2, width: BOX.width, height: BOX.height, rx: 12 });
  const [name, more] = hub ? [[0, -4, "middle"], [0, 16, "middle"]] : [[-42, -4, "start"], [-42, 16, "start"]];
  return s("g", {
    class: `node${hub ? " hub" : ""}`, transform: `translate(${place.x},${place.y})`, role: "button",
    onclick: act, onkeydown: pressed(act), onpointerenter: () => look({ kind: "daemon", name: daemon.name }),
    onpointerleave: () => look(undefined), onfocus: () => look({ kind: "daemon", name: daemon.name }),
    onblur: () => look(undefined),
  },
    shape,
    hub ? null : s("circle", { class: "state", cx: -56, cy: 0, r: 6 }),
    s("text", { class: "name", x: name[0], y: name[1], "text-anchor": name[2] }, daemon.name),
    s("text", { class: "more", x: more[0], y: more[1], "text-anchor": more[2] }));
}

function draw(node, daemon, chosen) {
  const state = daemonState(daemon);
  const words = daemon.problem || daemon.state || "has never reported";
  const flows = rate(daemon.carries ?? daemon.rate);
  set(node, {
    "data-state": state, "aria-pressed": String(chosen),
    "aria-label": `${daemon.name}: ${words}, ${daemon.carries === undefined ? "writes" : "carries"} ${flows}`,
  });
  text(node.querySelector(".more"), state === "well" ? flows : daemon.state || "silent");
}

function topics(list, picture, chosen, choose, look) {
  const most = Math.max(1, ...picture.topics.flatMap((t) => t.series ?? []));
  keyed(list, picture.topics, (t) => t.name, (t) => {
    const act = () => choose("topic", t.name);
    return h("li", {
      role: "option", onclick: act, onkeydown: pressed(act),
      onpointerenter: () => look({ kind: "topic", name: t.name }), onpointerleave: () => look(undefined),
      onfocus: () => look({ kind: "topic", name: t.name }), onblur: () => look(undefined),
    },
      h("span", { class: "topic" }, t.name),
      s("svg", { class: "spark", viewBox: "0 0 60 16", preserveAspectRatio: "none", "aria-hidden": "true" }, s("path")),
      h("span", { class: "rate" }));
  }, (child, t) => {
    const selected = chosen.kind === "topic" && chosen.name === t.name;
    set(child, { "aria-selected": String(selected), class: t.rate > 0 ? "flows" : null });
    text(child.querySelector(".rate"), rate(t.rate));
    set(child.querySelector("path"), { d: spark(t.series ?? [], most) });
  });
  rove(list, "[role=option]");
}

/** The messages of the last minute, as an area. It grows with the root, so that a burst doesn't hide the rest. */
function spark(series, most) {
  const height = (n) => (16 - 15 * Math.sqrt(n / most)).toFixed(1);
  return `M0,16 ${series.map((n, i) => `L${i},${height(n)} L${i + 1},${height(n)}`).join(" ")} L60,16 Z`;
}
