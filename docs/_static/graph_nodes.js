// Lays a button over each node of a picture of a graph, which says below the picture what the node is. See graph_nodes.py.
"use strict";

document.querySelectorAll(".graph-nodes").forEach((all) => {
  const picture = all.closest(".cell").previousElementSibling.querySelector(".cell_output img");
  const link = picture.closest("a") ?? picture;
  const frame = document.createElement("div");
  const said = all.querySelector(".graph-said");
  frame.className = "graph-frame";
  link.replaceWith(frame);
  frame.append(link);
  all.querySelectorAll(".graph-node").forEach((node) => {
    const show = () => {
      frame.querySelector(".graph-shown")?.classList.remove("graph-shown");
      node.classList.add("graph-shown");
      if (said.innerHTML !== node.dataset.said) said.innerHTML = node.dataset.said;
    };
    ["focus", "pointerenter", "click"].forEach((event) => node.addEventListener(event, show));
    frame.append(node);
  });
  all.hidden = false;
});
