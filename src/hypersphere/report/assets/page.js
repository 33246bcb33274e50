// Start of the page: inflate the plotting library, draw charts, copy commands, mark the current section.
async function inflate(element) {
  const bytes = Uint8Array.from(atob(element.textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

function complain(text) {
  const place = document.getElementById("page-problem");
  place.textContent = text;
  place.hidden = false;
}

async function begin() {
  const charts = JSON.parse(document.getElementById("page-data").textContent);
  const figures = [...document.querySelectorAll("figure[data-chart]")];
  if (!figures.length) return;
  if (typeof DecompressionStream === "undefined") {
    complain("This browser is too old for the charts (it lacks DecompressionStream); the tables are complete.");
    return;
  }
  const script = document.createElement("script");
  script.textContent = await inflate(document.getElementById("page-library"));
  document.head.appendChild(script);
  const waiting = new Set(figures);
  const drawOnce = (figure) => {
    if (!waiting.delete(figure)) return;
    watch.unobserve(figure);
    draw(figure, charts[figure.dataset.chart]).catch((error) => {
      figure.dataset.drawn = "false";
      complain(`A chart could not be drawn: ${error.message}`);
      console.error(error);
    });
  };
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) drawOnce(entry.target);
  }, { rootMargin: "600px" });
  // Charts outside the view are drawn one by one when the browser is idle, and all at once before printing.
  const idle = window.requestIdleCallback || ((call) => setTimeout(call, 50));
  const drawNext = () => {
    const [figure] = waiting;
    if (figure) { drawOnce(figure); idle(drawNext); }
  };
  window.addEventListener("beforeprint", () => { for (const figure of [...waiting]) drawOnce(figure); });
  for (const figure of figures) {
    numbers(figure, charts[figure.dataset.chart]);
    watch.observe(figure);
  }
  idle(drawNext);
}

for (const copy of document.querySelectorAll(".copy")) {
  copy.addEventListener("click", async () => {
    const text = copy.parentElement.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(copy.parentElement.querySelector("code"));
      copy.textContent = "Selected";
    }
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
}

const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
const sections = [...document.querySelectorAll("main > section")];
function markSection() {
  const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
  const above = sections.filter((section) => section.getBoundingClientRect().top < 0.3 * innerHeight);
  const current = end ? sections.at(-1) : above.at(-1) || sections[0];
  for (const link of links.values()) link.removeAttribute("aria-current");
  if (current && links.has(current.id)) links.get(current.id).setAttribute("aria-current", "true");
}
addEventListener("scroll", markSection, { passive: true });
addEventListener("resize", markSection);
markSection();
begin();
