// The list of trees: filtered, sorted, and drawn a page at a time.

const PAGE_ROWS = 200;

const TREE_COLUMNS = [
  ["key", "tree", (t) => t.key],
  ["problem", "problem", (t) => t.problem],
  ["round", "round", (t) => t.round],
  ["nodes", "nodes", (t) => t.nodes],
  ["right", "right", (t) => t.right],
  ["wrong", "wrong", (t) => t.wrong],
  ["unfinished", "unfinished", (t) => t.unfinished],
  ["root_value", "root V", (t) => t.root_value],
  ["largest", "largest A", (t) => (t.largest === null ? null : Math.abs(t.largest))],
  ["tokens", "tokens", (t) => t.tokens],
  ["failures", "failures", (t) => t.failures],
];

const OUTCOMES = {
  "": ["any", () => true],
  mixed: ["right and wrong", (t) => t.right > 0 && t.wrong > 0],
  right: ["all right", (t) => t.right > 0 && !t.wrong],
  wrong: ["all wrong", (t) => t.wrong > 0 && !t.right],
  unfinished: ["with unfinished leaves", (t) => t.unfinished > 0],
  failed: ["with failures", (t) => t.failures > 0],
};

function allTrees(data) {
  return data.runs.flatMap((run, index) => run.trees.map((tree) => ({ ...tree, run: index })));
}

function filteredTrees(trees, state) {
  const words = (state.q || "").toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (OUTCOMES[state.outcome || ""] || OUTCOMES[""])[1];
  const found = trees.filter((tree) => {
    if (!fits(tree)) return false;
    if (state.round && String(tree.round) !== state.round) return false;
    if (state.run && String(tree.run) !== state.run) return false;
    const text = `${tree.key} ${tree.problem} ${tree.prompt}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  return sortedTrees(found, state.sort || "");
}

// "-nodes" is nodes, largest first. What has no figure comes last either way.
function sortedTrees(trees, sort) {
  const falling = sort.startsWith("-");
  const column = TREE_COLUMNS.find(([name]) => name === sort.replace("-", ""));
  if (!column) return trees;
  const value = column[2];
  return [...trees].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    const order = x < y ? -1 : x > y ? 1 : 0;
    return falling ? -order : order;
  });
}

function treesView(data) {
  const trees = allTrees(data);
  const results = h("div", {});
  const page = h("div", { class: "page" }, h("h2", {}, "Trees"), filters(data, trees), results);
  let shown = PAGE_ROWS;
  const update = (state) => results.replaceChildren(...listing(filteredTrees(trees, state), state, data.runs, shown, () => { shown += PAGE_ROWS; update(readState()); }));
  return { element: page, update };
}

function filters(data, trees) {
  const state = readState();
  const rounds = [...new Set(trees.map((tree) => tree.round))].sort((a, b) => a - b);
  const search = h("input", { type: "search", name: "q", value: state.q || "", size: 28, oninput: (event) => adjust({ q: event.target.value }) });
  return h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() },
    h("label", {}, "Problem, prompt or file", search),
    choice("Outcomes", "outcome", Object.entries(OUTCOMES).map(([value, [text]]) => [value, text]), state.outcome || "", (outcome) => adjust({ outcome })),
    rounds.length > 1 ? choice("Round", "round", [["", "any"], ...rounds.map((round) => [String(round), String(round)])], state.round || "", (round) => adjust({ round })) : null,
    data.runs.length > 1 ? choice("Run", "run", [["", "both"], ...data.runs.map((run, index) => [String(index), run.name])], state.run || "", (run) => adjust({ run })) : null);
}

function listing(trees, state, runs, shown, more) {
  const rows = trees.slice(0, shown).map((tree) => treeRow(tree, runs));
  const head = TREE_COLUMNS.map(([name, title]) => sortHeading(name, title, state.sort || ""));
  const body = h("table", {}, h("caption", { class: "aside" }, "Trees"), h("thead", {}, h("tr", {}, head, h("th", { scope: "col" }, "prompt"))), h("tbody", {}, rows));
  const left = runs.reduce((sum, run) => sum + run.left_out, 0);
  const said = `${count(trees.length)} trees${left ? `; ${count(left)} earlier ones are not in this page` : ""}`;
  const parts = [h("p", { role: "status" }, said), scrollable("Trees", body)];
  if (trees.length > shown) parts.push(h("button", { type: "button", onclick: more }, `Show ${Math.min(PAGE_ROWS, trees.length - shown)} more`));
  return parts;
}

function sortHeading(name, title, sort) {
  const current = sort.replace("-", "") === name;
  const next = sort === `-${name}` ? name : `-${name}`;
  const order = !current ? null : sort.startsWith("-") ? "descending" : "ascending";
  return h("th", { scope: "col", "aria-sort": order }, h("button", { type: "button", onclick: () => adjust({ sort: next }) }, title, current ? (sort.startsWith("-") ? " ↓" : " ↑") : ""));
}

function treeRow(tree, runs) {
  const name = tree.key.split("/").slice(1).join("/");
  const label = runs.length > 1 ? `${runs[tree.run].name}: ${name}` : name;
  const figures = [tree.round, tree.nodes, tree.right, tree.wrong, tree.unfinished].map(count);
  const cells = [...figures, fraction(tree.root_value), signed(tree.largest), count(tree.tokens), count(tree.failures)];
  return h("tr", {}, h("td", {}, h("a", { href: linkTo({ view: "tree", tree: tree.key }) }, label)), h("td", {}, oneLine(tree.problem, 40)),
    cells.map((cell) => h("td", { class: "number" }, cell)), h("td", {}, oneLine(tree.prompt, 90)));
}
