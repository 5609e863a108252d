// The first page: what a run reached, what it cost, and how it moved by round.

function overviewView(data) {
  const runs = data.runs;
  const page = h("div", { class: "page" });
  page.append(...(runs.length > 1 ? [comparisonTable(runs)] : [headline(runs[0])]));
  const charts = [...roundCharts(runs), calibrationChart(runs)].filter(Boolean);
  if (charts.length) page.append(h("h2", {}, runs.some((run) => run.rounds.length) ? "By round" : "Critic"), h("div", { class: "charts" }, charts));
  runs.forEach((run) => page.append(...details(run, runs.length > 1)));
  return { element: page, update() {} };
}

function headline(run) {
  const cards = figuresOf(run).map(([name, value, note]) => h("li", {}, h("span", { class: "soft" }, name), h("strong", {}, value), note ? h("span", { class: "soft" }, note) : null));
  return h("section", {}, h("h2", {}, run.name), run.summary ? null : h("p", {}, "Not finished: figures so far."), h("ul", { class: "cards" }, cards));
}

// [name, value, note] of what a reader asks first.
function figuresOf(run) {
  const { summary, rounds, trees } = run;
  const mixed = trees.filter((tree) => tree.right && tree.wrong).length;
  const listed = [];
  if (summary && "accuracy_after" in summary) {
    const [before, after] = [summary.accuracy_ci95.before, summary.accuracy_ci95.after];
    listed.push(["Held-out accuracy", `${fraction(summary.accuracy_before)} → ${fraction(summary.accuracy_after)}`, `95 %: ${interval(before)} → ${interval(after)}, ${summary.eval_problems} problems`]);
  }
  if (summary && summary.critic_brier !== null && summary.critic_brier !== undefined) {
    listed.push(["Critic Brier, best constant's", `${fraction(summary.critic_brier, 4)} / ${fraction(summary.constant_brier, 4)}`, summary.critic_gate_round === null ? "it never steered" : `it passed its gate after round ${summary.critic_gate_round}`]);
  }
  const books = ledgerOf(run);
  if (rounds.length) listed.push(["Problems with mixed outcomes", percent(mean(rounds, "mixed_ratio")), "mean of the rounds: only they tell right from wrong"]);
  listed.push(["Trees to open", count(trees.length), `${count(mixed)} with mixed outcomes`]);
  if (books.tokens_generated) {
    listed.push(["Tokens generated", count(books.tokens_generated), `${percent((books.tokens_wasted || 0) / books.tokens_generated)} wasted, ${count(books.tokens_trained)} trained`]);
    const asked = budgetOf(run);
    if (asked) listed.push(["Budget used", percent(books.tokens_generated / asked), `of ${count(asked)} tokens allowed`]);
  }
  if (books.requests_sent) listed.push(["Requests", count(books.requests_sent), `${count(books.requests_failed)} failed, ${count(books.requests_cancelled)} cancelled`]);
  return listed;
}

const RATIOS = [
  ["eta_gen", "used of generated tokens"],
  ["eta_prefill", "needed of computed prefill tokens"],
  ["eta_req", "needed of calls to the policy"],
  ["eta_critic", "needed of critic calls"],
  ["eta_learn", "distinct of learner tokens"],
];

function interval([low, high]) { return `${fraction(low)} to ${fraction(high)}`; }

function percent(value) { return value === null || value === undefined ? "–" : `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`; }

