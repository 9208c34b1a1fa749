// The live data: one stream of server-sent events. Each picture is whole, so one that is lost costs nothing.

/** Follows the stream. on.picture gets each picture; on.lost and on.ended say why there are none. */
export function follow(on) {
  const source = new EventSource("events");
  source.addEventListener("picture", (event) => on.picture(JSON.parse(event.data)));
  source.addEventListener("end", () => {
    source.close();
    on.ended();
  });
  source.addEventListener("error", () => {
    // The browser connects again by itself, unless it was refused.
    if (source.readyState === EventSource.CLOSED) on.ended();
    else on.lost();
  });
}

/** Reads an answer of the server; an error has its words. */
export async function ask(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}
