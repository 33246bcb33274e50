// The threshold: a line that is dragged, a slider that does the same by keys, and the error rates it gives.
kinds.threshold = {
  layout(chart, layout, plot) {
    const at = plot.threshold ?? chart.extra.start;
    const line = { type: "line", x0: at, x1: at, y0: 0, y1: 1, yref: "paper", editable: true,
      line: { color: theme.variable("--ink"), width: 3, dash: "dot" } };
    return { ...layout, shapes: [line] };
  },
  start(figure, plot, chart) {
    const { stops, far, frr, marks, start } = chart.extra;
    const controls = figure.querySelector(".controls");
    const slider = controls.appendChild(document.createElement("input"));
    Object.assign(slider, { type: "range", min: stops[0], max: stops[stops.length - 1], step: "any" });
    slider.setAttribute("aria-label", "Threshold in degrees");
    for (const mark of marks) button(controls, mark.name, () => set(mark.at));
    const output = controls.appendChild(document.createElement("output"));
    output.setAttribute("aria-live", "polite");
    const shown = (degrees) => Number(degrees.toPrecision(4));
    const percent = (rate) => `${(100 * rate[0]).toPrecision(3)} % [${(100 * rate[1]).toPrecision(3)}, ${(100 * rate[2]).toPrecision(3)}]`;
    const set = (value) => {
      const i = Math.max(0, Math.min(stops.length - 1, Math.round((value - stops[0]) / (stops[1] - stops[0]))));
      plot.threshold = stops[i];
      slider.value = stops[i];
      slider.setAttribute("aria-valuetext", `${shown(stops[i])} degrees`);
      output.textContent = `A pair is accepted up to ${shown(stops[i])}° (cosine ${Math.cos(stops[i] * Math.PI / 180).toFixed(3)}): FAR ${percent(far[i])}, FRR ${percent(frr[i])}`;
      const line = plot.layout.shapes[0];
      if (line.x0 !== stops[i] || line.x1 !== stops[i] || line.y0 !== 0 || line.y1 !== 1) {
        Plotly.relayout(plot, { "shapes[0].x0": stops[i], "shapes[0].x1": stops[i], "shapes[0].y0": 0, "shapes[0].y1": 1 });
      }
    };
    slider.addEventListener("keydown", (event) => {  // one stop a key; "any" would move by a hundredth of the range
      const by = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -20, PageUp: 20 }[event.key];
      if (!by) return;
      event.preventDefault();
      set(plot.threshold + by * (stops[1] - stops[0]));
    });
    slider.addEventListener("input", () => set(Number(slider.value)));
    plot.on("plotly_relayout", (change) => {
      if (change["shapes[0].x0"] !== undefined && change["shapes[0].x0"] !== plot.threshold) set((change["shapes[0].x0"] + change["shapes[0].x1"]) / 2);
    });
    set(start);
  },
};
