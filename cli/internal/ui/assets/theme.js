// The switch between dark and light. Without a choice the page follows the browser.

import { set, text } from "./dom.js";

const KEY = "kubelot-theme";
const CHOICES = ["auto", "light", "dark"];

/** Makes the button go through the choices. */
export function themeSwitch(button) {
  let choice = CHOICES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "auto";
  const show = () => {
    set(document.documentElement, { "data-theme": choice === "auto" ? null : choice });
    text(button.querySelector("span"), choice);
  };
  button.addEventListener("click", () => {
    choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
    localStorage.setItem(KEY, choice);
    show();
  });
  show();
}
