// What a stored tree says, indexed by node.

function treeModel(data) {
  const { nodes } = data;
  const size = nodes.parent.length;
  const children = Array.from({ length: size }, () => []);
  const depth = new Array(size).fill(0);
  for (let id = 1; id < size; id += 1) {
    children[nodes.parent[id]].push(id);
    depth[id] = depth[nodes.parent[id]] + 1;
  }
  const launches = new Map(data.launches.map((launch) => [launch.expansion, launch]));
  const order = [...data.launches].sort((a, b) => a.expansion - b.expansion);
  return {
    data, nodes, size, children, depth, order,
    names: Object.keys(data.credits),
    credit: (name) => data.credits[name] || null,
    // The purchase that brought this node.
    launchOf: (id) => launches.get(nodes.expansion[id]) || null,
    isTerminal: (id) => nodes.outcome[id] !== null,
    path(id) {
      const above = [];
      for (let at = id; at !== null; at = nodes.parent[at]) above.unshift(at);
      return above;
    },
  };
}

function sampledTokens(model, id) {
  if (id === 0) return 0;
  return model.nodes.spans[id].reduce((sum, [ids, logProbs]) => sum + (logProbs ? ids.length : 0), 0);
}

function advantageOf(model, name, id) {
  const credit = model.credit(name);
  const found = credit ? credit.advantages[id] : undefined;
  return found === undefined ? null : found;
}

function valueOf(model, name, id) {
  const credit = model.credit(name);
  if (model.isTerminal(id)) return model.nodes.outcome[id];
  const refined = credit ? credit.values[id] : undefined;
  return refined === undefined ? model.nodes.value[id] : refined;
}

// Finished rollouts that began at a node or passed it within their launch, of the launches in `bought`.
function rolloutsThrough(model, id, bought) {
  const { nodes } = model;
  let seen = 0;
  for (let end = 1; end < model.size; end += 1) {
    if (!model.isTerminal(end) || !bought.has(nodes.expansion[end])) continue;
    for (let at = end; at !== null; at = nodes.parent[at]) {
      if (at === id) seen += 1;
      if (at === id || nodes.expansion[at] !== nodes.expansion[end]) break;
    }
  }
  return seen;
}

// A sentence about a node, for the list, the canvas label and the screen reader.
function nodeSentence(model, id, name) {
  const { nodes } = model;
  const parts = [id === 0 ? "root" : `node ${id}`];
  if (id) parts.push(`advantage ${signed(advantageOf(model, name, id))}`);
  if (model.isTerminal(id)) parts.push(`outcome ${nodes.outcome[id]}${nodes.truncated[id] ? ", truncated" : ""}`);
  else parts.push(`value ${fraction(nodes.value[id])}`);
  const below = model.children[id].length;
  if (below) parts.push(`${below} ${below === 1 ? "child" : "children"}`);
  else if (!model.isTerminal(id)) parts.push("unfinished");
  return parts.join(", ");
}
