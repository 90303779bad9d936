// The page: hears /events, draws what it hears; the slider shows the cluster as it was.

import { Partitions, colour } from "./partitions.js";

const RECORDS_MAX = 400, SAMPLES_MAX = 300;
const $ = (id) => document.getElementById(id);
const partitions = new Partitions($("grid"), $("tip"));
const records = [], samples = [];
window.partitions = partitions;   // For whoever looks with the browser's tools.
let topics = new Map();      // What is true now, also while the page shows the past.
let status = null, past = null, asked = 0;

function element(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function fill(table, heads, rows) {
  const head = element("tr");
  for (const [name, kind] of heads) head.append(element("th", name, kind));
  table.replaceChildren(head, ...rows);
}

// -- what is heard --------------------------------------------------------------------------

function listen() {
  const events = new EventSource("events");
  events.onopen = () => pill("live", "on");
  events.onerror = () => pill("connecting again", "off");
  events.addEventListener("status", (event) => heardStatus(JSON.parse(event.data)));
  events.addEventListener("topics", (event) => heardTopics(JSON.parse(event.data)));
  events.addEventListener("records", (event) => heardRecords(JSON.parse(event.data)));
  events.addEventListener("samples", (event) => heardSamples(JSON.parse(event.data)));
}

function pill(text, kind) {
  $("live").textContent = text;
  $("live").className = `pill ${kind}`;
}

function heardStatus(found) {
  if (!found.quorum) return;
  status = found;
  $("who").textContent = `${found.role} ${found.node_id}, ${found.state} · cluster ${found.cluster_id}`;
  document.title = `kraftpy · ${found.role} ${found.node_id}`;
  drawQuorum(found.quorum);
  $("slider").max = found.end_offset;
  if (past === null) {
    $("slider").value = found.end_offset;
    $("moment").textContent = `now, offset ${found.end_offset}`;
    drawHealth(found.health);
    drawBrokers(found.brokers);
  }
}

function heardTopics(found) {
  if (found.all) topics = new Map();
  for (const id of found.removed) topics.delete(id);
  for (const row of found.changed) topics.set(row.id, row);
  if (past !== null) return;
  partitions.change(found);
  countTopics(topics.size);
}

function heardRecords(found) {
  const known = records.length ? records[records.length - 1].offset : -1;
  records.push(...found.filter((record) => record.offset > known));
  records.splice(0, records.length - RECORDS_MAX);
  drawRecords(known);
}

function heardSamples(found) {
  const known = samples.length ? samples[samples.length - 1].time_ms : 0;
  samples.push(...found.filter((sample) => sample.time_ms > known));
  samples.splice(0, samples.length - SAMPLES_MAX);
  drawLags();
}

// -- health, quorum, brokers ----------------------------------------------------------------

function drawHealth(health) {
  const tiles = [
    ["offline", health.offline, health.offline ? "bad" : ""],
    ["under-replicated", health.under_replicated, health.under_replicated ? "warn" : ""],
    ["below min.insync", health.under_min_isr, health.under_min_isr ? "bad" : ""],
    ["reassigning", health.reassigning, ""],
    ["recovering", health.recovering, health.recovering ? "warn" : ""],
    ["not led by preferred", health.not_preferred, ""],
    ["partitions", health.partitions, ""],
    ["topics", health.topics, ""],
  ];
  $("health").replaceChildren(...tiles.map(([name, value, kind]) => {
    const tile = element("div", undefined, `tile ${kind}`);
    tile.append(element("b", value.toLocaleString()), element("span", name));
    return tile;
  }));
}

function drawQuorum(quorum) {
  if (quorum.error) {
    $("leader").textContent = quorum.error;
    return;
  }
  $("leader").textContent =
    `leader ${quorum.leader_id}, epoch ${quorum.leader_epoch}, committed up to ${quorum.high_watermark}`;
  const row = (replica, role) => {
    const line = element("tr", undefined, role === "leader" ? "leads" : "");
    const name = element("td");
    const dot = element("span", undefined, "dot");
    dot.style.background = colour(replica.replica_id);
    name.append(dot, String(replica.replica_id));
    const place = replica.host ? `${replica.host}:${replica.port}` : "";
    line.append(name, element("td", role), element("td", place),
      element("td", replica.log_end_offset < 0 ? "–" : replica.log_end_offset, "number"),
      element("td", replica.lag ?? "–", "number"));
    return line;
  };
  fill($("voters"), [["node"], ["role"], ["address"], ["log end", "number"], ["lag", "number"]], [
    ...quorum.voters.map((v) => row(v, v.replica_id === quorum.leader_id ? "leader" : "voter")),
    ...quorum.observers.map((o) => row(o, "observer")),
  ]);
}

function drawBrokers(brokers) {
  const most = Math.max(1, ...brokers.map((broker) => broker.leads));
  fill($("broker-rows"),
    [["broker"], ["state"], ["address"], ["rack"], ["hosts", "number"], ["out of sync", "number"], ["leads"]],
    brokers.map((broker) => {
      const line = element("tr"), name = element("td"), leads = element("td", broker.leads);
      const dot = element("span", undefined, "dot"), bar = element("span", undefined, "bar");
      dot.style.background = colour(broker.id);
      name.append(dot, String(broker.id));
      bar.style.width = `${Math.round((100 * broker.leads) / most)}px`;
      bar.style.background = colour(broker.id);
      leads.append(bar);
      line.append(name, element("td", broker.state, `state-${broker.state.split(" ")[0]}`),
        element("td", broker.addresses.join(", ")), element("td", broker.rack ?? ""),
        element("td", broker.hosts, "number"), element("td", broker.lagging, "number"), leads);
      return line;
    }));
}

function countTopics(count) {
  $("topic-count").textContent = count === 1 ? "1 topic" : `${count.toLocaleString()} topics`;
}

// -- lags over time -------------------------------------------------------------------------

function drawLags() {
  const canvas = $("lags"), ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = 120;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const style = getComputedStyle(document.documentElement);
  const ids = [...new Set(samples.flatMap((sample) => Object.keys(sample.lags)))].sort((a, b) => a - b);
  const most = Math.max(4, ...samples.flatMap((sample) => Object.values(sample.lags).map((lag) => lag ?? 0)));
  const x = (i) => 30 + ((width - 34) * i) / (SAMPLES_MAX - 1);
  const y = (lag) => height - 6 - ((height - 16) * lag) / most;
  pen.strokeStyle = style.getPropertyValue("--line");
  pen.fillStyle = style.getPropertyValue("--soft");
  pen.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  for (const lag of [0, most]) {
    pen.beginPath(); pen.moveTo(30, y(lag)); pen.lineTo(width, y(lag)); pen.stroke();
    pen.fillText(String(lag), 2, y(lag) + 4);
  }
  const begin = SAMPLES_MAX - samples.length;
  samples.forEach((sample, i) => {   // A new leader is a line from top to bottom.
    if (i && sample.leader_id !== samples[i - 1].leader_id) {
      pen.strokeStyle = style.getPropertyValue("--bad");
      pen.beginPath(); pen.moveTo(x(begin + i), 4); pen.lineTo(x(begin + i), height - 6); pen.stroke();
    }
  });
  for (const id of ids) {
    pen.strokeStyle = colour(Number(id));
    pen.lineWidth = 1.6;
    pen.beginPath();
    let drawing = false;
    samples.forEach((sample, i) => {
      const lag = sample.lags[id];
      if (lag === undefined || lag === null) { drawing = false; return; }
      if (drawing) pen.lineTo(x(begin + i), y(lag)); else pen.moveTo(x(begin + i), y(lag));
      drawing = true;
    });
    pen.stroke();
  }
  $("legend").replaceChildren(...ids.map((id) => {
    const name = element("span"), dot = element("span", undefined, "dot");
    dot.style.background = colour(Number(id));
    name.append(dot, `node ${id}`);
    return name;
  }));
}

// -- the log --------------------------------------------------------------------------------

function drawRecords(known) {
  const all = $("noops").checked;
  const rows = records.filter((record) => all || record.type !== "NoOpRecord").reverse()
    .map((record) => {
      const row = element("tr", undefined, known >= 0 && record.offset > known ? "new" : "");
      const time = new Date(record.timestamp_ms).toISOString().slice(11, 23);
      row.append(element("td", record.offset, "number"), element("td", `e${record.epoch}`),
        element("td", time), element("td", record.type, "type"), element("td", record.text));
      row.title = JSON.stringify(record.fields, null, 1);
      return row;
    });
  fill($("records").querySelector("table"),
    [["offset", "number"], ["epoch"], ["time, UTC"], ["record"], ["what it means"]], rows);
}

// -- the past -------------------------------------------------------------------------------

async function lookBack() {
  const number = ++asked, offset = Number($("slider").value);
  if (status && offset >= status.end_offset) return backToNow();
  past = offset;
  $("moment").textContent = `offset ${offset} …`;
  const answer = await fetch(`image?at=${offset}`);
  const found = await answer.json();
  if (number !== asked) return;   // The slider has moved on.
  if (!answer.ok) { $("moment").textContent = found.error; return; }
  past = found.end_offset;
  $("time").classList.add("past");
  $("now").hidden = false;
  $("slider").min = found.first_offset;
  const when = found.timestamp_ms > 0 ? new Date(found.timestamp_ms).toISOString() : "the beginning";
  $("moment").textContent = `as it was at offset ${found.end_offset}, ${when}`;
  drawHealth(found.health);
  drawBrokers(found.brokers);
  partitions.replace(found.topics);
  countTopics(found.topics.length);
}

function backToNow() {
  asked++;
  past = null;
  $("time").classList.remove("past");
  $("now").hidden = true;
  partitions.replace([...topics.values()]);
  countTopics(topics.size);
  if (status) heardStatus(status);
}

$("slider").addEventListener("input", lookBack);
$("now").addEventListener("click", backToNow);
$("filter").addEventListener("input", (event) => partitions.show(event.target.value));
$("noops").addEventListener("change", () => drawRecords(-1));
new ResizeObserver(drawLags).observe($("lags"));
listen();
