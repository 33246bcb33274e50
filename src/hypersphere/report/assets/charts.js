// Charts: plotly draws them; here they get the page's colours, a table of their numbers, and what their kind adds.
const kinds = {};
const CONFIG = { responsive: true, displaylogo: false, displayModeBar: false, scrollZoom: false };

function alpha(color, share) {
  return color + Math.round(255 * share).toString(16).padStart(2, "0");
}

function coloured(trace) {
  const { tint, band, ...rest } = trace;
  if (tint === undefined) return rest;
  const color = theme.tint(tint);
  if (band) return { ...rest, line: { width: 0, color }, fillcolor: alpha(color, 0.18), hoverinfo: "skip", showlegend: false };
  const changed = { ...rest };
  if (rest.type === "bar" || rest.type === "scatter3d" || (rest.mode || "").includes("markers")) changed.marker = { ...rest.marker, color };
  if (rest.type === "box" || rest.type === "violin") changed.line = { ...rest.line, color };
  if (rest.type === "scatter" && (rest.mode || "lines").includes("lines")) changed.line = { width: 2, ...rest.line, color };
  return changed;
}

function axis(own) {
  return {
    gridcolor: theme.variable("--line"), linecolor: theme.variable("--line"), zeroline: false, automargin: true,
    ticks: "", title: { standoff: 8 }, ...own,
  };
}

function layoutOf(chart) {
  const layout = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 8, r: 12, t: 12, b: 8 },
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: theme.variable("--soft") },
    hoverlabel: { bgcolor: theme.variable("--card"), bordercolor: theme.variable("--line"), font: { color: theme.variable("--ink") } },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { color: theme.variable("--ink") } },
    hovermode: "closest", dragmode: false, ...chart.layout,
  };
  for (const name of ["xaxis", "yaxis"]) layout[name] = axis(chart.layout[name]);
  return layout;
}

async function draw(figure, chart) {
  const plot = figure.querySelector(".plot");
  const kind = kinds[chart.kind];
  if (chart.layout.height) plot.style.height = `${chart.layout.height}px`;
  const show = () => {
    const layout = kind ? kind.layout(chart, layoutOf(chart), plot) : layoutOf(chart);
    const traces = kind && kind.traces ? kind.traces(chart, plot) : chart.traces.map(coloured);
    return Plotly.react(plot, traces, layout, CONFIG);
  };
  await show();
  if (kind) kind.start(figure, plot, chart);
  theme.listeners.push(show);
  figure.dataset.drawn = "true";
}

function numbers(figure, chart) {
  const details = figure.querySelector(".numbers");
  details.addEventListener("toggle", () => {
    const place = details.querySelector(".scroll");
    if (!details.open || place.childElementCount) return;
    const table = document.createElement("table");
    const add = (parent, cells, tag) => {
      const row = parent.insertRow();
      for (const cell of cells) row.appendChild(document.createElement(tag)).textContent = cell;
    };
    const axes = ["x", "y", "z"].map((name) => ((chart.layout[`${name}axis`] || {}).title || {}).text || name);
    add(table.createTHead(), ["series", ...axes.slice(0, chart.kind === "sphere" ? 3 : 2)], "th");
    const body = table.createTBody();
    for (const trace of chart.traces) {
      if (trace.band || trace.hoverinfo === "skip") continue;
      const values = [trace.x, trace.y, ...(trace.z ? [trace.z] : [])];
      const count = Math.max(...values.map((v) => (v || []).length));
      for (let i = 0; i < Math.min(count, 400); i++) add(body, [untagged(trace.name || ""), ...values.map((v) => (v && v[i] !== null ? v[i] : "–"))], "td");
    }
    place.appendChild(table);
  });
}

// Names are written for plotly, with entities for what could be a tag; elsewhere they are shown as they were.
function untagged(text) {
  return text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
}
