// A part of a long text at a time. Nothing here touches the page.

export const WINDOW_SIZE = 40; // words of the longer side
const WINDOW_STRIDE = 20; // half a window, so that neighbours stand together in one of them

/** How many windows a picture has; 0 where all of it is short enough. */
export function windowCount({ rows, columns }) {
  const most = Math.max(rows.length, columns.length);
  return most > WINDOW_SIZE ? 1 + Math.ceil((most - WINDOW_SIZE) / WINDOW_STRIDE) : 0;
}

/** Which words a window has, counted from 1: {row: [from, to), column: [from, to)}; the shorter side in proportion. */
export function windowBounds(picture, number) {
  const most = Math.max(picture.rows.length, picture.columns.length);
  const from = Math.min(number - 1, windowCount(picture) - 1) * WINDOW_STRIDE;
  const sides = { row: picture.rows.length, column: picture.columns.length };
  const part = (count) => [Math.floor(from * count / most), Math.min(count, Math.ceil((from + WINDOW_SIZE) * count / most))];
  return { row: part(sides.row), column: part(sides.column) };
}

/** A picture's window (0: all of it). `kept`: for each head, which share of its rows' weight lies in the window. */
export function windowOf(picture, number) {
  if (!(number > 0) || !windowCount(picture)) return picture;
  const { row, column } = windowBounds(picture, number);
  const count = picture.columns.length;
  const kept = [];
  const maps = picture.maps.map((map) => {
    const parts = [];
    let all = 0;
    for (let r = row[0]; r < row[1]; r++) {
      for (let c = 0; c < count; c++) all += map[r * count + c];
      parts.push(...map.subarray(r * count + column[0], r * count + column[1]));
    }
    kept.push(all > 0 ? parts.reduce((sum, weight) => sum + weight, 0) / all : 1);
    return Float32Array.from(parts);
  });
  return { ...picture, rows: picture.rows.slice(...row), columns: picture.columns.slice(...column), maps, kept };
}

/** Where a word of the whole picture is found: the window that is shown if it has it, else that around it. */
export function placeInWindow(picture, side, index, number) {
  if (!(number > 0) || !windowCount(picture)) return { window: number, index };
  const [numbers, own] = [Array.from({ length: windowCount(picture) }, (_, i) => i + 1), (one) => windowBounds(picture, one)[side]];
  const distance = (one) => Math.abs(index - (own(one)[0] + own(one)[1] - 1) / 2);
  const has = (one) => own(one)[0] <= index && index < own(one)[1];
  const window = has(number) ? number : numbers.filter(has).sort((a, b) => distance(a) - distance(b))[0];
  return { window, index: index - own(window)[0] };
}
