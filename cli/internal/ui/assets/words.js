// Figures in words. The same as package words says them.

/** A duration in milliseconds, with at most three digits. */
export function brief(ms) {
  const seconds = ms / 1000;
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 10) return `${seconds.toFixed(2)} s`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return age(ms);
}

/** How long ago something was, in one or two units. */
export function age(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  const days = Math.floor(hours / 24);
  if (seconds < 120) return `${seconds} s`;
  if (minutes < 10) return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  if (hours < 2) return `${minutes} min`;
  if (hours < 10) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  if (days < 2) return `${hours} h`;
  return `${days} days`;
}

/** Messages in a second. */
export function rate(perSecond) {
  if (perSecond <= 0) return "0/s";
  if (perSecond < 0.095) return `${Math.max(1, Math.round(perSecond * 60))}/min`;
  if (perSecond < 10) return `${perSecond.toFixed(1)}/s`;
  return `${Math.round(perSecond)}/s`;
}

/** A number of bytes. */
export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; n >= 1024 && unit < units.length - 1; unit++) n /= 1024;
  return `${n < 10 && unit > 0 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
}

/** A count with its noun. */
export function plural(n, noun) {
  return n === 1 ? `1 ${noun}` : `${n} ${noun}s`;
}

/** The beginning of a sentence that has no full stop yet. */
export function capital(words = "") {
  return words.charAt(0).toUpperCase() + words.slice(1).replace(/\.$/, "");
}

/** The time of day; with the date if it is another day than now's. */
export function clock(at, now = new Date()) {
  const time = at.toLocaleTimeString("en-GB");
  if (at.toDateString() === now.toDateString()) return time;
  return `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}
