// The arrows of the crew's picture. An arrow moves along its way for as long as messages flow: the more of them, the
// more arrows, and the faster. Who wants no motion gets arrows that stand.

import { s, set } from "./dom.js";
import { way } from "./geometry.js";

const HEAD = "M-7,-5 L6,0 L-7,5 L-4,0 Z";
const calm = matchMedia("(prefers-reduced-motion: reduce)");

let paused = false;

// The next picture makes those that are wanted.
calm.addEventListener("change", () => {
  for (const arrows of document.querySelectorAll(".arrows")) arrows.replaceChildren();
});

/** Stops all arrows where they are, or has them go on. */
export function pause(on) {
  paused = on;
  for (const animation of document.getAnimations()) {
    if (animation.id === "arrow") on ? animation.pause() : animation.play();
  }
}

/** Makes the drawing of one way. */
export function edge(from, to) {
  const path = way(from, to);
  const group = s("g", { class: "edge" },
    s("path", { class: "line", d: path.d }),
    s("path", { class: "head", d: HEAD, transform: `translate(${path.end.x},${path.end.y}) rotate(${path.angle})` }),
    s("g", { class: "arrows" }));
  group.way = path;
  return group;
}

/** Has as many arrows move along the way, as fast, as messages flow in a second. */
export function flow(group, rate) {
  group.classList.toggle("flows", rate > 0);
  const arrows = group.querySelector(".arrows");
  const count = rate > 0 ? Math.min(5, 1 + Math.floor(Math.log2(1 + rate))) : 0;
  const speed = 70 + 55 * Math.log10(1 + rate * 10); // of the picture's units in a second
  if (arrows.childElementCount !== count) {
    arrows.replaceChildren(...Array.from({ length: count }, (_, i) => arrow(group.way, i / count)));
  }
  for (const one of arrows.children) {
    // The pace changes without a jump.
    one.motion?.updatePlaybackRate(speed / 100);
  }
}

function arrow(path, begin) {
  const one = s("path", { class: "arrow", d: HEAD });
  one.style.offsetPath = `path("${path.d}")`;
  if (calm.matches) {
    one.style.offsetDistance = `${100 * ((begin + 0.5) % 1)}%`;
    return one;
  }
  const duration = path.length * 10; // at 100 units in a second
  one.motion = one.animate({ offsetDistance: ["0%", "100%"], opacity: [0, 1, 1, 0], easing: "linear" },
    { id: "arrow", duration, iterations: Infinity, delay: -begin * duration });
  if (paused) one.motion.pause();
  return one;
}

/** Marks the ways that are looked at, and leaves the others in the background. */
export function light(group, on, any) {
  set(group, { class: `edge${on ? " lit" : any ? " dim" : ""}${group.classList.contains("flows") ? " flows" : ""}` });
}
