// The drawing: only what is in sight, edges and nodes of one colour in one stroke.

const NODE_RADIUS = 5;
const LABELS_FROM = 0.75;
const LABELS_MOST = 250;
const SHAPES_FROM = 0.18;

class TreeCanvas {
  constructor(model, layout, { onpick }) {
    [this.model, this.layout] = [model, layout];
    this.element = h("canvas", {
      tabindex: "0", role: "application", "aria-roledescription": "tree", "aria-label": "Rollout tree. Arrow keys move: left to the parent, right to a child, up and down within a depth. Plus and minus zoom, 0 shows all.",
    });
    this.transform = d3.zoomIdentity;
    this.behaviour = d3.zoom().scaleExtent([0.004, 6]).on("zoom", (event) => this.zoomed(event)).on("end", (event) => this.settled(event));
    d3.select(this.element).call(this.behaviour).on("dblclick.zoom", null);
    this.element.addEventListener("click", (event) => this.pick(event, onpick));
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.element);
  }

  // painting: see color.js; shown(id): part of the replay; marks: {selected, chosen, fresh, found}
  show(painting, shown, marks, { isWhole }) {
    Object.assign(this, { painting, shown, marks, isWhole });
    this.schedule();
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.element;
    if (!clientWidth) return;
    [this.element.width, this.element.height] = [clientWidth * ratio, clientHeight * ratio];
    if (!this.placed) this.place(readState().zoom);
    this.schedule();
  }

  place(zoom) {
    this.placed = true;
    const numbers = (zoom || "").split(",").map(Number);
    if (numbers.length === 3 && numbers.every(Number.isFinite) && numbers[0] > 0) this.set(d3.zoomIdentity.translate(numbers[1], numbers[2]).scale(numbers[0]));
    else this.fit();
  }

  set(transform) {
    d3.select(this.element).call(this.behaviour.transform, transform);
  }

  fit() {
    const { left, right, top, bottom } = this.layout.box;
    const { clientWidth: width, clientHeight: height } = this.element;
    const scale = Math.max(0.004, Math.min(1.6, (width - 120) / (right - left || 1), (height - 100) / (bottom - top || 1)));
    this.set(d3.zoomIdentity.translate((width - (right - left) * scale) / 2 - 20, (height - 40) / 2 - ((top + bottom) / 2) * scale).scale(scale));
  }

  zoomBy(factor) {
    d3.select(this.element).call(this.behaviour.scaleBy, factor);
  }

  // Pan as little as needed to bring a node into sight.
  reveal(id) {
    const [px, py] = this.transform.apply([this.layout.x[id], this.layout.y[id]]);
    const { clientWidth: width, clientHeight: height } = this.element;
    const dx = px < 40 ? 40 - px : px > width - 90 ? width - 90 - px : 0;
    const dy = py < 30 ? 30 - py : py > height - 50 ? height - 50 - py : 0;
    if (width && (dx || dy)) this.set(d3.zoomIdentity.translate(this.transform.x + dx, this.transform.y + dy).scale(this.transform.k));
  }

  zoomed(event) {
    this.transform = event.transform;
    this.schedule();
  }

  settled(event) {
    if (!event.sourceEvent) return;
    const { k, x, y } = this.transform;
    const [scale, left, top] = [Number(k.toPrecision(4)), Math.round(x), Math.round(y)];
    this.set(d3.zoomIdentity.translate(left, top).scale(scale)); // a link shows exactly this
    adjust({ zoom: [scale, left, top].join(",") });
  }

  pick(event, onpick) {
    const [px, py] = this.transform.invert(d3.pointer(event, this.element));
    const id = nearestNode(this.layout, px, py, 14 / Math.min(1, this.transform.k));
    if (id !== null && this.shown(id)) onpick(id);
  }

  schedule() {
    if (this.pending || !this.painting) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.draw();
    });
  }

  draw() {
    const context = this.element.getContext("2d");
    const ratio = window.devicePixelRatio || 1;
    const { k, x, y } = this.transform;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.element.clientWidth, this.element.clientHeight);
    context.setTransform(ratio * k, 0, 0, ratio * k, ratio * x, ratio * y);
    const inSight = this.inSight();
    this.element.dataset.drawn = inSight.length;
    this.colors = levels(this.painting);
    this.drawTrunks(context, k);
    this.drawBranches(context, inSight, k);
    this.drawNodes(context, inSight, k);
    this.drawMarks(context, k);
    if (k >= LABELS_FROM && inSight.length <= LABELS_MOST) this.drawLabels(context, inSight);
  }

  inSight() {
    const [left, top] = this.transform.invert([-STEP_X, -STEP_Y]);
    const [right, bottom] = this.transform.invert([this.element.clientWidth + STEP_X, this.element.clientHeight + STEP_Y]);
    this.window = { left, right, top, bottom };
    const found = nodesWithin(this.layout, left, right, top, bottom);
    return this.isWhole ? found : found.filter(this.shown);
  }

  // The upright line of a fork, from its first child in sight of the replay to its last.
  drawTrunks(context, k) {
    const { x, y, columns } = this.layout;
    const { left, right, top, bottom } = this.window;
    context.beginPath();
    for (let depth = Math.max(0, Math.floor(left / STEP_X) - 1); depth < columns.length && depth * STEP_X <= right; depth += 1) {
      for (const id of columns[depth]) {
        const all = this.model.children[id];
        const below = this.isWhole ? all : all.filter(this.shown);
        if (!below.length) continue;
        const [first, last] = [Math.min(y[below[0]], y[id]), Math.max(y[below.at(-1)], y[id])];
        if (last < top || first > bottom) continue;
        const middle = x[id] + STEP_X - BRANCH;
        if (below.length > 1) context.moveTo(middle, y[below[0]]), context.lineTo(middle, y[below.at(-1)]);
        context.moveTo(x[id], y[id]);
        context.lineTo(middle, y[id]);
      }
    }
    context.strokeStyle = css("--line");
    context.lineWidth = 1.2 / Math.min(1, k);
    context.stroke();
  }

  drawBranches(context, inSight, k) {
    const { x, y } = this.layout;
    context.lineWidth = 2.4 / Math.min(1, k);
    this.byLevel(inSight.filter((id) => id), (ids, color) => {
      context.beginPath();
      for (const id of ids) {
        context.moveTo(x[id] - BRANCH, y[id]);
        context.lineTo(x[id], y[id]);
      }
      context.strokeStyle = color;
      context.stroke();
    });
  }

  drawNodes(context, inSight, k) {
    const radius = NODE_RADIUS / Math.min(1, Math.max(k, 0.25));
    if (k < SHAPES_FROM) return this.drawSpecks(context, inSight, radius);
    this.byLevel(inSight, (ids, color) => {
      context.beginPath();
      for (const id of ids) this.trace(context, id, radius);
      context.fillStyle = context.strokeStyle = color;
      context.lineWidth = radius / 2.5;
      context.fill();
      context.stroke();
    });
  }

  // Too small to tell shapes apart.
  drawSpecks(context, inSight, radius) {
    this.byLevel(inSight, (ids, color) => {
      context.fillStyle = color;
      for (const id of ids) context.fillRect(this.layout.x[id] - radius, this.layout.y[id] - radius, 2 * radius, 2 * radius);
    });
  }

  // Square: right; cross: wrong; triangle: ran out of allowance; ring: unfinished; disc: goes on.
  trace(context, id, r) {
    const [x, y] = [this.layout.x[id], this.layout.y[id]];
    const { outcome, truncated } = this.model.nodes;
    if (truncated[id]) {
      context.moveTo(x, y - r); context.lineTo(x + r, y + r); context.lineTo(x - r, y + r); context.closePath();
    } else if (outcome[id] !== null && outcome[id] > 0) context.rect(x - r, y - r, 2 * r, 2 * r);
    else if (outcome[id] !== null) {
      context.moveTo(x - r, y - r); context.lineTo(x + r, y + r); context.moveTo(x - r, y + r); context.lineTo(x + r, y - r);
    } else if (this.model.children[id].length) {
      context.moveTo(x + r, y); context.arc(x, y, r, 0, 7);
    } else {
      context.moveTo(x + r, y); context.arc(x, y, r, 0, 7); context.moveTo(x + r / 2, y); context.arc(x, y, r / 2, 0, 7, true);
    }
  }

  byLevel(ids, stroke) {
    const groups = new Map();
    for (const id of ids) {
      const level = levelOf(this.painting, id);
      if (!groups.has(level)) groups.set(level, []);
      groups.get(level).push(id);
    }
    for (const [level, group] of groups) stroke(group, level < 0 ? css("--zero") : this.colors[level]);
  }

  drawMarks(context, k) {
    const { selected, chosen, fresh, found } = this.marks;
    const ring = (id, radius, color, width) => {
      if (id === null || id === undefined || !this.shown(id)) return;
      context.beginPath();
      context.arc(this.layout.x[id], this.layout.y[id], radius / Math.min(1, k), 0, 7);
      context.strokeStyle = color;
      context.lineWidth = width / Math.min(1, k);
      context.stroke();
    };
    for (const id of found) ring(id, 9, css("--ink"), 1.5);
    for (const id of fresh) ring(id, 10, css("--accent"), 2);
    ring(chosen, 13, css("--focus"), 3);
    ring(selected, 10, css("--ink"), 3);
  }

  drawLabels(context, inSight) {
    context.fillStyle = css("--ink");
    context.font = "9px ui-monospace, monospace";
    for (const id of inSight) {
      const text = this.model.nodes.text[id];
      const said = id === 0 ? "root" : text === null ? `#${id}` : oneLine(text, 17);
      context.fillText(said, this.layout.x[id] - (id ? BRANCH - 2 : 10), this.layout.y[id] - (id ? 4 : 9));
    }
  }
}
