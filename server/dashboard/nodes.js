// Nodes: the daemons that share the store, as each has described itself.
import { ask } from "/api.js";
import { count, duration, el, isNumber, region } from "/dom.js";
import { dataTable } from "/parts.js";

const devices = (item) => (item.gpus || []).map((gpu) => `${gpu.name || gpu.device} ${gpu.state}`).join(", ") || "–";
const lease = (item) => (!isNumber(item.lease_s) ? "none needed" : item.lease_s < 0 ? "ended " + duration(-1000 * item.lease_s) + " ago" : duration(1000 * item.lease_s));

export function nodes(root) {
  const list = el("div", {});
  root.append(el("h1", { text: "Nodes" }), list);
  const draw = region(list);
  return async () => {
    const page = await ask("/v1/nodes");
    draw(page, () => dataTable("Nodes", [
      { name: "Node", cell: (item) => item.name + (item.name === page.self ? " (this one)" : "") },
      { name: "State", cell: (item) => el("span", { class: "pill " + ({ alive: "good", draining: "busy" }[item.state] || "bad"), text: item.state }) },
      { name: "Role", cell: (item) => item.role || "–" },
      { name: "GPUs", wrap: true, cell: devices },
      { name: "Running", number: true, cell: (item) => count(item.claimed) },
      { name: "Waiting", number: true, cell: (item) => count(item.waiting) },
      { name: "Lease", number: true, cell: lease },
      { name: "Version", cell: (item) => item.version || "–" },
    ], page.items, "No node has joined."));
  };
}
