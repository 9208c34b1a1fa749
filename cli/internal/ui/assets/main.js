// The page: it gets pictures of the node and hands them to the view that is shown. The address after # names the view
// and what is chosen in it, so that it can be gone back to.

import { announcer, changes } from "./announce.js";
import { crewView } from "./crew.js";
import { dayView } from "./day.js";
import { h, set, text } from "./dom.js";
import { follow } from "./feed.js";
import { podsView } from "./pods.js";
import { search } from "./search.js";
import { themeSwitch } from "./theme.js";
import { capital, clock } from "./words.js";

const byID = (id) => document.getElementById(id);
const views = { crew: crewView(byID("crew")), pods: podsView(byID("pods")), day: dayView(byID("day")) };
const say = announcer(byID("live"));

let picture; // the last one; none before the first
let trouble = ""; // why there is no newer one

/** The view of the address, and what is chosen in it. */
function route() {
  const [name, ...chosen] = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  return { name: name in views ? name : "crew", chosen };
}

function show() {
  const { name, chosen } = route();
  for (const key of Object.keys(views)) byID(key).hidden = key !== name;
  for (const link of document.querySelectorAll("nav a")) {
    set(link, { "aria-current": link.getAttribute("href") === `#/${name}` ? "page" : null });
  }
  if (picture) views[name].update(picture, chosen);
  frame();
}

function onPicture(next) {
  if (picture) changes(picture, next).forEach(say);
  picture = next;
  trouble = "";
  frame();
  const { name, chosen } = route();
  views[name].update(picture, chosen);
}

/** What is around the views: the node, the notice, the foot. */
function frame() {
  notice();
  document.body.classList.toggle("stale", Boolean(trouble) || picture?.bus.up === false);
  const { name } = route();
  document.title = `${{ crew: "Crew", pods: "Pods", day: "Day" }[name]} · ${picture?.node.name || "kubelot"}`;
  if (!picture) return;
  const { node } = picture;
  byID("node").replaceChildren(
    h("span", { class: `dot ${!node.name ? "" : node.ready ? "ready" : "stuck"}`, "aria-hidden": "true" }),
    h("strong", {}, node.name || "this node"),
    h("span", {}, node.name ? (node.ready ? "ready" : "not ready") : "not known yet"),
  );
  const unready = picture.pods.filter((p) => p.state === "waiting").length;
  byID("pods-badge").replaceChildren(String(unready), h("span", { class: "unseen" }, " not ready"));
  byID("pods-badge").hidden = unready === 0;
  text(byID("ailing"), `${capital(node.sentence)}.`);
  byID("ailing").hidden = !node.sentence || !picture.bus.up;
  const when = clock(new Date(picture.at));
  text(byID("foot"), `Read only. Picture of ${when}. This page ends with its command on the node.`);
}

/** Says why what is shown may be old or incomplete. */
function notice() {
  let words = trouble;
  if (!words && picture?.bus.since && !picture.bus.up) {
    words = `The bus is away since ${clock(new Date(picture.bus.since))}. What is shown is the last that it said. ` +
      "The daemons go on with what they know.";
  } else if (!words && picture && !picture.synced) {
    words = "Reading what the bus retains …";
  } else if (!words && !picture) {
    words = "Waiting for the first picture …";
  }
  byID("notice").hidden = !words;
  text(byID("notice"), words);
}

function lost(words) {
  trouble = picture ? `${words} What is shown is from ${clock(new Date(picture.at))}.` : words;
  frame();
}

themeSwitch(byID("theme"));
search(byID("search"), byID("results"), () => picture, say);
byID("skip").addEventListener("click", () => byID("main").focus());
let view = route().name;
addEventListener("hashchange", () => {
  show();
  // The focus stays in a list that something was chosen from. It follows to another view, and from the search.
  if (view !== route().name || document.activeElement === document.body) byID("main").focus({ preventScroll: true });
  view = route().name;
});
follow({
  picture: onPicture,
  lost: () => lost("The connection to the node is interrupted."),
  ended: () => lost("This page has ended. Run kubelot ui again on the node."),
});
show();
