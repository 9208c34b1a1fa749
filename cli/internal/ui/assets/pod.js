// One pod: why it is as it is, how it has started, and its timeline.

import { h } from "./dom.js";
import { ask } from "./feed.js";
import { podState } from "./state.js";
import { waterfall } from "./waterfall.js";
import { age, capital, clock, plural } from "./words.js";

/** Makes the page of the chosen pod. It asks again when the pod has changed, and each second while it isn't settled. */
export function podPage(root) {
  let shown = ""; // the pod and what it was like when it was last asked for
  let uid = "";
  let asking = ""; // the pod that the server is being asked for

  // Who copies a command mustn't lose the selection.
  const selected = () => {
    const selection = getSelection();
    return !selection.isCollapsed && root.contains(selection.anchorNode);
  };
  const draw = (...content) => {
    const open = root.querySelector("details")?.open;
    const focus = root.contains(document.activeElement) ? document.activeElement.id : "";
    root.replaceChildren(...content.filter(Boolean));
    if (open && root.querySelector("details")) root.querySelector("details").open = true;
    if (focus) document.getElementById(focus)?.focus();
  };
  const load = async () => {
    const wanted = asking = uid;
    let found;
    try {
      found = content(await ask(`pod?uid=${encodeURIComponent(uid)}`));
    } catch (error) {
      found = [h("p", { class: "nothing" }, capital(error.message), ".")];
    }
    if (uid === wanted && !selected()) draw(...found);
    if (asking === wanted) asking = "";
  };

  return {
    update(picture, chosen) {
      if (!chosen) {
        const none = `none of ${picture.pods.length > 0 ? "some" : "none"}`;
        if (shown !== none) draw(overview(picture));
        [uid, shown] = ["", none];
        return;
      }
      const pod = picture.pods.find((p) => p.uid === chosen);
      const settled = !pod || pod.state === "ready" || pod.state === "ended";
      const now = JSON.stringify([chosen, pod, settled ? "" : picture.at]);
      if (now === shown || asking === chosen || (!picture.bus.up && chosen === uid)) return;
      [uid, shown] = [chosen, now];
      load();
    },
  };
}

function overview(picture) {
  if (picture.pods.length === 0) {
    return h("div", { class: "nothing" },
      h("h2", {}, "No pods"),
      h("p", {}, "A pod appears here as soon as the node sees it: from the API server or as a manifest."));
  }
  return h("p", { class: "nothing" }, "Choose a pod to see how it has started and what it waits for.");
}

function content(d) {
  const now = new Date(d.at);
  return [
    h("header", {},
      h("h2", { id: "pod-name" }, h("span", { class: `dot ${podState(d)}`, "aria-hidden": "true" }), d.name,
        h("span", { class: `state ${podState(d)}` }, d.state)),
      h("p", { class: "facts" }, facts(d, now).join(" · "))),
    d.answer.causes ? why(d.answer, now) : null,
    h("section", { "aria-labelledby": "start-title" },
      h("h3", { id: "start-title" }, "Its start"), waterfall(d.start, d.stages, now)),
    timeline(d.answer, now),
  ];
}

function facts(d, now) {
  return [
    d.namespace, d.static ? "static pod" : "", d.phase, `${d.ready} of ${plural(d.total, "container")} ready`,
    d.restarts > 0 ? plural(d.restarts, "restart") : "", d.ip ?? "",
    `on this node for ${age(now - new Date(d.firstSeen))}`,
  ].filter(Boolean);
}

/** What kubelot why says. */
function why(answer, now) {
  return h("section", { class: "why", "aria-labelledby": "why-title" },
    h("h3", { id: "why-title" }, "Why"),
    ...answer.causes.map((cause, i) => h("div", { class: "cause" },
      h("p", { class: i === 0 ? "sentence" : "also" }, `${i === 0 ? "" : "Also: "}${capital(cause.sentence)}.`),
      h("dl", {},
        ...pair("Waits for", waits(cause, now)),
        ...pair("What to do", cause.advice),
        ...pair("Reported", cause.problem && h("span", {}, h("code", {}, `${cause.what}: ${cause.problem}`)))))));
}

function pair(key, value) {
  return value ? [h("dt", {}, key), h("dd", {}, value)] : [];
}

function waits(cause, now) {
  if (!cause.until) return cause.waits;
  const until = new Date(cause.until);
  const when = until > now ? `in ${age(until - now)}` : "now";
  return cause.waits ? `${cause.waits}; kubelot acts ${when}` : `the next try, ${when}`;
}

function timeline(answer, now) {
  const moments = answer.timeline ?? [];
  if (moments.length === 0) return null;
  return h("details", {},
    h("summary", { id: "timeline-title" }, `Timeline, ${plural(moments.length, "entry").replace("entrys", "entries")}`),
    h("ol", { class: "timeline" }, ...moments.map((m) => h("li", { class: m.bad ? "bad" : null },
      h("time", { datetime: m.at }, clock(new Date(m.at), now)),
      h("span", {}, m.what + (m.times > 1 ? ` (${m.times} times, last ${age(now - new Date(m.last))} ago)` : ""))))));
}
