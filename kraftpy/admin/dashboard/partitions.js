// The picture of all partitions: a canvas that draws only the rows that can be seen.
//
// A topic takes one or more lines of blocks; a block is a partition, a stripe in it a replica.
// Those with partitions that nobody leads come first, then those with replicas out of sync.

const NAME = 220, GAP = 5, BOX_MIN = 90, BOX_MAX = 380;
// How large a stripe is drawn, by how many partitions there are: [at most, width, height].
const SIZES = [[300, 12, 20], [2000, 8, 16], [Infinity, 5, 14]];
const HUES = [211, 28, 142, 271, 48, 187, 330, 96, 240, 0, 165, 300];

export function colour(broker) {
  const hue = HUES[((broker % HUES.length) + HUES.length) % HUES.length];
  const turn = Math.floor(broker / HUES.length) % 3;
  return `hsl(${hue} 62% ${52 - turn * 10}%)`;
}

// A row of the server: [index, leader, replicas, isr, elr, leader epoch, moving, recovering].
function fault([, leader, replicas, isr]) {
  return leader < 0 ? 2 : isr.length < replicas.length ? 1 : 0;
}

export class Partitions {
  constructor(box, tip) {
    this.box = box;
    this.canvas = box.querySelector("canvas");
    this.spacer = box.querySelector("#spacer");
    this.tip = tip;
    this.topics = new Map();
    this.lines = [];
    [, this.stripe, this.height] = SIZES[0];
    this.filter = "";
    this.waiting = false;
    box.addEventListener("scroll", () => this.soon());
    new ResizeObserver(() => this.layout()).observe(box);
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
  }

  replace(rows) {
    this.topics = new Map(rows.map((row) => [row.id, row]));
    this.layout();
  }

  change({ changed, removed, all }) {
    if (all) this.topics.clear();
    for (const id of removed) this.topics.delete(id);
    for (const row of changed) this.topics.set(row.id, row);
    this.layout();
  }

  show(filter) {
    this.filter = filter.toLowerCase();
    this.layout();
  }

  // Which blocks stand in which line; drawn when the browser is ready for it.
  layout() {
    const width = this.box.clientWidth - NAME;
    const found = [];
    let count = 0;
    for (const topic of this.topics.values()) {
      if (!topic.name.toLowerCase().includes(this.filter)) continue;
      let worst = 0;
      count += topic.partitions.length;
      for (const row of topic.partitions) worst = Math.max(worst, fault(row));
      found.push({ topic, worst });
    }
    [, this.stripe, this.height] = SIZES.find(([most]) => count <= most);
    found.sort((a, b) => b.worst - a.worst || (a.topic.name < b.topic.name ? -1 : 1));
    this.lines = [];
    for (const { topic, worst } of found) {
      let line = { topic, worst, first: true, blocks: [] }, x = 0;
      for (const row of topic.partitions) {
        const size = this.width(row);
        if (x + size > width && line.blocks.length) {
          this.lines.push(line);
          line = { topic, worst, first: false, blocks: [] };
          x = 0;
        }
        line.blocks.push([x, row]);
        x += size;
      }
      this.lines.push(line);
    }
    const whole = this.lines.length * this.line;
    const box = Math.min(BOX_MAX, Math.max(BOX_MIN, whole));
    this.box.style.height = `${box}px`;
    this.spacer.style.height = `${Math.max(0, whole - box)}px`;
    this.soon();
  }

  get line() {
    return this.height + 8;
  }

  width([, , replicas]) {
    return Math.max(1, replicas.length) * (this.stripe + 1) + GAP;
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    const { canvas, box } = this, ratio = window.devicePixelRatio || 1;
    const width = box.clientWidth, height = box.clientHeight;
    if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      canvas.style.height = `${height}px`;
    }
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink"), bad = style.getPropertyValue("--bad");
    const soft = style.getPropertyValue("--soft"), warn = style.getPropertyValue("--warn");
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
    pen.textBaseline = "middle";
    const top = box.scrollTop, first = Math.floor(top / this.line);
    const last = Math.min(this.lines.length, Math.ceil((top + height) / this.line) + 1);
    for (let number = first; number < last; number++) {
      const line = this.lines[number], y = number * this.line - top + 5;
      if (line.first) {
        pen.fillStyle = line.worst === 2 ? bad : line.worst === 1 ? warn : ink;
        pen.fillText(shorten(line.topic.name), 0, y + this.height / 2);
      }
      for (const [x, row] of line.blocks) this.block(pen, NAME + x, y, row, ink, bad);
    }
    this.drawn = last - first;
    if (!this.lines.length) {
      pen.fillStyle = soft;
      pen.fillText("no topics", 0, 14);
    }
  }

  at(event) {
    const area = this.canvas.getBoundingClientRect();
    const x = event.clientX - area.left - NAME;
    const line = this.lines[Math.floor((event.clientY - area.top + this.box.scrollTop) / this.line)];
    if (!line || x < 0) return null;
    for (const [left, row] of line.blocks) {
      if (x >= left && x < left + this.width(row)) return [line.topic, row];
    }
    return null;
  }

  hover(event) {
    const found = this.at(event);
    this.tip.hidden = !found;
    if (!found) return;
    const [topic, [index, leader, replicas, isr, elr, epoch, moving, recovering]] = found;
    const said = [
      `${topic.name}-${index}`,
      leader < 0 ? "nobody leads it" : `leader ${leader}, epoch ${epoch}`,
      `replicas ${replicas.join(", ")}`,
      `in sync ${isr.join(", ") || "nobody"}`,
    ];
    if (elr.length) said.push(`eligible ${elr.join(", ")}`);
    if (moving) said.push("is being reassigned");
    if (recovering) said.push("recovers from an unclean election");
    this.tip.textContent = said.join("\n");
    this.tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - 240)}px`;
    this.tip.style.top = `${event.clientY + 14}px`;
  }

  block(pen, x, y, row, ink, bad) {
    const [, leader, replicas, isr] = row, { stripe, height } = this;
    if (leader < 0) {
      pen.fillStyle = bad;
      pen.globalAlpha = 0.3;
      pen.fillRect(x - 2, y - 2, replicas.length * (stripe + 1) + 3, height + 4);
      pen.globalAlpha = 1;
    }
    for (let i = 0; i < replicas.length; i++) {
      const left = x + i * (stripe + 1);
      if (isr.includes(replicas[i])) {
        pen.fillStyle = colour(replicas[i]);
        pen.fillRect(left, y, stripe, height);
      } else {
        pen.strokeStyle = bad;
        pen.strokeRect(left + 0.5, y + 0.5, stripe - 1, height - 1);
      }
      if (replicas[i] === leader) {
        pen.fillStyle = ink;
        pen.fillRect(left, y - 3, stripe, 3);
      }
    }
  }
}

function shorten(name) {
  return name.length > 28 ? `${name.slice(0, 27)}…` : name;
}
