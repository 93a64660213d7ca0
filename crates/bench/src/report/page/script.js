"use strict";
const root = document.documentElement;
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const make = (name, text) => Object.assign(document.createElement(name), { textContent: text });

// The theme is the system's until somebody asks for the other one.
const theme = make("button", "");
const isDark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const nameTheme = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
nameTheme();
document.querySelector(".brand").append(theme);

// Explanations: the browser's own appear late, and not at all on telephones.
const tip = make("div", "");
tip.id = "tip";
tip.hidden = true;
document.body.append(tip);
const texts = new WeakMap();
for (const group of all("g.tip")) {
  const title = group.querySelector("title");
  texts.set(group, title.textContent);
  title.remove();
}
const explain = (event) => {
  const group = event.target.closest && event.target.closest("g.tip");
  tip.hidden = !group;
  if (!group) return;
  tip.textContent = texts.get(group);
  const box = tip.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - box.width - 8);
  const top = event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${Math.max(8, top)}px`;
};
document.addEventListener("pointermove", explain);
document.addEventListener("pointerdown", explain);
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

// Tables are sorted by a click on a heading: numbers by value, from the largest first.
const compare = (one, other, isNumber) => {
  if (!isNumber) return one.textContent.localeCompare(other.textContent);
  const value = (cell) => (cell.dataset.value === undefined ? -Infinity : Number(cell.dataset.value));
  return value(one) === value(other) ? 0 : value(one) - value(other);
};
const sort = (table, heading) => {
  const column = heading.cellIndex;
  const isNumber = heading.classList.contains("n");
  const before = heading.getAttribute("aria-sort");
  const isRising = before ? before === "descending" : !isNumber;
  for (const other of all("th[aria-sort]", table)) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", isRising ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((one, other) => compare(one.cells[column], other.cells[column], isNumber) * (isRising ? 1 : -1));
  table.tBodies[0].append(...rows);
};
for (const table of all("table.sorted")) {
  for (const heading of all("th", table)) {
    const button = make("button", heading.textContent);
    button.addEventListener("click", () => sort(table, heading));
    heading.replaceChildren(button);
  }
}

// What is folded can't be unfolded on paper.
addEventListener("beforeprint", () => { for (const part of all("details")) part.open = true; });

// The records themselves, as they were read.
const records = document.getElementById("records");
if (records) {
  const button = make("button", "Download the records (JSON lines)");
  button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([records.textContent], { type: "application/jsonl" }));
    link.download = "results.jsonl";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  document.querySelector("footer").prepend(button);
}
