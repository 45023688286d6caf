"use strict";
/* Zoom and search. Without it the whole graph is there, with the figures of a box as its title. */
(() => {
  const svg = document.getElementById("flame");
  const width = svg.viewBox.baseVal.width, letter = Number(svg.dataset.letter);
  const boxes = [...svg.querySelectorAll("g")].map((node) => ({
    node, rect: node.querySelector("rect"), text: node.querySelector("text"), name: node.dataset.n,
    x: Number(node.dataset.x), w: Number(node.dataset.w), depth: Number(node.dataset.d),
  }));
  const edge = 0.01; /* what rounding may add */

  const label = (box, x, w) => {
    const room = Math.floor((w - 6) / letter);
    if (!box.text) {
      box.text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      box.text.setAttribute("y", box.rect.y.baseVal.value + 13);
      box.node.append(box.text);
    }
    box.text.setAttribute("x", x + 3);
    box.text.textContent = room < 3 ? "" : box.name.length <= room ? box.name : box.name.slice(0, room - 1) + "…";
  };

  /* The box, its callers and what it calls; callers are as wide as all of it. */
  const show = (root) => {
    const scale = width / root.w;
    for (const box of boxes) {
      const inside = box.x >= root.x - edge && box.x + box.w <= root.x + root.w + edge;
      const above = box.depth < root.depth && box.x <= root.x + edge && box.x + box.w >= root.x + root.w - edge;
      const shown = above || (inside && box.depth >= root.depth);
      box.node.style.display = shown ? "" : "none";
      if (!shown) continue;
      const x = above ? 0 : (box.x - root.x) * scale, w = above ? width : box.w * scale;
      box.rect.setAttribute("x", x);
      box.rect.setAttribute("width", Math.max(w - 0.5, 0.2));
      label(box, x, w);
    }
  };

  const input = document.getElementById("find"), found = document.getElementById("found");
  const search = () => {
    const wanted = input.value.trim().toLowerCase();
    let sum = 0, count = 0;
    const counted = []; /* a box inside one that is counted adds nothing */
    for (const box of boxes) {
      const hit = wanted !== "" && box.name.toLowerCase().includes(wanted);
      box.node.classList.toggle("hit", hit);
      if (!hit) continue;
      count++;
      if (counted.some((other) => box.x >= other.x - edge && box.x + box.w <= other.x + other.w + edge)) continue;
      counted.push(box);
      sum += box.w;
    }
    svg.classList.toggle("searched", wanted !== "");
    found.textContent = wanted === "" ? "" : count + " found, " + (100 * sum / width).toFixed(1) + " % of the bytes";
  };

  svg.classList.add("live");
  document.querySelectorAll("[hidden]").forEach((part) => (part.hidden = false));
  svg.addEventListener("click", (event) => {
    const node = event.target.closest("g");
    if (node) show(boxes.find((box) => box.node === node));
  });
  document.getElementById("reset").addEventListener("click", () => {
    input.value = "";
    search();
    show(boxes[0]);
  });
  input.addEventListener("input", search);
})();
