// What is looked at stands in the address, so that a link or a reload shows the same.
//
//   view    overview, trees or tree
//   tree    key of the open tree; node, color, credit, against, step, find, zoom: how it is looked at
//   q, outcome, round, run, sort: how the list of trees is filtered

function readState() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function hashOf(state) {
  const kept = Object.entries(state).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return `#${new URLSearchParams(kept)}`;
}

// A step that the back button undoes.
function go(changes) {
  location.hash = hashOf({ ...readState(), ...changes });
}

// A step that it does not.
function adjust(changes) {
  const hash = hashOf({ ...readState(), ...changes });
  if (hash !== location.hash) location.replace(hash);
}

// The address of another place; only the theme stays.
function linkTo(state) {
  const { theme } = readState();
  return hashOf({ theme, ...state });
}
