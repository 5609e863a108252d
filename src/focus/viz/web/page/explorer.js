// One tree: tools above, drawing and replay on the left, the selected node on the right.

function explorerView(data, tree) {
  const model = treeModel(tree);
  const layout = layoutOf(model);
  const replay = new Replay(model);
  const canvas = new TreeCanvas(model, layout, { onpick: (node) => adjust({ node }) });
  const tools = h("div", { class: "tools" });
  const panel = h("section", { class: "panel", tabindex: "0", "aria-label": "Selected node" });
  const legend = h("p", { class: "legend" });
  const element = h("div", { class: "explorer" }, tools, h("div", { class: "stage" }, canvas.element, legend), panel, replay.element);
  canvas.element.addEventListener("keydown", (event) => moveByKey(event, { model, layout, canvas, replay, panel }));
  const seen = {};
  return {
    element,
    canvas,
    update(raw) {
      const state = { credit: model.names[0] || "", ...raw };
      const node = Math.max(0, Math.min(model.size - 1, Math.trunc(Number(state.node)) || 0));
      replay.update(state);
      const found = foundNodes(model, state.find);
      if (changed(seen, "tools", [state.color, state.credit, state.against, state.find])) refill(tools, toolbar(data, model, canvas, state, found));
      if (changed(seen, "panel", [node, state.credit, state.against])) panel.replaceChildren(...panelParts(data, model, node, state));
      if (changed(seen, "node", [node])) announce(nodeSentence(model, node, state.credit));
      const painting = paint(model, state);
      legend.replaceChildren(...legendParts(painting));
      canvas.show(painting, (id) => replay.shown(id), { selected: node, chosen: replay.launch && replay.launch.node, fresh: replay.fresh(), found }, { isWhole: !replay.isOn });
      if (changed(seen, "reveal", [node]) && canvas.placed) canvas.reveal(node);
    },
    close: () => {
      replay.stop();
      canvas.observer.disconnect();
    },
  };
}

// A comparison comes before the node: it is what was asked for last.
function panelParts(data, model, node, state) {
  const [about, credit] = [nodePanel(model, node, state).filter(Boolean), creditPanel(model, state)];
  return [...(state.against ? [...credit, ...about] : [...about, ...credit]), ...headerPart(data, model)];
}

function changed(seen, name, values) {
  const now = JSON.stringify(values);
  if (seen[name] === now) return false;
  seen[name] = now;
  return true;
}

// Replace the tools, but leave the field that is being typed in where it is.
function refill(tools, parts) {
  const typing = document.activeElement && tools.contains(document.activeElement) ? document.activeElement.name : null;
  tools.replaceChildren(...parts);
  const again = typing ? tools.querySelector(`[name="${typing}"]`) : null;
  if (!again) return;
  again.focus();
  if (again.setSelectionRange && again.type !== "range") again.setSelectionRange(again.value.length, again.value.length);
}

function toolbar(data, model, canvas, state, found) {
  const stored = model.data.stored_credit;
  const names = model.names.map((name) => [name, name === stored ? `${name} (stored)` : name]);
  const button = (text, act, label) => h("button", { type: "button", onclick: act, "aria-label": label }, text);
  return [
    h("h2", {}, `Problem ${oneLine(model.data.header.problem, 40)}`),
    choice("Colour", "color", [["advantage", "advantage"], ["value", "value"], ["surprise", "surprise of tokens"]], state.color || "advantage", (color) => adjust({ color, against: null })),
    choice("Credit by", "credit", names, state.credit, (credit) => adjust({ credit })),
    choice("against", "against", [["", "nothing"], ...names.filter(([name]) => name !== state.credit)], state.against || "", (against) => adjust({ against })),
    h("label", {}, "Find text", h("input", { type: "search", name: "find", size: 12, value: state.find || "", oninput: (event) => adjust({ find: event.target.value }), onkeydown: (event) => event.key === "Enter" && nextFound(found) })),
    state.find ? h("span", { role: "status" }, `${found.length} found`) : null,
    button("+", () => canvas.zoomBy(1.5), "Zoom in"), button("−", () => canvas.zoomBy(1 / 1.5), "Zoom out"), button("Fit", () => { adjust({ zoom: null }); canvas.fit(); }, "Fit the whole tree"),
  ].filter(Boolean);
}

function foundNodes(model, find) {
  if (!find) return [];
  const wanted = find.toLowerCase();
  return model.nodes.text.flatMap((text, id) => (text && text.toLowerCase().includes(wanted) ? [id] : []));
}

function nextFound(found) {
  const now = Number(readState().node) || 0;
  if (found.length) adjust({ node: found.find((id) => id > now) ?? found[0] });
}

function headerPart(data, model) {
  const { header } = model.data;
  const others = data.runs.length > 1 ? twins(data, model.data.key) : [];
  return [
    h("h3", {}, "This tree"),
    facts([
      ["file", model.data.key.split("/").slice(1).join("/")],
      ["reference", header.label === null ? "–" : visible(header.label)],
      ["round", `${header.round}, attempt ${header.attempt}`],
      ["policy, critic", `${visible(header.policy)}, ${visible(header.critic)}`],
      ["returns", header.returns],
      ["tree", `${count(model.size)} nodes, ${count(model.order.length)} launches`],
    ]),
    others.length ? h("p", {}, "The same problem in the other run: ", others.map((tree) => h("a", { href: linkTo({ view: "tree", tree: tree.key }) }, `${tree.key} `))) : null,
    ...model.data.failures.slice(0, 20).map((failure) => h("p", { class: "bad" }, `${visible(failure.kind)} at node ${failure.node}: ${visible(failure.message)}`)),
  ].filter(Boolean);
}

function twins(data, key) {
  const trees = allTrees(data);
  const own = trees.find((tree) => tree.key === key);
  return own ? trees.filter((tree) => tree.run !== own.run && tree.problem_key === own.problem_key) : [];
}

function legendParts(painting) {
  const ramp = h("span", { class: "ramp", "aria-hidden": "true" });
  ramp.style.background = `linear-gradient(to right, ${painting.ramp.join(", ")})`;
  const figure = (value) => String(Number(value.toPrecision(2))).replace("-", "−");
  return [`${painting.title} ${figure(painting.low)} `, ramp, ` ${figure(painting.high)}  ■ right  ✕ wrong  ▲ truncated  ◯ unfinished`];
}

const MOVES = {
  ArrowLeft: ({ model }, id) => model.nodes.parent[id],
  ArrowRight: ({ model, replay }, id) => model.children[id].find((child) => replay.shown(child)),
  ArrowUp: ({ layout, model }, id) => layout.columns[model.depth[id]][layout.rank[id] - 1],
  ArrowDown: ({ layout, model }, id) => layout.columns[model.depth[id]][layout.rank[id] + 1],
  Home: () => 0,
};

function moveByKey(event, parts) {
  const { canvas, panel } = parts;
  const acts = { "+": () => canvas.zoomBy(1.5), "=": () => canvas.zoomBy(1.5), "-": () => canvas.zoomBy(1 / 1.5), 0: () => canvas.fit(), Enter: () => panel.focus() };
  if (acts[event.key]) acts[event.key]();
  else if (MOVES[event.key]) {
    const to = MOVES[event.key](parts, Number(readState().node) || 0);
    if (to !== null && to !== undefined && parts.replay.shown(to)) adjust({ node: to });
  } else return;
  event.preventDefault();
}
