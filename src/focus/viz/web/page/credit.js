// Two estimators on one tree: where they agree, and the edges on which they differ most.

const DIFFERENCES_SHOWN = 25;

function creditPanel(model, state) {
  const refused = Object.entries(model.data.refused);
  const why = refused.length ? [h("details", {}, h("summary", {}, `${refused.length} estimators do not accept this tree`), facts(refused))] : [];
  if (!state.against) return why;
  const edges = Array.from({ length: model.size - 1 }, (_, place) => place + 1)
    .map((id) => ({ id, a: advantageOf(model, state.credit, id), b: advantageOf(model, state.against, id) }))
    .filter((edge) => edge.a !== null && edge.b !== null);
  const turned = edges.filter((edge) => edge.a * edge.b < 0);
  const worst = [...edges].sort((x, y) => Math.abs(y.a - y.b) - Math.abs(x.a - x.b)).slice(0, DIFFERENCES_SHOWN);
  const rows = worst.map((edge) => [nodeLink(edge.id, `node ${edge.id}`), signed(edge.a), signed(edge.b), signed(edge.a - edge.b)]);
  return [
    h("h3", {}, `${state.credit} against ${state.against}`),
    facts([
      ["edges with both", count(edges.length)],
      ["correlation", fraction(correlation(edges))],
      ["opposite signs", `${turned.length} (${edges.length ? percent(turned.length / edges.length) : "–"})`],
    ]),
    scrollable("Largest differences", table(["edge into", state.credit, state.against, "difference"], rows, "Largest differences")),
    ...why,
  ];
}

function correlation(edges) {
  const average = (name) => edges.reduce((sum, edge) => sum + edge[name], 0) / edges.length;
  const [a, b] = [average("a"), average("b")];
  const sum = (of) => edges.reduce((total, edge) => total + of(edge), 0);
  const spread = Math.sqrt(sum((e) => (e.a - a) ** 2) * sum((e) => (e.b - b) ** 2));
  return spread > 0 ? sum((e) => (e.a - a) * (e.b - b)) / spread : null;
}
