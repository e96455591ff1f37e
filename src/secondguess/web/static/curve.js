// The discovery ratio as an inline SVG, coloured by the page's style sheet.
const SVG = "http://www.w3.org/2000/svg";

function drawn(tag, attributes, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

/**
 * Draws the ratio with its interval over the number of labels, and says in words where it is now.
 * @param curve columns labels, value, low and high, equally long
 * @param place the element for the drawing
 * @param words the element for the text
 */
export function drawCurve(curve, place, words) {
  place.replaceChildren();
  if (!curve.labels.length) {
    words.textContent = "Errors found, divided by the errors that the confidences announce. It begins with your first answer.";
    return;
  }
  const width = 320, height = 170, left = 30, bottom = 24, top = 10, right = 8;
  const last = curve.labels.length - 1;
  const settled = Math.max(...curve.value.slice(last >> 1)); // the first few labels jump far
  const highest = Math.ceil(Math.max(2, 1.15 * settled, Math.min(curve.high[last], 2.5 * settled)));
  const x = label => left + (width - left - right) * label / Math.max(curve.labels[last], 2);
  const y = value => top + (height - top - bottom) * (1 - Math.min(value, highest) / highest);
  const points = values => curve.labels.map((label, i) => `${x(label).toFixed(1)},${y(values[i]).toFixed(1)}`);
  const summary = `Discovery ratio ${curve.value[last].toFixed(2)} after ${curve.labels[last]} ` +
    `${curve.labels[last] === 1 ? "label" : "labels"}, 95\u00a0% interval ${curve.low[last].toFixed(2)} to ${curve.high[last].toFixed(2)}`;
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": summary });
  svg.append(
    drawn("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }),
    drawn("line", { class: "even", x1: left, x2: width - right, y1: y(1), y2: y(1) }),
    drawn("polygon", { class: "band", points: [...points(curve.high), ...points(curve.low).reverse()].join(" ") }),
    drawn("polyline", { class: "line", points: points(curve.value).join(" ") }),
    drawn("circle", { class: "dot", cx: x(curve.labels[last]), cy: y(curve.value[last]), r: 3.5 }),
    ...(highest <= 8 ? [0, 1, highest] : [0, highest]).map(tick =>
      drawn("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, String(tick))),
    drawn("text", { x: width - right, y: height - 6, "text-anchor": "end" }, `${curve.labels[last]} labels`),
  );
  place.append(svg);
  words.textContent = `${summary}. At 1, the model errs as often as its confidences say.`;
}
