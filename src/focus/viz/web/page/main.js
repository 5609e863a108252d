// Which view is shown, and keeping it in step with the address and with a run that goes on.

const REFRESH_MS = 3000;
const THEMES = ["", "light", "dark"];

const page = { data: null, shown: null, view: null, opening: 0 };

async function render() {
  const state = withDefaults(readState());
  document.documentElement.dataset.theme = state.theme || "";
  document.getElementById("theme").textContent = `Theme: ${state.theme || "auto"}`;
  const shown = state.view === "tree" ? `tree ${state.tree}` : state.view;
  if (shown !== page.shown) await open(shown, state);
  if (page.view && page.shown === shown) page.view.update(withDefaults(readState()));
  navigation(state);
}

// A page of a single tree opens on it; without a tree there is the list.
function withDefaults(state) {
  const trees = allTrees(page.data);
  const view = state.view || (page.data.runs[0].kind === "tree" ? "tree" : "overview");
  const tree = state.tree || (view === "tree" && trees.length ? bestTree(trees).key : undefined);
  return { ...state, view: view === "tree" && !tree ? "trees" : view, tree };
}

// Mixed outcomes first, then the largest advantage.
function bestTree(trees) {
  const worth = (tree) => (tree.right && tree.wrong ? 1e6 : 0) + Math.abs(tree.largest || 0);
  return trees.reduce((best, tree) => (worth(tree) > worth(best) ? tree : best));
}

async function open(shown, state) {
  const opening = ++page.opening;
  const view = await makeView(state);
  if (opening !== page.opening) return;
  if (page.view && page.view.close) page.view.close();
  [page.view, page.shown] = [view, shown];
  document.getElementById("main").replaceChildren(view.element);
}

async function makeView(state) {
  if (state.view === "trees") return treesView(page.data);
  if (state.view !== "tree") return overviewView(page.data);
  try {
    return explorerView(page.data, await source.tree(state.tree));
  } catch (error) {
    return { element: h("p", { role: "alert" }, `The tree cannot be shown: ${error.message}`), update() {} };
  }
}

function navigation(state) {
  const link = (view, text, more = {}) => h("a", { href: linkTo({ view, ...more }), "aria-current": state.view === view ? "page" : null }, text);
  const trees = allTrees(page.data);
  const isRun = page.data.runs[0].kind !== "tree";
  const links = [isRun ? link("overview", "Overview") : null, link("trees", `Trees (${count(trees.length)})`), trees.length ? link("tree", "Tree", { tree: state.tree || bestTree(trees).key }) : null];
  document.getElementById("views").replaceChildren(...links.filter(Boolean));
}

function take(data) {
  page.data = data;
  document.getElementById("title").textContent = `FOCUS: ${data.runs.map((run) => run.name).join(" and ")}`;
}

// A run that is being written: the overview and the list follow, an open tree stays.
async function refresh() {
  try {
    const data = await source.run();
    document.getElementById("live").textContent = "live";
    if (JSON.stringify(data) === JSON.stringify(page.data)) return;
    take(data);
    const isTyping = document.activeElement && document.activeElement.form;
    if (!page.shown.startsWith("tree ") && !isTyping) page.shown = "";
    await render();
  } catch (error) {
    document.getElementById("live").textContent = "the server has ended";
  }
}

function nextTheme() {
  const now = THEMES.indexOf(readState().theme || "");
  adjust({ theme: THEMES[(now + 1) % THEMES.length] });
}

async function start() {
  take(await source.run());
  document.getElementById("theme").addEventListener("click", nextTheme);
  window.addEventListener("hashchange", render);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  await render();
  performance.mark("focus-shown");
  document.body.dataset.shown = "";
  if (source.isLive) setInterval(() => document.hidden || refresh(), REFRESH_MS);
}

start().catch((error) => document.getElementById("main").replaceChildren(h("p", { role: "alert" }, `The run cannot be shown: ${error.message}`)));
