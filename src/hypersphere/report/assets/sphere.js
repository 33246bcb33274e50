// The sphere: turns by itself, by arrow keys and by dragging; classes are switched on and off; a point shows its picture.
kinds.sphere = {
  traces(chart, plot) {
    const shown = plot.classes;
    const ball = ballTrace(plot.seeThrough);
    return [ball, ...chart.traces.map((trace) => {
      const changed = coloured(trace);
      if (trace.hoverinfo === "skip" && trace.mode === "lines") changed.line = { color: theme.variable("--line"), width: 1.5 };
      if (trace.of !== undefined) changed.visible = !shown || shown.has(trace.of);
      delete changed.of;
      return changed;
    })];
  },
  layout(chart, layout, plot) {
    const hidden = { visible: false, range: [-1.2, 1.2], showspikes: false };
    const camera = plot.camera || { eye: { x: chart.extra.eye[0], y: chart.extra.eye[1], z: chart.extra.eye[2] }, projection: { type: "orthographic" } };
    const reach = plot.clientWidth < 400 ? 1.92 : 2.04, annotations = labels(chart, plot, camera.eye);
    return { ...layout, showlegend: false, margin: { l: 0, r: 0, t: 0, b: 0 }, uirevision: "kept", hovermode: "closest",
      dragmode: "orbit", scene: { aspectmode: "manual", aspectratio: { x: reach, y: reach, z: reach }, xaxis: hidden, yaxis: hidden, zaxis: hidden, camera, annotations, dragmode: "orbit" } };
  },
  start(figure, plot, chart) {
    const extra = chart.extra;
    plot.classes = new Set(extra.classes.map((item) => item.of));
    const redraw = () => Plotly.react(plot, this.traces(chart, plot), this.layout(chart, layoutOf(chart), plot), CONFIG);
    const controls = figure.querySelector(".controls");
    const turning = button(controls, "Rotate", () => turn.set(!turn.on));
    const through = button(controls, "See through", () => {
      plot.seeThrough = !plot.seeThrough;
      through.setAttribute("aria-pressed", String(plot.seeThrough));
      redraw();
    });
    through.setAttribute("aria-pressed", "false");
    const turn = turntable(plot, turning, chart);
    toggles(controls, extra.classes, plot, redraw);
    hover(plot, extra);
  },
};

// Names of the classes at their middles, on the near half only: a name that shone through the ball would be read as near.
function labels(chart, plot, eye) {
  const length = Math.hypot(eye.x, eye.y, eye.z), ink = theme.variable("--ink"), ground = theme.variable("--card");
  const near = (at) => (at[0] * eye.x + at[1] * eye.y + at[2] * eye.z) / length > 0.05;
  return chart.extra.classes.filter((item) => item.at && (!plot.classes || plot.classes.has(item.of)) && near(item.at)).map((item) => ({
    x: 1.13 * item.at[0], y: 1.13 * item.at[1], z: 1.13 * item.at[2], text: item.label, showarrow: false, captureevents: false,
    font: { size: 12, color: ink }, bgcolor: alpha(ground, 0.82), borderpad: 2,
  }));
}

function ballTrace(seeThrough) {
  const steps = 72, x = [], y = [], z = [], r = 0.965;
  for (let i = 0; i <= steps / 2; i++) {
    const up = Math.PI * (2 * i / steps - 0.5), ring = [...Array(steps + 1).keys()].map((j) => 2 * Math.PI * j / steps);
    x.push(ring.map((a) => r * Math.cos(up) * Math.cos(a)));
    y.push(ring.map((a) => r * Math.cos(up) * Math.sin(a)));
    z.push(ring.map(() => r * Math.sin(up)));
  }
  const color = theme.variable("--wash");
  return { type: "surface", x, y, z, showscale: false, hoverinfo: "skip", opacity: seeThrough ? 0.15 : 1, surfacecolor: z.map((row) => row.map(() => 0)),
    colorscale: [[0, color], [1, color]], cmin: 0, cmax: 1, lighting: { ambient: 1, diffuse: 0, specular: 0, fresnel: 0, roughness: 1 }, contours: Object.fromEntries(["x", "y", "z"].map((n) => [n, { highlight: false }])) };
}

