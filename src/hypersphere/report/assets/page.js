// The start: inflate the plotting library, draw what comes into view, copy commands, mark the section that is read.
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
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((e) => e.isIntersecting)) {
      watch.unobserve(entry.target);
      draw(entry.target, charts[entry.target.dataset.chart]).catch((error) => {
        entry.target.dataset.drawn = "false";
        complain(`A chart could not be drawn: ${error.message}`);
        console.error(error);
      });
    }
  }, { rootMargin: "600px" });
  for (const figure of figures) {
    numbers(figure, charts[figure.dataset.chart]);
    watch.observe(figure);
  }
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
const reading = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((e) => e.isIntersecting)) {
    for (const link of links.values()) link.removeAttribute("aria-current");
    links.get(entry.target.id).setAttribute("aria-current", "true");
  }
}, { rootMargin: "-20% 0px -70% 0px" });
for (const section of document.querySelectorAll("main > section")) reading.observe(section);
begin();
