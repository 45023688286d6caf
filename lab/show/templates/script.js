"use strict";
/* Sorts tables by their columns and hides workloads and allocators. Without it the page shows all, in its own order. */
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  const value = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return null;
    const text = cell.dataset.v ?? cell.textContent.trim();
    if (text === "") return null;
    const number = Number(text);
    return Number.isNaN(number) ? text.toLowerCase() : number;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });

  const sort = (table, column, heading) => {
    const down = heading.getAttribute("aria-sort") !== "descending";
    all("thead th", table).forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = all("tbody tr", table).map((row) => [row, value(row, column)]);
    rows.sort(([, a], [, b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return down ? compare(b, a) : compare(a, b);
    });
    rows.forEach(([row]) => table.tBodies[0].append(row));
  };

  all("table.sortable").forEach((table) =>
    all("thead th", table).forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sort(table, column, heading));
      heading.append(button);
    }));

  const words = document.getElementById("find");
  const group = document.getElementById("group");
  const chips = all(".chip input");
  const filter = () => {
    const wanted = words.value.trim().toLowerCase();
    let shown = 0;
    all("[data-work]").forEach((part) => {
      const hit = part.dataset.work.toLowerCase().includes(wanted) && (!group.value || part.dataset.group === group.value);
      part.classList.toggle("off", !hit);
      shown += hit && part.matches("details");
    });
    const off = new Set(chips.filter((chip) => !chip.checked).map((chip) => chip.value));
    all("[data-a]").forEach((part) => part.classList.toggle("off", off.has(part.dataset.a)));
    document.getElementById("shown").textContent = shown + " shown";
  };
  if (words) {
    all(".controls[hidden]").forEach((part) => (part.hidden = false));
    [words, group, ...chips].forEach((part) => part.addEventListener("input", filter));
    const every = document.getElementById("every");
    every.addEventListener("click", () => {
      const works = all("details.work:not(.off)");
      const open = works.some((work) => !work.open);
      works.forEach((work) => (work.open = open));
      every.textContent = open ? "Close all" : "Open all";
    });
    filter();
  }

  /* A link to a workload opens it. */
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) target.open = true;
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
