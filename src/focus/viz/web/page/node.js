// All that is known of one node: worth, evidence, children, why it was bought, and its tokens.

function nodePanel(model, id, state) {
  const name = state.credit;
  return [
    h("h3", { id: "node-title" }, id === 0 ? "Node 0, the root" : `Node ${id}, depth ${model.depth[id]}`),
    h("p", { class: "soft" }, "Path: ", model.path(id).flatMap((at, place) => [place ? " › " : null, nodeLink(at, String(at))])),
    facts([...worthFacts(model, id, state), ...edgeFacts(model, id)]),
    ...boughtPart(model, id),
    ...childrenPart(model, id, name),
    ...textPart(model, id),
    ...tokenPart(model, id, name),
    ...foldPart(model, id),
  ];
}

function nodeLink(id, text) {
  return h("button", { type: "button", class: "link", onclick: () => adjust({ node: id }) }, text);
}

function worthFacts(model, id, state) {
  const { nodes, data } = model;
  const credit = model.credit(state.credit);
  const rows = [];
  if (id) rows.push([`advantage (${state.credit || "no credit"})`, signed(advantageOf(model, state.credit, id), 4)]);
  if (id && state.against) rows.push([`advantage (${state.against})`, signed(advantageOf(model, state.against, id), 4)]);
  if (model.isTerminal(id)) rows.push(["outcome", `${nodes.outcome[id]}${nodes.truncated[id] ? ", ran out of allowance or context" : ""}`]);
  else rows.push(["critic value V", fraction(nodes.value[id], 4)]);
  const refined = credit && credit.values[id];
  if (refined !== undefined && refined !== null && !model.isTerminal(id)) rows.push(["refined value V̂", fraction(refined, 4)]);
  const target = credit && credit.targets[id];
  if (target) rows.push(["critic target", `${fraction(target[0], 4)} from ${target[1]} returns`]);
  const seen = data.evidence.count[id];
  if (!model.isTerminal(id)) rows.push(["evidence", seen ? `${seen} finished rollouts, mean return ${fraction(data.evidence.mean[id], 4)}` : "no rollout from here has finished"]);
  const diagnostics = credit && credit.diagnostics[id];
  if (diagnostics) rows.push(["diagnostics", Object.entries(diagnostics).map(([key, value]) => `${key} ${Number(value.toPrecision(4))}`).join(", ")]);
  return rows;
}

function edgeFacts(model, id) {
  const { nodes } = model;
  if (id === 0) return [["prompt", `${model.data.header.prompt_tokens} tokens`]];
  const rows = [["edge", `${nodes.kind[id]} of ${sampledTokens(model, id)} sampled tokens, ended by ${nodes.finish[id]}`]];
  if (nodes.step_reward[id]) rows.push(["step reward", String(nodes.step_reward[id])]);
  if (nodes.rebased[id]) rows.push(["fold", `what follows is conditioned on ${nodes.rebased[id].length} tokens of a new context`]);
  rows.push(["launch", `${nodes.expansion[id]}, edge ${nodes.index[id]}, phase ${nodes.phase[id]}`]);
  rows.push(["request", `${visible(nodes.request[id])} (${nodes.tries[id] === 1 ? "1 try" : `${nodes.tries[id]} tries`})`]);
  return rows;
}

function boughtPart(model, id) {
  const launch = model.launchOf(id);
  if (!launch) return [];
  const inside = model.nodes.index[id] ? `It is edge ${model.nodes.index[id]} of a purchase that began above. ` : "";
  return [h("h3", {}, "Why this was bought"), h("p", {}, inside, launchSentence(launch), " ", replayLink(model, launch))];
}

function launchSentence(launch) {
  const score = launch.score === null ? "untried, which comes first" : `score ${Number(launch.score.toPrecision(4))}`;
  const rivals = launch.rivals === 1 ? "1 rival" : `${launch.rivals} rivals`;
  const budget = launch.free_tokens === null ? "no token budget" : `${count(launch.free_tokens)} tokens of the phase left`;
  return `Launch ${launch.expansion} continued node ${launch.node} in phase ${launch.phase}: ${score}, ${rivals}, ${budget}.`;
}

function replayLink(model, launch) {
  return h("button", { type: "button", class: "link", onclick: () => adjust({ step: model.order.indexOf(launch) + 1 }) }, "Show that moment");
}

function childrenPart(model, id, name) {
  const below = model.children[id];
  if (!below.length) return [];
  const bought = model.order.filter((launch) => launch.node === id);
  const rows = below.slice(0, 200).map((child) => h("li", {}, nodeLink(child, nodeSentence(model, child, name)), " ", h("span", { class: "soft mono" }, oneLine(model.nodes.text[child] || "", 40))));
  return [h("h3", {}, `Children (${below.length})`), bought.length > 1 ? h("p", { class: "soft" }, `Continued ${bought.length} times, by launches ${bought.map((launch) => launch.expansion).join(", ")}.`) : null, h("ul", { class: "plain" }, rows)];
}

function textPart(model, id) {
  const text = model.nodes.text[id];
  if (text === null) return [];
  return [h("h3", {}, id ? "Text of the edge" : "Prompt"), h("p", { class: "text mono" }, visible(text))];
}

function tokenPart(model, id, name) {
  const spans = model.nodes.spans[id];
  const weight = advantageOf(model, name, id);
  const rows = tokenRows(model, spans, weight);
  const title = id ? "Tokens of the edge" : "Tokens of the prompt";
  return [
    h("h3", {}, title),
    id ? h("p", { class: "soft" }, "Thicker underline: less likely when it was sampled. Dotted: given, not sampled. ", `Weight of every sampled token: ${signed(weight, 4)}.`) : null,
    h("p", { class: "tokens mono" }, rows.map(tokenMark)),
    h("details", {}, h("summary", {}, `Table of ${rows.length} tokens: id, log-prob, mask, weight`), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, tokenTable(rows))),
  ];
}

// A fold: the context that replaces everything above.
function foldPart(model, id) {
  const ids = model.nodes.rebased[id];
  if (!ids) return [];
  return [h("details", {}, h("summary", {}, `Context after the fold: ${ids.length} tokens`), h("p", { class: "tokens mono" }, tokenRows(model, [[ids, null]], null).map(tokenMark)))];
}

function tokenRows(model, spans, weight) {
  return spans.flatMap(([ids, logProbs]) => ids.map((token, place) => ({
    token, piece: model.data.pieces[token], logProb: logProbs ? logProbs[place] : null, mask: logProbs && weight !== null ? 1 : 0, weight: logProbs && weight !== null ? weight : 0,
  })));
}

function tokenMark(row) {
  const surprise = row.logProb === null ? 0 : [0.1, 0.7, 1.6, 3].filter((bound) => -row.logProb >= bound).length;
  const title = `id ${row.token}, ${row.logProb === null ? "given" : `log-prob ${row.logProb}`}, mask ${row.mask}, weight ${row.weight}`;
  return h("span", { class: row.logProb === null ? "token given" : `token u${surprise}`, title }, row.piece === undefined ? `${row.token} ` : visible(row.piece));
}

function tokenTable(rows) {
  const cells = rows.map((row, place) => [String(place), String(row.token), h("span", { class: "mono piece" }, row.piece === undefined ? "–" : visible(row.piece)), row.logProb === null ? "–" : row.logProb.toFixed(6).replace("-", "−"), String(row.mask), signed(row.weight, 4)]);
  return table(["#", "id", "piece", "log-prob", "mask", "weight"], cells, "Tokens");
}