function mean(rows, name) {
  const known = rows.map((row) => row[name]).filter((value) => typeof value === "number");
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

// The books of a collection, or the sums over the rounds of a training run.
function ledgerOf(run) {
  if (run.summary && run.summary.ledger) return run.summary.ledger;
  const sums = {};
  for (const name of ["tokens_generated", "tokens_wasted", "tokens_trained", "requests_sent", "requests_failed", "requests_cancelled"]) {
    sums[name] = run.rounds.reduce((sum, row) => sum + (row[name] || 0), 0);
  }
  for (const [name] of RATIOS) sums[name] = mean(run.rounds, name);
  return sums;
}

function budgetOf(run) {
  const { prompts, tokens_per_prompt: perPrompt, tokens } = run.settings;
  if (run.kind === "training") return prompts && perPrompt ? prompts * perPrompt * run.rounds.length : null;
  return tokens && run.summary ? tokens * run.summary.collected : null;
}

function roundCharts(runs) {
  const series = (name, label, mark) => runs.map((run, index) => ({
    name: runs.length > 1 ? `${label}, ${run.name}` : label, mark, other: index > 0,
    points: run.rounds.map((row) => [row.round, row[name]]),
  }));
  return [
    lineChart("Success of rollouts from the root", series("collection_success", "success", 0)),
    lineChart("Problems with mixed outcomes", series("mixed_ratio", "share", 0), { zero: true }),
    lineChart("Critic Brier score (lower is better)", [...series("critic_brier", "critic", 0), ...series("constant_brier", "best constant", 1), ...series("depth_brier", "depth only", 2)]),
    lineChart("Value at the root", [...series("root_value", "critic", 0), ...series("collection_success", "success", 1)]),
    lineChart("Efficiency (1 is best)", [...series("eta_gen", "generated tokens used", 0), ...series("eta_prefill", "prefill needed", 1), ...series("eta_learn", "learner tokens distinct", 2)], { zero: true }),
    lineChart("Tokens", [...series("tokens_generated", "generated", 0), ...series("tokens_wasted", "wasted", 1)], { zero: true }),
  ];
}

function details(run, isNamed) {
  const parts = [h("h2", {}, isNamed ? `Books of ${run.name}` : "Books")];
  const books = ledgerOf(run);
  parts.push(facts(RATIOS.filter(([name]) => typeof books[name] === "number").map(([name, meaning]) => [h("code", {}, name), `${fraction(books[name])} ${meaning} (1 is best)`])));
  if (run.rounds.length) parts.push(h("h3", {}, "Rounds"), scrollable(`Rounds of ${run.name}`, roundsTable(run)));
  if (run.without_tree.length) {
    parts.push(h("h3", {}, "Without a tree"), h("ul", {}, run.without_tree.slice(0, 50).map((row) => h("li", {}, `line ${row.line}: ${row.status}: ${visible(String(row.reason))}`))));
  }
  const settings = Object.entries(run.settings).map(([name, value]) => [name, typeof value === "object" && value ? JSON.stringify(value) : String(value)]);
  parts.push(h("details", {}, h("summary", {}, `Settings of ${run.name}`), facts(settings)));
  return parts;
}

function roundsTable(run) {
  const columns = [["round", 0], ["collection_success", 3], ["mixed_ratio", 2], ["critic_brier", 4], ["constant_brier", 4], ["root_value", 3], ["tokens_generated", 0], ["tokens_wasted", 0], ["wall_s", 1]];
  const cell = (value, digits) => (typeof value === "number" ? (digits ? fraction(value, digits) : count(value)) : "–");
  const rows = run.rounds.map((row) => [...columns.map(([name, digits]) => cell(row[name], digits)), row.critic_version && !row.critic_version.startsWith("constant-") ? "steers" : "learns"]);
  return table([...columns.map(([name]) => name.replaceAll("_", " ")), "critic"], rows, `Rounds of ${run.name}`);
}

function comparisonTable(runs) {
  const names = [...new Set(runs.flatMap((run) => figuresOf(run).map(([name]) => name)))];
  const tables = runs.map((run) => new Map(figuresOf(run).map(([name, ...rest]) => [name, rest])));
  const cell = (found) => (found ? h("span", {}, found[0], h("br"), h("span", { class: "soft" }, found[1] || "")) : "–");
  const rows = names.map((name) => [name, ...tables.map((one) => cell(one.get(name)))]);
  const differing = differences(runs[0].settings, runs[1].settings).map(([name, a, b]) => [h("code", {}, name), a, b]);
  return h("section", {}, h("h2", {}, "Two runs"), scrollable("Two runs", table(["", ...runs.map((run) => run.name)], rows, "Two runs side by side")),
    h("h3", {}, "Settings that differ"), differing.length ? scrollable("Settings that differ", table(["setting", ...runs.map((run) => run.name)], differing, "Settings that differ")) : h("p", {}, "None."));
}

function differences(a, b, prefix = "") {
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])].sort();
  return names.flatMap((name) => {
    const [left, right] = [a[name], b[name]];
    const isTable = (value) => value && typeof value === "object" && !Array.isArray(value);
    if (isTable(left) && isTable(right)) return differences(left, right, `${prefix}${name}.`);
    const [l, r] = [JSON.stringify(left), JSON.stringify(right)];
    return l === r ? [] : [[prefix + name, l ?? "–", r ?? "–"]];
  });
}