function turntable(plot, button, chart) {
  let last = 0, visible = false, held = false, slow = 0;
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  const move = (angle, lift) => {
    const camera = plot.layout.scene.camera, eye = camera.eye, flat = Math.hypot(eye.x, eye.y), reach = Math.hypot(flat, eye.z);
    const about = Math.atan2(eye.y, eye.x) + angle, up = Math.max(-1.4, Math.min(1.4, Math.atan2(eye.z, flat) + lift));
    const next = { x: reach * Math.cos(up) * Math.cos(about), y: reach * Math.cos(up) * Math.sin(about), z: reach * Math.sin(up) };
    plot.camera = { ...camera, eye: next, up: { x: 0, y: 0, z: 1 } };
    return Plotly.relayout(plot, { "scene.camera": plot.camera, "scene.annotations": labels(chart, plot, next) });
  };
  const turn = {
    on: false,
    set(on) {
      this.on = on;
      button.setAttribute("aria-pressed", String(on));
      button.textContent = on ? "Stop rotating" : "Rotate";
      if (on) requestAnimationFrame(step);
    },
  };
  async function step(now) {
    if (!turn.on) return;
    const passed = Math.min(now - last, 100);
    last = now;
    if (visible && !held && passed > 0) await move(passed * 0.00025, 0);
    const cost = performance.now() - now;
    slow = cost > 400 ? slow + 1 : 0;
    if (slow > 2) turn.set(false); // a machine that draws two pictures a second has better things to do
    else setTimeout(() => requestAnimationFrame(step), Math.min(cost, 400)); // at most half of the time is spent on turning
  }
  new IntersectionObserver((entries) => { visible = entries[0].isIntersecting; }).observe(plot);
  plot.addEventListener("pointerdown", () => { held = true; turn.set(false); }, true);
  window.addEventListener("pointerup", () => { held = false; });
  plot.addEventListener("pointerenter", () => { held = true; });
  plot.addEventListener("pointerleave", () => { held = false; });
  plot.on("plotly_relayout", (change) => {
    plot.camera = plot.layout.scene.camera;
    if (!("scene.annotations" in change)) Plotly.relayout(plot, { "scene.annotations": labels(chart, plot, plot.camera.eye) });
  });
  plot.tabIndex = 0;
  plot.setAttribute("aria-description", "Arrow keys turn the sphere.");
  plot.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, 0.15], ArrowDown: [0, -0.15] }[event.key];
    if (!by) return;
    event.preventDefault();
    turn.set(false);
    move(...by);
  });
  turn.set(!still);
  return turn;
}

function toggles(controls, classes, plot, redraw) {
  const set = document.createElement("fieldset");
  set.appendChild(document.createElement("legend")).textContent = `Classes (${classes.length})`;
  const boxes = [];
  const all = (on) => {
    boxes.forEach((box) => { box.checked = on; });
    plot.classes = new Set(on ? classes.map((item) => item.of) : []);
    redraw();
  };
  button(controls, "All classes", () => all(true));
  button(controls, "No class", () => all(false));
  for (const item of classes) {
    const label = set.appendChild(document.createElement("label"));
    label.className = "toggle";
    const box = label.appendChild(document.createElement("input"));
    box.type = "checkbox";
    box.checked = true;
    boxes.push(box);
    const dot = label.appendChild(document.createElement("i"));
    const paint = () => label.style.setProperty("--dot", theme.tint(item.tint));
    paint();
    theme.listeners.push(paint);
    dot.setAttribute("aria-hidden", "true");
    label.appendChild(document.createElement("span")).textContent = item.name;
    box.addEventListener("change", () => {
      if (box.checked) plot.classes.add(item.of); else plot.classes.delete(item.of);
      redraw();
    });
  }
  controls.appendChild(set);
}

function hover(plot, extra) {
  const tip = document.getElementById("page-tip"), tile = tip.querySelector(".tile"), text = tip.querySelector("p");
  plot.on("plotly_hover", (event) => {
    const point = event.points.find((p) => p.customdata !== undefined);
    if (!point) return;
    const sample = extra.samples[point.customdata], sheet = extra.sheet;
    tile.hidden = !sheet;
    if (sheet) {
      tile.className = `tile sheet-${sheet.name}`;
      tile.style.setProperty("--x", sample.tile % sheet.columns);
      tile.style.setProperty("--y", Math.floor(sample.tile / sheet.columns));
    }
    text.textContent = sample.text;
    tip.hidden = false;
    const mouse = event.event || {}, box = plot.getBoundingClientRect();
    const x = mouse.clientX ?? box.left + box.width / 2, y = mouse.clientY ?? box.top + box.height / 2;
    tip.style.left = `${Math.min(x + 16, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(y + 16, innerHeight - tip.offsetHeight - 8)}px`;
  });
  plot.on("plotly_unhover", () => { tip.hidden = true; });
}

function button(parent, text, action) {
  const made = parent.appendChild(document.createElement("button"));
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", action);
  return made;
}
