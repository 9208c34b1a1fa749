// The texts that are seen and whose contrast is below 4.5 (WCAG 2.2, 1.4.3), each with its colours. An expression.
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((c, i) => c * a + below[i] * (1 - a));
  const luminance = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  // A text in the picture of the crew is on the box of its node.
  const ground = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const box = e.matches(".node") ? e.querySelector(".box") : null;
      layers.push(rgba(box ? getComputedStyle(box).fill : getComputedStyle(e).backgroundColor));
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), rgba("Canvas").slice(0, 3));
  };
  const low = [];
  const check = (element, colour, text) => {
    const below = ground(element);
    const is = contrast(over(rgba(colour), below), below);
    if (is < 4.5) low.push(`${is.toFixed(2)} ${colour} on ${below.map(Math.round)}: ${text.trim().slice(0, 60)}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let count = 0;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility({ opacityProperty: true })) continue;
    if (element.closest(".unseen, .skip")) continue;
    count++;
    const style = getComputedStyle(element);
    check(element, element instanceof SVGElement ? style.fill : style.color, walker.currentNode.data);
  }
  for (const input of document.querySelectorAll("input[placeholder]")) {
    check(input, getComputedStyle(input, "::placeholder").color, input.placeholder);
  }
  return { count, low };
})();
