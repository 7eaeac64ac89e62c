// Colours: of heads as in the paper's figures, of differences, and of a weight on paper.

const HEAD_COLORS = ["#1F77B4", "#FF7F0E", "#2CA02C", "#D62728", "#9467BD", "#8C564B", "#E377C2",
  "#7F7F7F", "#BCBD22", "#17BECF"];
const MORE_COLOR = "#EA580C";
const LESS_COLOR = "#2F7BEA";
const MEAN_COLOR = "#4F46E5";
export const GOLD_COLOR = "#D4A017";

/** The colour of a head, counted from 0. */
export function headColor(head) {
  return HEAD_COLORS[head % HEAD_COLORS.length];
}

/** The colour in which a weight of this head stands; differences are coloured by their sign. */
export function weightColor(picture, head, weight) {
  if (picture.signed) return weight < 0 ? LESS_COLOR : MORE_COLOR;
  return head < 0 ? MEAN_COLOR : headColor(head);
}

/** "#1F77B4" as [31, 119, 180]. */
function channels(hex) {
  return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
}

/** How bright a colour is, 0 to 1, as WCAG 2 defines it. */
function luminance(color) {
  const [red, green, blue] = color.map((value) => (
    value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** Black or white: what reads better on a colour of this opacity over paper. The contrast is at least 4.5. */
export function inkOn(color, opacity = 1, paper = "#FFFFFF") {
  const below = channels(paper);
  const light = luminance(channels(color).map((value, i) => value * opacity + below[i] * (1 - opacity)));
  return (light + 0.05) / 0.05 >= 1.05 / (light + 0.05) ? "#000000" : "#FFFFFF";
}

/** Paints one map as an image of one pixel a cell: the colour over nothing, as opaque as the weight. */
export function paintMap(canvas, map, rows, columns, picture, head) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const more = channels(weightColor(picture, head, 1));
  const less = channels(weightColor(picture, head, -1));
  for (let i = 0; i < map.length; i++) {
    const color = map[i] < 0 ? less : more;
    image.data[4 * i] = color[0];
    image.data[4 * i + 1] = color[1];
    image.data[4 * i + 2] = color[2];
    image.data[4 * i + 3] = Math.round(255 * Math.min(1, Math.abs(map[i])));
  }
  context.putImageData(image, 0, 0);
}
