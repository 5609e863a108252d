// The search, purchase by purchase. Step k shows the tree as it was when launch k was decided
// in order of launch, with what that launch brought.

class Replay {
  constructor(model) {
    this.model = model;
    this.slider = h("input", { type: "range", min: "0", max: String(model.order.length), step: "1", "aria-label": "Step of the search", oninput: (event) => this.to(Number(event.target.value)) });
    this.play = h("button", { type: "button", onclick: () => this.toggle() }, "Play");
    this.said = h("p", { role: "status" });
    const move = (text, by) => h("button", { type: "button", onclick: () => this.to(this.step + by) }, text);
    this.element = h("section", { class: "replay", "aria-label": "Replay of the search" },
      h("div", { class: "row" }, this.play, move("Back", -1), this.slider, move("Next", 1), h("button", { type: "button", onclick: () => this.to(null) }, "Whole tree")), this.said);
  }

  to(step) {
    const last = this.model.order.length;
    adjust({ step: step === null ? null : Math.max(0, Math.min(last, step)) });
  }

  toggle() {
    if (this.timer) this.stop();
    else {
      if (this.step >= this.model.order.length) this.to(0);
      this.play.textContent = "Pause";
      this.timer = setInterval(() => (this.step < this.model.order.length ? this.to(this.step + 1) : this.stop()), 500);
    }
  }

  stop() {
    clearInterval(this.timer);
    this.timer = 0;
    this.play.textContent = "Play";
  }

  update(state) {
    const { order } = this.model;
    this.isOn = state.step !== undefined && state.step !== null;
    const asked = Number(state.step);
    this.step = this.isOn && Number.isFinite(asked) ? Math.max(0, Math.min(order.length, Math.trunc(asked))) : order.length;
    this.launch = this.isOn && this.step > 0 ? order[this.step - 1] : null;
    this.bought = new Set(order.slice(0, this.step).map((launch) => launch.expansion));
    this.slider.value = String(this.step);
    const said = this.launch ? `Step ${this.step} of ${order.length}. ${launchSentence(this.launch)} ${this.before()}` : this.isOn ? `Step 0 of ${order.length}: only the prompt.` : `${order.length} launches. Move the slider to see what the search knew when it chose.`;
    if (said !== this.said.textContent) this.said.textContent = said;
  }

  // What earlier launches had shown of the checkpoint that was chosen.
  before() {
    const { node, expansion } = this.launch;
    const earlier = new Set([...this.bought].filter((launch) => launch < expansion));
    const children = this.model.children[node].filter((child) => earlier.has(this.model.nodes.expansion[child])).length;
    const rollouts = rolloutsThrough(this.model, node, earlier);
    return `Of earlier launches it had ${children} ${children === 1 ? "child" : "children"} and ${rollouts} finished ${rollouts === 1 ? "rollout" : "rollouts"}.`;
  }

  shown(id) {
    return !this.isOn || id === 0 || this.bought.has(this.model.nodes.expansion[id]);
  }

  fresh() {
    if (!this.launch) return [];
    return Array.from({ length: this.model.size }, (_, id) => id).filter((id) => this.model.nodes.expansion[id] === this.launch.expansion);
  }
}
