// Search over pods, daemons and topics: a combobox that is used by the keyboard alone.

import { h, keyed, set } from "./dom.js";
import { plural } from "./words.js";

const MOST = 12; // results that are shown

/** Everything that can be found, with its address. */
function things(picture) {
  return [
    ...picture.daemons.map((d) => ({
      kind: "daemon", name: d.name, more: d.problem || d.doing || d.state || "has never reported",
      href: `#/crew/daemon/${d.name}`,
    })),
    ...picture.topics.map((t) => ({ kind: "topic", name: t.name, more: t.doc, href: `#/crew/topic/${t.name}` })),
    ...picture.pods.map((p) => ({
      kind: "pod", name: p.name, more: [p.namespace, p.sentence || p.phase].join(" · "), href: `#/pods/${p.uid}`,
    })),
  ];
}

/** The things that have all the words, those whose name begins with the first one before the others. */
export function found(picture, query) {
  const words = query.toLowerCase().split(/[\s/]+/).filter(Boolean);
  if (!picture || words.length === 0) return [];
  const rank = (t) => (t.name.startsWith(words[0]) ? 0 : t.name.includes(words[0]) ? 1 : 2);
  return things(picture)
    .filter((t) => words.every((w) => `${t.kind} ${t.name} ${t.more}`.toLowerCase().includes(w)))
    .sort((a, b) => rank(a) - rank(b));
}

/** Makes the input and its list a search; "/" anywhere begins one. */
export function search(input, list, latest, say) {
  let results = [];
  let at = 0;

  const close = () => {
    list.hidden = true;
    set(input, { "aria-expanded": "false", "aria-activedescendant": null });
  };
  const open = (result) => {
    close();
    input.value = "";
    input.blur();
    if (location.hash === result.href) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = result.href;
  };
  const draw = () => {
    keyed(list, results.slice(0, MOST), (r) => r.href, (r) => line(r, () => open(r)), (child, r) => {
      const chosen = results[at] === r;
      set(child, { "aria-selected": String(chosen), id: `result-${r.href}` });
      if (chosen) {
        set(input, { "aria-activedescendant": child.id });
        child.scrollIntoView({ block: "nearest" });
      }
    });
    const none = results.length === 0;
    if (none) {
      list.replaceChildren(h("li", { class: "none", role: "option", "aria-disabled": "true" }, "Nothing found"));
      set(input, { "aria-activedescendant": null });
    }
    list.hidden = false;
    set(input, { "aria-expanded": "true" });
  };
  const look = () => {
    if (!input.value.trim()) {
      close();
      return;
    }
    results = found(latest(), input.value);
    at = 0;
    list.replaceChildren();
    draw();
    say(plural(results.length, "result"));
  };

  input.addEventListener("input", look);
  input.addEventListener("focus", look);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    const count = Math.min(results.length, MOST);
    if (event.key === "Escape") {
      input.value = "";
      close();
    } else if (event.key === "Enter" && !list.hidden && results[at]) {
      open(results[at]);
    } else if (event.key === "ArrowDown" && count > 0) {
      at = (at + 1) % count;
      draw();
    } else if (event.key === "ArrowUp" && count > 0) {
      at = (at - 1 + count) % count;
      draw();
    } else {
      return;
    }
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input")) return;
    event.preventDefault();
    input.focus();
  });
}

function line(result, open) {
  return h("li", {
    role: "option",
    // The blur of the input would close the list before the click.
    onmousedown: (event) => event.preventDefault(), onclick: open,
  },
    h("span", { class: `kind ${result.kind}` }, result.kind),
    h("strong", {}, result.name),
    h("span", { class: "more" }, result.more));
}
