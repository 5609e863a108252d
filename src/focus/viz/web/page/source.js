// Where the data comes from: elements of this page, or the server that sent it.

const embedded = document.getElementById("run-data");

const source = {
  isLive: embedded === null,
  async run() {
    return embedded ? JSON.parse(embedded.textContent) : fetchJson("run.json");
  },
  async tree(key) {
    if (!embedded) return fetchJson(`tree.json?key=${encodeURIComponent(key)}`);
    const found = [...document.querySelectorAll("script.tree-data")].find((element) => element.dataset.key === key);
    if (!found) throw new Error(`this file does not carry the tree ${key}`);
    return unpacked(found.textContent);
  },
};

async function fetchJson(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address}: ${response.status} ${await response.text()}`);
  return response.json();
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}
