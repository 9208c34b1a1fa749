// Where the daemons are in the picture of the crew, and the ways between them.

export const CENTER = { x: 500, y: 330 };
const RADIUS = { x: 405, y: 272 };
const BOX = { width: 146, height: 58 };
const GAP = 7; // between an arrow's end and the box
const BOW = 0.42; // how far a way is bent towards the centre
const LANE = 13; // between a way and the way back

// Clockwise from the top, so that those who talk most are neighbours.
const ORDER = ["podsync", "volume", "resource", "stats", "api", "gc", "lease", "status", "probe", "pleg"];

/** Where each daemon is; the bus is in the middle. Those that aren't known come last. */
export function places(names) {
  const around = [
    ...ORDER.filter((n) => names.includes(n)),
    ...names.filter((n) => n !== "bus" && !ORDER.includes(n)).sort(),
  ];
  const at = new Map([["bus", CENTER]]);
  around.forEach((name, i) => {
    const angle = (2 * Math.PI * i) / around.length - Math.PI / 2;
    at.set(name, {
      x: Math.round(CENTER.x + RADIUS.x * Math.cos(angle)), y: Math.round(CENTER.y + RADIUS.y * Math.sin(angle)),
    });
  });
  return at;
}

export { BOX };

/** The way from one place to another, as the path of an SVG, with where its arrowhead is and how it is turned. */
export function way(from, to) {
  const middle = { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const bend = {
    x: middle.x + (CENTER.x - middle.x) * BOW - ((to.y - from.y) / length) * LANE,
    y: middle.y + (CENTER.y - middle.y) * BOW + ((to.x - from.x) / length) * LANE,
  };
  const begin = border(from, bend, 0);
  const end = border(to, bend, GAP);
  return {
    d: `M${begin.x},${begin.y} Q${Math.round(bend.x)},${Math.round(bend.y)} ${end.x},${end.y}`,
    end,
    angle: Math.round((Math.atan2(end.y - bend.y, end.x - bend.x) * 180) / Math.PI),
    length: Math.round(Math.hypot(bend.x - begin.x, bend.y - begin.y) + Math.hypot(end.x - bend.x, end.y - bend.y)),
  };
}

/** Where the line from the middle of a box towards a point leaves the box, widened by a gap. */
function border(box, point, gap) {
  const dx = point.x - box.x;
  const dy = point.y - box.y;
  const scale = Math.min(
    dx === 0 ? Infinity : (BOX.width / 2 + gap) / Math.abs(dx),
    dy === 0 ? Infinity : (BOX.height / 2 + gap) / Math.abs(dy),
  );
  return { x: Math.round(box.x + dx * scale), y: Math.round(box.y + dy * scale) };
}
