// What a screen reader says of live changes. The picture changes each second, so only what matters is said, and what
// comes together is said together.

import { text } from "./dom.js";

const PAUSE = 1500; // in milliseconds

/** Returns a function that has its text said by the live region. */
export function announcer(region) {
  let waiting = [];
  let timer;
  const say = () => {
    text(region, waiting.join(". "));
    waiting = [];
    timer = undefined;
  };
  return (words) => {
    waiting = [...waiting.slice(-2), words];
    timer ??= setTimeout(say, PAUSE);
  };
}

/** What has changed between two pictures, in a few sentences. */
export function changes(before, after) {
  const said = [];
  if (before.bus.since && before.bus.up !== after.bus.up) {
    said.push(after.bus.up ? "The bus is back" : "The bus is away");
  }
  const daemons = new Map(before.daemons.map((d) => [d.name, d.state]));
  for (const d of after.daemons) {
    const was = daemons.get(d.name);
    if (was !== undefined && was !== d.state) said.push(`Daemon ${d.name} is ${d.state}`);
  }
  const pods = new Map(before.pods.map((p) => [p.uid, p.state]));
  const turned = after.pods.filter((p) => pods.has(p.uid) && pods.get(p.uid) !== p.state);
  const came = after.pods.filter((p) => !pods.has(p.uid));
  if (came.length > 3) said.push(`${came.length} new pods`);
  else said.push(...came.map((p) => `New pod ${p.name}`));
  if (turned.length > 3) said.push(`${turned.length} pods have changed`);
  else said.push(...turned.map((p) => `Pod ${p.name} is ${p.state}`));
  return said;
}
