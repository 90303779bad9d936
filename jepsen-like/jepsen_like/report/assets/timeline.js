"use strict";
// Draws the timeline of a run on one canvas: every row shares the time axis. Drag to zoom in,
// double-click for the whole run, hover for what is under the pointer.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("timeline");
  const tip = document.getElementById("tip");
  const GUTTER = 138, AXIS = 22;
  const PALETTE = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#ff9da7", "#9c755f"];
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue("--" + name).trim();
  const OUTCOME = ["ok", "fail", "info"];
  let view = [0, Math.max(data.end, 0.001)];
  let drag = null, hits = [];

  const nodes = [...new Set(data.leaders.flatMap((lane) => lane.spans.map((s) => s[2])))]
    .filter((name) => name !== "none").sort();
  const nodeColour = (name) =>
    name === "none" ? colour("invalid") : PALETTE[nodes.indexOf(name) % PALETTE.length];

  // Rows: a height and a way to draw; built once.
  const rows = [];
  if (data.marks.length) rows.push({ name: "anomalies", height: 16, draw: drawMarks });
  if (data.phases.length) rows.push({ name: "phases", height: 17, draw: drawPhases });
  for (const name of [...new Set(data.faults.map((f) => f[0]))].sort())
    rows.push({ name, height: 17, draw: drawFaults, faults: data.faults.filter((f) => f[0] === name) });
  for (const lane of data.leaders)
    rows.push({ name: lane.name, height: lane.name.endsWith(" runs") ? 11 : 17, draw: drawSpans, lane });
  for (let lane = 0; lane < data.clients; lane++)
    rows.push({ name: "client " + lane, height: 17, draw: drawBars, bars: data.bars.filter((b) => b[0] === lane) });
  for (const chart of data.charts) rows.push({ name: chart.name, height: 92, draw: drawChart, chart });
  const height = rows.reduce((sum, row) => sum + row.height + 3, AXIS + 4);

  const width = () => canvas.clientWidth;
  const x = (t) => GUTTER + ((t - view[0]) / (view[1] - view[0])) * (width() - GUTTER - 8);
  const time = (px) => view[0] + ((px - GUTTER) / (width() - GUTTER - 8)) * (view[1] - view[0]);
  const inView = (from, to) => to >= view[0] && from <= view[1];

  function block(c, from, to, y, h, fill, label, ink) {
    const left = Math.max(x(from), GUTTER), right = Math.min(x(to), width() - 8);
    const w = Math.max(right - left, 1);
    c.fillStyle = fill;
    c.fillRect(left, y, w, h);
    if (label && c.measureText(label).width + 8 < w) {
      c.fillStyle = ink || "#fff";
      c.fillText(label, left + 4, y + h / 2 + 4);
    }
    return [left, y, w, h];
  }
  const hit = (box, say, go) => hits.push({ box, say, go });

  function drawMarks(c, row, y) {
    c.fillStyle = colour("invalid");
    for (const [t, id, message] of data.marks) {
      if (!inView(t, t)) continue;
      const px = x(t);
      c.beginPath();
      c.moveTo(px - 5, y + 2); c.lineTo(px + 5, y + 2); c.lineTo(px, y + 13);
      c.fill();
      hit([px - 6, y, 12, 15], message, id);
    }
  }
  function drawPhases(c, row, y) {
    data.phases.forEach(([name, from, to], n) => {
      if (!inView(from, to)) return;
      const box = block(c, from, to, y, row.height, n % 2 ? colour("line") : colour("panel"), name, colour("ink"));
      hit(box, `phase ${name}\n${from.toFixed(2)} to ${to.toFixed(2)} s`);
    });
  }
  function drawFaults(c, row, y) {
    for (const [name, targets, from, to] of row.faults) {
      if (!inView(from, to)) continue;
      const box = block(c, from, to, y, row.height, colour("invalid"), targets);
      hit(box, `${name} ${targets}\n${from.toFixed(2)} to ${to.toFixed(2)} s`);
    }
  }
  function drawSpans(c, row, y) {
    for (const [from, to, who, note, short_isr] of row.lane.spans) {
      if (!inView(from, to)) continue;
      const label = row.height > 12 ? `${who} \u00b7 ${note}` : "";
      const short = label && c.measureText(label).width + 8 > x(to) - x(from) ? who : label;
      const box = block(c, from, to, y, row.height, nodeColour(who), short);
      if (short_isr) {
        c.fillStyle = colour("invalid");
        c.fillRect(box[0], y + row.height - 3, box[2], 3);
      }
      hit(box, `${row.name}: ${who}\n${note}\n${from.toFixed(2)} to ${to.toFixed(2)} s`);
    }
  }
  function drawBars(c, row, y) {
    for (const [, from, to, outcome, label, line, named] of row.bars) {
      if (!inView(from, to)) continue;
      const fill = colour(OUTCOME[outcome]);
      const box = block(c, from, to, y + 1, row.height - 2, fill, named ? "" : label);
      if (named) {
        c.strokeStyle = colour("invalid");
        c.lineWidth = 2;
        c.strokeRect(box[0] - 1, y, Math.max(box[2], 3) + 2, row.height);
        c.lineWidth = 1;
      } else if (box[2] > 3) {
        c.strokeStyle = colour("ground");
        c.strokeRect(box[0], y + 0.5, box[2], row.height - 1);
      }
      hit(box, `${label}\n${OUTCOME[outcome]} · line ${line} · ${from.toFixed(3)} s, ${((to - from) * 1000).toFixed(1)} ms`);
    }
  }
  function drawChart(c, row, y) {
    const { chart, height: h } = row;
    const shown = chart.curves.flatMap((k) => k.points.filter((p) => inView(p[0], p[0])).map((p) => p[1]));
    const top = Math.max(...shown, chart.log ? 10 : 1);
    const low = chart.log ? Math.max(Math.min(...shown.filter((v) => v > 0), top), 0.01) : 0;
    const place = chart.log
      ? (v) => y + h - 4 - (Math.log(Math.max(v, low) / low) / (Math.log(top / low) || 1)) * (h - 14)
      : (v) => y + h - 4 - (v / top) * (h - 14);
    c.strokeStyle = colour("line");
    const ticks = chart.log ? decades(low, top) : [0, top / 2, top];
    c.textAlign = "right";
    for (const v of ticks) {
      c.beginPath(); c.moveTo(GUTTER, place(v)); c.lineTo(width() - 8, place(v)); c.stroke();
      c.fillStyle = colour("faint");
      c.fillText(compact(v), GUTTER - 5, place(v) + 4);
    }
    c.textAlign = "left";
    c.save();
    c.beginPath(); c.rect(GUTTER, y - 2, width() - GUTTER - 8, h + 4); c.clip();
    for (const curve of chart.curves) {
      c.strokeStyle = colour(curve.colour) || curve.colour;
      c.lineWidth = 1.5;
      c.beginPath();
      curve.points.forEach(([t, v], n) => (n ? c.lineTo(x(t), place(v)) : c.moveTo(x(t), place(v))));
      c.stroke();
    }
    c.restore();
    c.lineWidth = 1;
    hits.push({ box: [GUTTER, y, width(), h], chart });
  }
  const decades = (low, top) => {
    const found = [], few = top / low < 200;
    for (let v = Math.pow(10, Math.floor(Math.log10(low))); v <= top; v *= 10)
      for (const m of few ? [1, 2, 5] : [1]) if (v * m >= low && v * m <= top) found.push(v * m);
    return found.length > 1 ? found : [low, top];
  };
  const compact = (v) => (v >= 1000 ? (v / 1000).toFixed(v < 10000 ? 1 : 0) + "k" : v >= 10 || v === 0 ? v.toFixed(0) : v.toPrecision(2));

  function ticksOf(from, to) {
    const rough = (to - from) / 10, unit = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = unit * [1, 2, 5, 10].find((m) => unit * m >= rough);
    const found = [];
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) found.push(t);
    return [found, step];
  }
  function draw() {
    const scale = window.devicePixelRatio || 1;
    canvas.width = width() * scale;
    canvas.height = height * scale;
    canvas.style.height = height + "px";
    const c = canvas.getContext("2d");
    c.scale(scale, scale);
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = colour("ground");
    c.fillRect(0, 0, width(), height);
    hits = [];
    c.fillStyle = colour("band");
    for (const [, , from, to] of data.faults)
      if (inView(from, to)) {
        const left = Math.max(x(from), GUTTER);
        c.fillRect(left, AXIS, Math.max(Math.min(x(to), width() - 8) - left, 1), height - AXIS);
      }
    const [ticks, step] = ticksOf(view[0], view[1]);
    for (const t of ticks) {
      c.strokeStyle = colour("line");
      c.beginPath(); c.moveTo(x(t), AXIS - 4); c.lineTo(x(t), height); c.stroke();
      c.fillStyle = colour("faint");
      c.fillText(t.toFixed(step < 1 ? Math.min(3, Math.ceil(-Math.log10(step))) : 0) + " s", x(t) + 3, 13);
    }
    let y = AXIS + 2;
    for (const row of rows) {
      c.fillStyle = colour("ink");
      if (row.height > 12) c.fillText(clip(c, row.name), 8, y + (row.chart ? 12 : row.height / 2 + 4));
      else { c.fillStyle = colour("faint"); c.font = "9px system-ui, sans-serif"; c.fillText(clip(c, row.name), 8, y + 9); c.font = "11px system-ui, sans-serif"; }
      if (row.chart) legend(c, row.chart, y + 26);
      row.draw(c, row, y);
      y += row.height + 3;
    }
    if (drag) {
      c.fillStyle = "rgba(120, 140, 170, 0.25)";
      c.fillRect(Math.min(drag[0], drag[1]), AXIS, Math.abs(drag[1] - drag[0]), height);
    }
  }
  function legend(c, chart, y) {
    for (const curve of chart.curves) {
      c.fillStyle = colour(curve.colour) || curve.colour;
      c.fillRect(8, y - 6, 8, 3);
      c.fillStyle = colour("faint");
      c.fillText(curve.name, 20, y);
      y += 14;
    }
  }
  function clip(c, text) {
    if (c.measureText(text).width <= GUTTER - 14) return text;
    while (text.length > 3 && c.measureText(text + "…").width > GUTTER - 14) text = text.slice(0, -1);
    return text + "…";
  }
  function under(event) {
    const box = canvas.getBoundingClientRect();
    const px = event.clientX - box.left, py = event.clientY - box.top;
    for (let n = hits.length - 1; n >= 0; n--) {
      const [left, top, w, h] = hits[n].box;
      if (px >= left - 1 && px <= left + Math.max(w, 3) && py >= top && py <= top + h) return [hits[n], px];
    }
    return [null, px];
  }
  function nearest(chart, t) {
    return chart.curves.map((curve) => {
      let best = null;
      for (const p of curve.points) if (!best || Math.abs(p[0] - t) < Math.abs(best[0] - t)) best = p;
      return best ? `${curve.name}: ${best[1]} ${chart.unit}` : "";
    }).join("\n");
  }
  canvas.addEventListener("mousemove", (event) => {
    const [found, px] = under(event);
    if (drag) { drag[1] = Math.max(px, GUTTER); draw(); }
    if (!found || px < GUTTER) { tip.style.display = "none"; return; }
    tip.textContent = found.chart ? `${time(px).toFixed(1)} s\n${nearest(found.chart, time(px))}` : found.say;
    tip.style.display = "block";
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - 300) + "px";
    tip.style.top = event.clientY + 14 + "px";
  });
  canvas.addEventListener("mouseleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("mousedown", (event) => {
    const [found, px] = under(event);
    if (found && found.go) { show(found.go); return; }
    if (px > GUTTER) drag = [px, px];
  });
  window.addEventListener("mouseup", () => {
    if (!drag) return;
    const [a, b] = [Math.min(...drag), Math.max(...drag)];
    drag = null;
    if (b - a > 4) zoom(time(a), time(b));
    else draw();
  });
  canvas.addEventListener("dblclick", () => zoom(0, data.end));
  function zoom(from, to) {
    const middle = (from + to) / 2, half = Math.max((to - from) / 2, 0.002);
    view = [Math.max(0, middle - half), Math.min(Math.max(data.end, 0.001), middle + half)];
    draw();
  }
  function show(id) {
    const found = document.getElementById(id);
    if (!found) return;
    found.open = true;
    for (let up = found.parentElement; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    location.hash = id;
    found.scrollIntoView({ block: "center" });
  }
  document.querySelectorAll("[data-zoom]").forEach((button) =>
    button.addEventListener("click", () => {
      const [from, to] = button.dataset.zoom.split(" ").map(Number);
      zoom(from, to);
      if (button.dataset.far) canvas.scrollIntoView({ block: "start", behavior: "smooth" });
    }));
  window.addEventListener("resize", draw);
  if (window.matchMedia) matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  if (location.hash.length > 1) show(location.hash.slice(1));
  draw();
})();
