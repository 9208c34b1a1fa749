// Elements are made by functions and never by strings of markup, so nothing that a container or a registry says can
// become markup.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an HTML element. Properties that begin with "on" are listeners, the others are attributes. */
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

/** Makes an SVG element. */
export function s(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  set(element, properties);
  element.append(...children.filter((child) => child || child === 0));
  return element;
}

/** Sets attributes that have changed. One that is null, undefined or false is removed. */
export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (value === null || value === undefined || value === false) {
      element.removeAttribute(name);
    } else if (element.getAttribute(name) !== String(value)) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
}

/** Sets a text that has changed; a screen reader isn't told of one that has not. */
export function text(element, value) {
  if (element.textContent !== String(value)) element.textContent = value;
}

/**
 * Makes the children of parent those of the items, in their order. A child that was there stays, with its focus.
 * make(item) makes a child, update(child, item) brings one up to date.
 */
export function keyed(parent, items, keyOf, make, update) {
  const focused = document.activeElement;
  const gone = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const used = new Set();
  let next = parent.firstElementChild;
  for (const item of items) {
    let key = keyOf(item);
    while (used.has(key)) key += "+"; // two items may be the same
    used.add(key);
    const child = gone.get(key) ?? make(item);
    child.dataset.key = key;
    gone.delete(key);
    update(child, item);
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  for (const child of gone.values()) child.remove();
  // An element that is moved loses the focus.
  if (parent.contains(focused) && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

/**
 * Lets the arrow keys move the focus among the children that match selector: the group is one stop of the tab key.
 * It has to be called again when the children have changed.
 */
export function rove(group, selector) {
  const all = [...group.querySelectorAll(selector)];
  const current = all.find((e) => e === document.activeElement) ??
    all.find((e) => e.matches('[aria-selected="true"], [aria-pressed="true"]')) ??
    all.find((e) => e.getAttribute("tabindex") === "0") ?? all[0];
  for (const e of all) set(e, { tabindex: e === current ? 0 : -1 });
  if (group.dataset.roves) return;
  group.dataset.roves = "yes";
  group.addEventListener("keydown", (event) => {
    const list = [...group.querySelectorAll(selector)].filter((e) => e.checkVisibility());
    const to = target(list.indexOf(document.activeElement), list.length, event.key);
    if (to === undefined || list.length === 0) return;
    event.preventDefault();
    for (const e of group.querySelectorAll(selector)) set(e, { tabindex: e === list[to] ? 0 : -1 });
    list[to].focus();
  });
}

/** Where a key moves the focus to, among count elements. */
function target(at, count, key) {
  switch (key) {
    case "ArrowDown":
    case "ArrowRight":
      return (at + 1) % count;
    case "ArrowUp":
    case "ArrowLeft":
      return (at - 1 + count) % count;
    case "Home":
      return 0;
    case "End":
      return count - 1;
  }
  return undefined;
}

/** A listener for the keys that press a button. */
export function pressed(act) {
  return (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act(event);
  };
}
