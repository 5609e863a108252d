// Two small charts: figures by round, and critic value against what followed.

const CHART = { width: 340, height: 170, left: 44, right: 8, top: 10, bottom: 24 };

// series: [{name, points: [[x, y], ...], mark: 0..2, other: belongs to the second run}]
function lineChart(title, series, { zero = false } = {}) {
  const known = series
    .map((one) => ({ ...one, points: one.points.filter(([, y]) => y !== null && y !== undefined) }))
    .filter((one) => one.points.length);
  if (!known.length) return null;
  const points = known.flatMap((one) => one.points);
  const [x, y] = [scale(points.map((p) => p[0]), CHART.left, CHART.width - CHART.right), scale([...points.map((p) => p[1]), ...(zero ? [0] : [])], CHART.height - CHART.bottom, CHART.top)];
  const drawn = svg("svg", { viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img", "aria-label": describe(title, known) }, ...axes(x, y));
  for (const one of known) {
    const style = `s${one.mark}${one.other ? " other" : ""}`;
    if (one.points.length > 1) drawn.append(svg("path", { class: style, d: `M${one.points.map((p) => `${x.at(p[0])},${y.at(p[1])}`).join("L")}` }));
    else drawn.append(svg("circle", { class: style, cx: x.at(one.points[0][0]), cy: y.at(one.points[0][1]), r: 3 }));
  }
  const key = h("ul", { class: "key" }, known.map((one) => h("li", {}, h("span", { class: `k${one.mark}`, "aria-hidden": "true" }, one.other ? "┅ " : "━ "), one.name)));
  return h("figure", {}, h("figcaption", {}, title), drawn, key);
}

function describe(title, series) {
  const parts = series.map((one) => `${one.name} from ${fraction(one.points[0][1])} to ${fraction(one.points.at(-1)[1])}`);
  return `${title}: ${parts.join("; ")}`;
}

function scale(values, from, to) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low === high) [low, high] = [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
  return { low, high, at: (value) => from + ((value - low) / (high - low)) * (to - from) };
}

function axes(x, y) {
  const bottom = CHART.height - CHART.bottom;
  const label = (value) => (Math.abs(value) >= 1000 ? value.toExponential(1) : String(Number(value.toPrecision(3))));
  const text = (content, left, top, anchor) => svg("text", { x: left, y: top, "text-anchor": anchor }, content);
  return [
    svg("line", { class: "axis", x1: CHART.left, x2: CHART.width - CHART.right, y1: bottom, y2: bottom }),
    svg("line", { class: "axis", x1: CHART.left, x2: CHART.left, y1: CHART.top, y2: bottom }),
    text(label(y.high), CHART.left - 4, CHART.top + 8, "end"),
    text(label(y.low), CHART.left - 4, bottom, "end"),
    text(label(x.low), CHART.left, CHART.height - 8, "start"),
    text(label(x.high), CHART.width - CHART.right, CHART.height - 8, "end"),
  ];
}

// Points on the diagonal mean that the critic's values hold.
function calibrationChart(runs) {
  const bins = runs.flatMap((run, index) => run.calibration.map((bin) => ({ ...bin, mark: index })));
  if (!bins.length) return null;
  const edge = [0, 1, ...bins.flatMap((bin) => [bin.value, bin.outcome])];
  const x = scale(edge, CHART.left, CHART.width - CHART.right);
  const y = scale(edge, CHART.height - CHART.bottom, CHART.top);
  const most = Math.max(...bins.map((bin) => bin.rollouts));
  const label = `Critic value against mean return: ${bins.map((bin) => `value ${fraction(bin.value, 2)} return ${fraction(bin.outcome, 2)} from ${bin.rollouts}`).join("; ")}`;
  const drawn = svg("svg", { viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img", "aria-label": label }, ...axes(x, y),
    svg("line", { class: "axis", x1: x.at(x.low), y1: y.at(x.low), x2: x.at(x.high), y2: y.at(x.high) }));
  for (const bin of bins) drawn.append(svg("circle", { class: `s${bin.mark}`, cx: x.at(bin.value), cy: y.at(bin.outcome), r: 2 + 6 * Math.sqrt(bin.rollouts / most) }));
  const key = runs.length > 1 ? h("ul", { class: "key" }, runs.map((run, index) => h("li", {}, h("span", { class: `k${index}`, "aria-hidden": "true" }, "● "), run.name))) : null;
  return h("figure", {}, h("figcaption", {}, "Critic calibration in the stored trees"), drawn, key,
    h("p", { class: "soft" }, "Across: critic value V at a checkpoint. Up: mean return of the rollouts from there; area shows how many. Search chose where to roll out, so this picture leans towards what it chose; the Brier scores are measured without that choice."));
}
