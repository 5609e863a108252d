// What a node's colour says. Sign and outcome also show by shape and figure, never by colour alone.

const LEVELS = 20;
const VALUE_RAMP = ["#7a4fc4", "#b0469b", "#e0566f", "#ee8a4a", "#d9b327"];

const MEANINGS = {
  advantage: "advantage",
  value: "value",
  difference: "difference of advantage",
  surprise: "mean −log-prob",
};

// {number: per node or null, low, high, ramp: colours from low to high, title}
function paint(model, state) {
  const color = state.against ? "difference" : state.color || "advantage";
  const numbers = Array.from({ length: model.size }, (_, id) => numberOf(model, state, color, id));
  const isSigned = color === "advantage" || color === "difference";
  const known = numbers.filter((number) => number !== null);
  const top = known.reduce((most, number) => Math.max(most, isSigned ? Math.abs(number) : number), 0) || 1;
  const low = isSigned ? -top : color === "value" ? known.reduce((least, number) => Math.min(least, number), 0) : 0;
  return { numbers, low, high: top, ramp: isSigned ? signedRamp() : VALUE_RAMP, title: MEANINGS[color] };
}

function numberOf(model, state, color, id) {
  if (color === "value") return valueOf(model, state.credit, id);
  if (color === "surprise") return surprise(model, id);
  const own = advantageOf(model, state.credit, id);
  if (color === "advantage") return own;
  const other = advantageOf(model, state.against, id);
  return own === null && other === null ? null : (own || 0) - (other || 0);
}

function surprise(model, id) {
  const sampled = model.nodes.spans[id].flatMap(([, logProbs]) => logProbs || []);
  return sampled.length ? -sampled.reduce((sum, value) => sum + value, 0) / sampled.length : null;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function signedRamp() {
  return [css("--minus"), css("--zero"), css("--plus")];
}

// LEVELS + 1 colours; drawing goes by level, so that 10⁴ nodes are a few strokes.
function levels(painting) {
  const mix = d3.piecewise(d3.interpolateRgb, painting.ramp);
  return Array.from({ length: LEVELS + 1 }, (_, level) => mix(level / LEVELS));
}

function levelOf(painting, id) {
  const number = painting.numbers[id];
  if (number === null) return -1;
  const share = (number - painting.low) / (painting.high - painting.low);
  return Math.max(0, Math.min(LEVELS, Math.round(share * LEVELS)));
}
