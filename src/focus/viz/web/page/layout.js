// Places of nodes: depth runs to the right, siblings lie below each other.

const STEP_X = 124;
const STEP_Y = 20;
const BRANCH = 100; // the part of an edge that belongs to the child alone

function layoutOf(model) {
  const root = d3.hierarchy(0, (id) => (model.children[id].length ? model.children[id] : null));
  d3.tree().nodeSize([STEP_Y, STEP_X]).separation((a, b) => (a.parent === b.parent ? 1 : 1.4))(root);
  const [x, y] = [new Float64Array(model.size), new Float64Array(model.size)];
  const columns = [];
  root.eachBefore((node) => {
    [x[node.data], y[node.data]] = [node.y, node.x];
    (columns[node.depth] = columns[node.depth] || []).push(node.data);
  });
  columns.forEach((column) => column.sort((a, b) => y[a] - y[b]));
  const rank = new Int32Array(model.size);
  columns.forEach((column) => column.forEach((id, place) => { rank[id] = place; }));
  return { x, y, columns, rank, box: boxOf(x, y) };
}

function boxOf(x, y) {
  let [top, bottom, right] = [Infinity, -Infinity, 0];
  for (let id = 0; id < x.length; id += 1) {
    top = Math.min(top, y[id]);
    bottom = Math.max(bottom, y[id]);
    right = Math.max(right, x[id]);
  }
  return { left: 0, right, top, bottom };
}

// Place in a sorted column of the first node at or below `at`.
function firstBelow(column, y, at) {
  let [low, high] = [0, column.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (y[column[middle]] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Ids inside a rectangle, found per column without looking at the others.
function nodesWithin(layout, left, right, top, bottom) {
  const found = [];
  const last = Math.min(layout.columns.length - 1, Math.ceil(right / STEP_X));
  for (let depth = Math.max(0, Math.floor(left / STEP_X)); depth <= last; depth += 1) {
    const column = layout.columns[depth];
    for (let place = firstBelow(column, layout.y, top); place < column.length && layout.y[column[place]] <= bottom; place += 1) found.push(column[place]);
  }
  return found;
}

function nearestNode(layout, px, py, reach) {
  let [best, least] = [null, reach * reach];
  for (const id of nodesWithin(layout, px - STEP_X, px + STEP_X, py - reach, py + reach)) {
    const distance = (layout.x[id] - px) ** 2 + (layout.y[id] - py) ** 2;
    if (distance <= least) [best, least] = [id, distance];
  }
  return best;
}
