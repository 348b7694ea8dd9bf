// The status page in a browser: receives the gateway's events and shows them.
//
// Events are server-sent (see page.py): `view` with the sections that changed, `points` for plots.
// While none arrive, the page shows that and the age of its data, and retries with growing pauses.
// Everything from outside enters the page as text, never as markup.
"use strict";

const STALE_S = 6; // after this long without an event, the gateway is out of reach
const RETRY_S = [1, 2, 4, 8, 15, 30];
const PLOTS_MAX = 6;
const TREND = 90; // values of a backlog's trend
const CELL_FULL = 4200; // millivolts of one lithium cell
const EMPTY_MV = 100; // so far below the limit of the alarm a battery is nearly empty
const NARROW = 640; // px

const $ = (id) => document.getElementById(id);
const view = {}; // the newest of every section
let clock = null; // {us, at}: the gateway's time, and when it said it by our own clock

// ---- small tools

function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  return fill(node, attributes, children);
}

function s(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return fill(node, attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
  return node;
}

const number = (n) => (n === null || n === undefined ? "–" : n.toLocaleString("en"));
const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;

function size(n) {
  if (n === null || n === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let k = 0;
  while (n >= 1000 && k < units.length - 1) {
    n /= 1000;
    k++;
  }
  return `${n >= 100 || k === 0 ? Math.round(n) : n.toFixed(1)} ${units[k]}`;
}

function span(seconds) {
  const t = Math.max(0, Math.round(seconds));
  if (t < 60) return `${t} s`;
  if (t < 3600) return `${Math.floor(t / 60)} min ${t % 60} s`;
  if (t < 86400) return `${Math.floor(t / 3600)} h ${Math.floor((t % 3600) / 60)} min`;
  return `${Math.floor(t / 86400)} d ${Math.floor((t % 86400) / 3600)} h`;
}

const two = (n) => String(n).padStart(2, "0");

function time(us) {
  const d = new Date(us / 1000);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

// Day and time; the year if it is another one.
function date(us) {
  const d = new Date(us / 1000);
  const year = d.getFullYear() === new Date().getFullYear() ? "" : ` ${d.getFullYear()}`;
  return `${d.getDate()} ${MONTHS[d.getMonth()]}${year} ${time(us)}`;
}

function stamp(us) {
  const d = new Date(us / 1000);
  return h("time", { datetime: d.toISOString(), title: d.toLocaleString() }, date(us));
}

// A sentence with `commands` in it.
const words = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", null, part) : part));
const value = (v) => (Number.isInteger(v) ? number(v) : v === null ? "–" : Number(v.toPrecision(5)).toString());
const since = () => (performance.now() - clock.at) / 1000; // age of what is shown
const now_us = () => clock.us + since() * 1e6;
const ago = (us) => `${span((now_us() - us) / 1e6)} ago`;
const clip = (text, room) => (text.length <= room ? text : text.slice(0, Math.max(1, room - 1)) + "…");

// ---- events

let source = null;
let tries = 0;
let retry_at = 0;
let lost_since = 0;
let heard = 0;
let given_up = false;

function connect() {
  disconnect();
  if (given_up) return;
  retry_at = 0;
  heard = performance.now();
  const streams = [...plots.keys()].map((name) => "stream=" + encodeURIComponent(name)).join("&");
  source = new EventSource("/page/events" + (streams ? "?" + streams : ""));
  source.addEventListener("view", (e) => {
    tries = 0;
    lost_since = 0;
    heard = performance.now();
    show(JSON.parse(e.data));
  });
  source.addEventListener("points", (e) => take(JSON.parse(e.data)));
  source.addEventListener("you", (e) => ($("leave").hidden = !JSON.parse(e.data).session));
  source.addEventListener("closed", () => closed(true));
  source.onerror = () => lost();
}

// Another page replaced this one, or the session ended: reconnecting would only close others.
function closed(on) {
  given_up = on;
  $("closed").hidden = !on;
  if (!on) return connect();
  disconnect();
  lost_since = lost_since || performance.now();
  tick();
}

function disconnect() {
  if (source) source.close();
  source = null;
}

async function lost() {
  disconnect();
  if (!lost_since) lost_since = performance.now();
  if (!retry_at) {
    const pause = RETRY_S[Math.min(tries++, RETRY_S.length - 1)];
    retry_at = performance.now() + pause * (750 + 500 * Math.random());
  }
  tick();
  try {
    // An event source does not tell why it failed: a token that is not accepted any more is requested again.
    const answer = await fetch("/", { method: "HEAD", cache: "no-store" });
    if (answer.status === 401) location.reload();
  } catch {
    return; // out of reach, as the page says already
  }
}

function tick() {
  const now = performance.now();
  if (source && now - heard > STALE_S * 1000) {
    lost();
    return;
  }
  if (!source && retry_at && now >= retry_at && !given_up) connect();
  const gone = lost_since > 0;
  $("lost").hidden = !gone || given_up;
  document.querySelector("main").classList.toggle("old", gone);
  if (gone) {
    const wait = source ? "Trying…" : `Next try in ${Math.max(1, Math.ceil((retry_at - now) / 1000))} s.`;
    const data = clock ? `What you see is ${span(since())} old. ` : "";
    $("lost-why").textContent = data + wait;
  }
  const live = $("live");
  live.dataset.state = gone ? "old" : clock ? "live" : "waiting";
  live.textContent = gone ? (clock ? `${span(since())} old` : "unreachable") : clock ? "live" : "connecting";
  if (clock) {
    show_verdict(gone);
    ages();
    title(gone);
  }
}

function title(gone) {
  const site = view.site ? view.site.name : "";
  const well = !view.headline || view.headline.state === "good";
  document.title = `${gone ? "(unreachable) " : well ? "" : `(${view.headline.text}) `}Headwater ${site}`;
}

// Spoken by a screen reader, when it changes and not with every second.
function say(text) {
  if ($("say").textContent !== text) $("say").textContent = text;
}

// Every age on the page.
function ages() {
  for (const node of document.querySelectorAll("[data-ago]")) {
    const text = ago(Number(node.dataset.ago));
    if (node.textContent !== text) node.textContent = text;
  }
}

const aged = (us) => (us ? h("span", { "data-ago": us }, ago(us)) : "never");

// ---- the sections

function show(changed) {
  Object.assign(view, changed);
  if (changed.now_us) clock = { us: changed.now_us, at: performance.now() };
  $("main").hidden = false;
  if (changed.site) $("site").textContent = view.site.name;
  if (changed.alarms || changed.mutes || changed.receivers) show_alarms();
  if (changed.processes || changed.hosts) show_processes();
  if (changed.positions || changed.processes || changed.hosts) show_positions();
  if (changed.hosts || changed.processes) show_hosts();
  if (changed.processes) show_proposals();
  if (changed.streams) {
    if (undecided && view.streams.length) first_plots();
    show_streams();
  }
  if (changed.bluetooth !== undefined) show_bluetooth();
  if (changed.waiting) show_waiting();
  if (changed.moves) show_moves();
  if (changed.checkpoints) show_checkpoints();
  if (changed.events) show_events();
  show_summary();
  for (const plot of plots.values()) {
    if (plot.t.length && ending(plot) !== plot.t[plot.t.length - 1]) paint(plot);
  }
  tick();
}

// The headline comes from the gateway. While it does not answer, the state of the site is unknown.
function show_verdict(gone) {
  const { state, text } = gone ? { state: "bad", text: given_up ? "Unknown: this page was closed" : "Unknown: the gateway does not answer" } : view.headline;
  const more = gone ? "What follows is how the site was " : `${plural(view.processes.length, "process").replace("processs", "processes")}, the gateway runs for `;
  const verdict = $("verdict");
  const key = state + text + more;
  if (verdict.dataset.text !== key) {
    verdict.dataset.text = key;
    verdict.className = "verdict " + (state === "good" ? "" : state);
    const sign = h("i", { "aria-hidden": "true" }, gone ? "?" : state === "good" ? "✓" : "▲");
    verdict.replaceChildren(sign, h("span", null, text, h("small", null, more, h("span", { class: "for" }))));
  }
  say(text);
  const long = gone ? `${span(since())} ago.` : span((now_us() - view.site.started_us) / 1e6);
  const node = verdict.querySelector(".for");
  if (node.textContent !== long) node.textContent = long;
}

function sink_words({ seen_s, acked_s, stopped, elsewhere }) {
  if (elsewhere) return ["elsewhere", ""];
  if (stopped) return ["stopped", ""];
  if (acked_s !== null) return [span(acked_s), " ago"];
  return seen_s === null ? ["not seen", ""] : ["nothing yet", ""];
}

function show_summary() {
  const boards = view.hosts.filter((host) => host.process);
  const up = boards.filter((host) => ["up", "asleep"].includes(host.link)).length;
  const rows = view.streams;
  const here = rows.reduce((sum, row) => sum + row.durable - row.acked + row.older, 0);
  const known = rows.every((row) => row.board !== null);
  const held = rows.reduce((sum, row) => sum + (row.board || 0), 0);
  const lags = rows.filter((row) => row.lag_s !== null).map((row) => row.lag_s);
  const { broker, clock, database } = view.gateway;
  const [sink, ago] = sink_words(view.sink);
  const figures = [
    ["Boards up", broker.up || view.bluetooth ? `${up}` : "unknown", ` of ${boards.length}`],
    ["Waits for the lake", number(here), here ? `, oldest ${span(Math.max(0, ...lags))}` : " elements"],
    ["On boards", known ? number(held) : "unknown", known ? (held === 1 ? " element" : " elements") : ""],
    ["In the lake", number(rows.reduce((sum, row) => sum + row.acked, 0)), " elements"],
    ["Lake acknowledged", sink, ago],
    ["Broker", broker.up ? "connected" : "not connected", ""],
  ];
  $("figures").replaceChildren(...figures.map(([name, big, small]) => h("div", null, h("dt", null, name), h("dd", null, big, h("small", null, small)))));
  const dropped = Object.entries(view.gateway.dropped).map(([reason, n]) => `${number(n)} ${reason}`).join(", ");
  const ahead = clock.ahead_us < 1e6 ? "" : `, ${span(clock.ahead_us / 1e6)} ahead and right again in ${span(clock.right_in_s)}`;
  const within = clock.error_us === null || ahead ? "" : `, within ${(clock.error_us / 1000).toFixed(1)} ms`;
  const time = `Clock: ${clock.synchronised ? "synchronised" : "not synchronised"}${ahead}${within}. `;
  const foot = time + `Database: ${size(database.bytes)} of at most ${size(database.max_bytes)}. Segments cut: ${number(view.gateway.segments.cut)} (${size(view.gateway.segments.bytes)}). ` +
    `Commits: ${number(database.commits)}, the last in ${database.commit_ms} ms. Frames refused: ${dropped || "none"}.`;
  if ($("foot-text").textContent !== foot) $("foot-text").textContent = foot;
}

function show_alarms() {
  const on = new Set(view.alarms.map((alarm) => alarm.id));
  const later = Object.entries(view.mutes).filter(([id]) => !on.has(id));
  const troubled = view.receivers.filter((r) => r.failing_since_us !== null || r.refused);
  $("alarms-section").hidden = !view.alarms.length && !later.length && !troubled.length;
  const items = view.alarms.map((a) => {
    const marks = [a.acked_us ? "acknowledged" : "", a.muted_until_us ? `muted until ${date(a.muted_until_us)}` : "", a.sure ? "" : "as it was when last known"];
    const sign = a.muted_until_us ? "○" : a.severity === "critical" ? "▲" : "△";
    return h("li", { class: a.muted_until_us ? "muted" : a.severity, "data-alarm": a.id },
      h("span", { "aria-hidden": "true" }, sign),
      h("div", null, h("p", { class: "what" }, h("span", { class: "hidden" }, `${a.severity}: `), words(a.text)), h("p", { class: "do" }, words(a.do)),
        h("p", { class: "since" }, "since ", stamp(a.since_us), marks.filter(Boolean).map((m) => ` · ${m}`), " · ", h("code", null, a.id))));
  });
  items.push(...later.map(([id, until]) => h("li", { class: "muted" }, h("span", { "aria-hidden": "true" }, "○"),
    h("div", null, h("p", { class: "since" }, h("code", null, id), ` is not on, and muted until ${date(until)}`)))));
  $("alarms").replaceChildren(...items);
  $("receivers").replaceChildren(...troubled.map((r) => h("li", { "data-receiver": r.name }, `Receiver ${r.name}: `,
    r.failing_since_us === null ? "" : [`does not answer since ${date(r.failing_since_us)} (${r.why}), ${plural(r.waiting, "notice")} waiting`, r.refused ? "; " : ""],
    r.refused ? `${plural(r.refused, "notice")} refused (${r.refused_why})` : "")));
  $("folder").textContent = view.site.folder;
}

const LINKS = {
  up: ["good", "● up"],
  asleep: ["good", "○ asleep"],
  silent: ["warn", "◐ silent"],
  lost: ["bad", "▲ lost"],
  gone: ["bad", "✕ gone"],
  "never seen": ["", "○ never seen"],
  "declared lost": ["bad", "✕ declared lost"],
};

// Time left: the larger of two units is enough.
const left = (seconds) => (seconds > 315360000 ? "years" : seconds < 3600 ? `${Math.floor(seconds / 60)} min` : span(seconds));

// What a board knows of its battery; its voltage alone tells the charge roughly.
function battery({ battery_mv: mv, percent }) {
  if ((mv === null || mv === undefined) && percent === null) return h("p", { class: "battery quiet" }, "mains, or no battery reading");
  const low = view.limits.battery_low_mv, empty = low - EMPTY_MV;
  const share = percent !== null ? percent / 100 : Math.min(1, Math.max(0, (mv - empty + 100) / (CELL_FULL - empty + 100)));
  const state = mv && mv < empty ? "empty" : mv && mv < low ? "low" : "";
  const picture = s("svg", { viewBox: "0 0 48 22", "aria-hidden": "true" },
    s("rect", { class: "shell", x: 1, y: 1, width: 41, height: 20, rx: 4 }),
    s("rect", { class: "knob", x: 43.5, y: 7, width: 3.5, height: 8, rx: 1.5 }),
    s("rect", { class: "charge", x: 4, y: 4, width: Math.max(1, 35 * share), height: 14, rx: 2 }));
  const word = { empty: " · nearly empty", low: " · low", "": "" }[state];
  const known = [percent === null ? "" : `${percent} %`, mv ? `${(mv / 1000).toFixed(2)} V${word}` : ""];
  return h("p", { class: "battery " + state }, picture, h("span", null, known.filter(Boolean).join(" · ")));
}

function show_hosts() {
  const items = view.hosts.map((host) => {
    const [kind, word] = LINKS[host.link];
    const facts = [
      ["process", host.process ? `${host.process}, ${host.plan || "waits for it"}` : "none"],
      ["last seen", [aged(host.seen_us), host.via === "bluetooth" ? ", over Bluetooth" : ""]],
      ["not yet safe", plural(host.unsafe, "element")],
      ["flash log free", host.log_size ? `${size(host.log_free)} of ${size(host.log_size)}` : "–"],
      ["heap free", size(host.heap_free)],
      ["clock within", host.clock_us === null ? "not synchronised" : `${(host.clock_us / 1000).toFixed(1)} ms`],
      ["running for", host.up_s === null || host.up_s === undefined ? "–" : `${span(host.up_s)}, start ${number(host.boot)}`],
    ];
    const better = proposed(host);
    if (better !== null) facts.unshift(["better start", left(better)]);
    if (host.left_s !== null) facts.unshift(["battery lasts", left(host.left_s)]);
    if (host.rssi !== null && host.rssi !== undefined) facts.push(["radio", `${host.rssi} dBm`]);
    if (host.refused) facts.push(["samples refused", number(host.refused)]);
    const notes = [host.why, host.crash ? `Crashed: ${host.crash}` : ""].filter(Boolean);
    return h("li", { class: kind === "bad" && host.process ? "bad" : "", "data-host": host.name },
      h("h3", null, host.name, h("span", { class: "chip " + kind }, word)),
      battery(host),
      h("dl", null, facts.map(([name, text]) => [h("dt", null, name), h("dd", null, text)])),
      notes.map((text) => h("p", { class: "note" }, text)));
  });
  $("hosts").replaceChildren(...(items.length ? items : [h("li", { class: "quiet" }, "No board is registered.")]));
}

// How long the battery of a host lasts with the better start; null where none is proposed, or it lasts as long.
function proposed(host) {
  const process = view.processes.find((each) => each.name === host.process);
  const lives = process && process.proposal.state === "better" ? process.proposal.lives_s[host.name] : undefined;
  return lives && host.left_s !== null && Math.abs(lives[1] - lives[0]) > lives[0] / 100 ? lives[1] : null;
}

// Where operators would start so that batteries last longer. It changes nothing: that is for the process file.
function show_proposals() {
  const items = view.processes.filter((process) => process.proposal.state === "better" || process.proposal.state === "good").map(({ name, proposal }) => {
    if (proposal.state === "good") {
      return h("li", { class: "quiet", "data-proposal": name }, `The first hosts of ${name} are as good as any: with no others would a battery last a quarter longer.`);
    }
    const { which, percent, now, then, moves } = proposal;
    const more = percent === null ? "" : `, ${number(percent)} % longer`;
    const same = now.host === then.host;
    return h("li", { class: "better", "data-proposal": name },
      h("h3", null, `A better start for ${name}`),
      h("p", null, `The ${which}${same ? ` (${now.host})` : ""} would last `, h("b", null, left(then.left_s)), `${same ? "" : ` (${then.host})`} instead of ${left(now.left_s)}${same ? "" : ` (${now.host})`}${more}, if operators started elsewhere:`),
      h("table", null, h("thead", null, h("tr", null, ["Operator", "First host now", "Would start on", "In the process file"].map((text) => h("th", { scope: "col" }, text)))),
        h("tbody", null, moves.map((m) => h("tr", null, h("th", { scope: "row" }, m.operator), h("td", { "data-is": "now" }, m.from), h("td", { "data-is": "would start on" }, h("b", null, m.to)), h("td", null, h("code", null, m.on)))))),
      h("p", { class: "values" }, "Computed ", aged(proposal.at_us), " from what the boards report. It changes nothing by itself: write it into the process file, and deploy that."));
  });
  $("proposals").replaceChildren(...items);
}

// The adapter of the gateway. A board is connected only while something waits.
function show_bluetooth() {
  const found = view.bluetooth;
  $("bluetooth-section").hidden = !found;
  if (!found) return;
  const names = (list) => (list.length ? list.join(", ") : "none");
  const counts = (of) => Object.entries(of).map(([why, n]) => `${number(n)} ${why}`).join(", ") || "none";
  const facts = [
    ["connected now", names(found.connected)],
    ["in the queue", names(found.waiting)],
    ["wanted, not heard", names(found.away)],
    ["connections", `${number(found.connects)}, at most ${found.slots} at once`],
    ["ended", counts(found.ended)],
    ["failures of the adapter", counts(found.failures)],
    ["frames passed on", number(found.relayed)],
  ];
  if (found.paired || found.unpaired) facts.push(["LE Secure Connections", `${number(found.paired)} made, ${number(found.unpaired)} failed`]);
  if (found.dropped) facts.push(["frames dropped", number(found.dropped)]);
  $("bluetooth").replaceChildren(h("li", { class: found.problem ? "bad" : "" },
    h("h3", null, found.adapter || "first adapter", h("span", { class: "chip " + (found.problem ? "bad" : "good") }, found.problem ? "✕ cannot be used" : "● works")),
    h("dl", null, facts.map(([name, text]) => [h("dt", null, name), h("dd", null, text)])),
    found.problem ? h("p", { class: "note" }, found.problem) : null));
}

// ---- streams

const rows = new Map(); // stream -> {tr, cells, trend}
const waiting = (row) => (row.board || 0) + (row.durable - row.acked) + row.older;

function show_streams() {
  const body = document.querySelector("#streams tbody");
  for (const row of view.streams) {
    if (!rows.has(row.stream)) {
      rows.set(row.stream, make_row(row.stream));
      body.append(rows.get(row.stream).tr);
    }
    update_row(rows.get(row.stream), row);
  }
  for (const [name, { tr }] of rows) {
    if (!view.streams.some((row) => row.stream === name)) {
      tr.remove();
      rows.delete(name);
    }
  }
}

function make_row(name) {
  const cells = {
    text: h("span"), bar: h("div", { class: "bar", "aria-hidden": "true" }),
    trend: s("path"), lake: h("td", { class: "number" }), newest: h("td", { class: "wide" }),
    button: h("button", { type: "button", "aria-pressed": String(plots.has(name)), "aria-label": `Plot ${name}` }, "Plot"),
  };
  cells.button.addEventListener("click", () => toggle(name));
  const tr = h("tr", { "data-stream": name },
    h("th", { scope: "row" }, name), h("td", { class: "wide backlog" }, cells.text, cells.bar),
    h("td", { class: "trend-cell" }, s("svg", { class: "trend", viewBox: "0 0 100 28", preserveAspectRatio: "none", "aria-hidden": "true" }, cells.trend)),
    cells.lake, cells.newest, h("td", { class: "toggle" }, cells.button));
  return { tr, cells, trend: [] };
}

function update_row({ cells, trend }, row) {
  const parts = [
    ["board", row.board, "on the board"],
    ["gateway", row.durable - row.cut, "at the gateway"],
    ["segment", Math.max(0, row.cut - row.acked), "in segments"],
  ];
  const total = waiting(row);
  const said = parts.filter(([, n]) => n > 0).map(([, n, where]) => `${number(n)} ${where}`);
  if (row.older) said.push(`${number(row.older)} of an earlier incarnation`);
  if (row.board === null) said.push("unknown on the board");
  const lag = row.lag_s === null ? "" : `, the oldest here for ${span(row.lag_s)}`;
  const held = row.board && row.board_s ? `, on the board for at least ${span(row.board_s)}` : "";
  cells.text.textContent = total || row.board === null ? `${total ? number(total) : "none here"}${said.length ? ": " + said.join(", ") : ""}${lag}${held}` : "none";
  const all = Math.max(1, row.durable + (row.board || 0));
  cells.bar.replaceChildren(...parts.filter(([, n]) => n > 0).map(([name, n]) => {
    const part = h("span", { class: name });
    part.style.width = `${Math.max(2, (100 * n) / all)}%`;
    return part;
  }));
  cells.lake.textContent = number(row.acked);
  const last = Object.entries(row.last).map(([name, v]) => `${name} ${v === null ? "–" : value(v)}`).join(", ");
  cells.newest.replaceChildren(...(row.last_ts_us ? [row.clock_set ? aged(row.last_ts_us) : "before the clock was set", h("span", { class: "values" }, ` · ${last}`)] : [h("span", { class: "quiet" }, "none since the gateway started")]));
  trend.push(total);
  if (trend.length > TREND) trend.shift();
  const top = Math.max(10, ...trend);
  cells.trend.setAttribute("d", trend.length < 2 ? "" : "M" + trend.map((n, i) => `${((100 * i) / (TREND - 1)).toFixed(1)} ${(26 - (24 * n) / top).toFixed(1)}`).join("L"));
}

// ---- checkpoints and events

const positions = (at) => at.map(number).join(" · ");

function show_checkpoints() {
  const many = view.processes.length > 1;
  const items = view.checkpoints.map((c) => h("li", null, stamp(c.at_us),
    h("span", null, h("span", { class: "good" }, "✓ "), h("b", null, many ? `${c.process} / ${c.operator}` : c.operator), ` covers ${positions(c.at)}, from ${c.host}`)));
  $("checkpoints").replaceChildren(...(items.length ? items : [h("li", { class: "empty quiet" }, h("span"), "None since this page looks.")]));
}

function show_events() {
  const items = view.events.map((e) => h("li", null, stamp(e.at_us),
    h("span", { class: e.kind === "alarm" ? "bad" : e.kind === "alarm over" ? "good" : "" }, { alarm: "▲ ", "alarm over": "✓ ", operator: "◆ " }[e.kind] || "", e.text)));
  $("events").replaceChildren(...items);
}

// All that waits, and for whom.
function show_waiting() {
  $("waiting-section").hidden = !view.waiting.length;
  $("waiting").replaceChildren(...view.waiting.map(({ process, what, name, text }) => h("li", { "data-waits": name },
    h("span", null, what === "process" ? `process ${process}` : `${what === "change" ? "change of" : "operator"} ${name}`), h("span", null, text))));
}

function show_moves() {
  const many = view.processes.length > 1;
  $("moves-section").hidden = !view.moves.length;
  $("moves").replaceChildren(...view.moves.map((m) => h("li", null, stamp(m.at_us),
    h("span", null, h("b", null, many ? `${m.process} / ${m.operator}` : m.operator), m.from === m.host ? ` began again on ${m.host}` : ` from ${m.from} to ${m.host}`, h("span", { class: "quiet" }, ` · ${m.why}`)))));
}

// ---- operators on their hosts

const SIGNS = { runs: "", waits: "◐ waits", moves: "⇄ moves", unknown: "? not heard yet" };
const sign = (node) => SIGNS[node.does] || "";
const others = (node) => node.candidates.filter((c) => c.host !== node.host).map((c) => (c.link === "up" ? c.host : `${c.host} (${c.link})`)).join(", ");

// One line of the table of operators.
function operator_row(node, at) {
  const open = node.open.map((change) => `${change.what} waits${change.waits ? `: ${change.waits}` : ""}`);
  const parameters = [...Object.entries(node.parameters).map(([name, v]) => `${name} ${v}`), ...open].join(", ");
  const why = node.moved ? [`from ${node.moved.from}: ${node.moved.why}`] : ["its first host"];
  const source = node.kind === "source";
  return h("tr", { "data-operator": node.name }, h("th", { scope: "row" }, node.name, h("span", { class: "values" }, ` ${node.kind}`)),
    h("td", null, h("b", null, node.host), sign(node) ? h("span", { class: "warned" }, ` ${sign(node)}`) : "", node.waits ? h("span", { class: "values" }, ` ${node.waits}`) : ""),
    h("td", { "data-is": source ? null : "since" }, source ? "–" : [stamp(node.since_us), h("span", { class: "values" }, ` ${why}`)]),
    h("td", { "data-is": source ? null : "may run on" }, others(node) || "–"), h("td", { "data-is": source ? null : "epoch" }, source ? "–" : number(node.epoch)), at, h("td", { class: "values" }, parameters || "–"));
}

// ---- a process as a graph

const graphs = new Map(); // process -> {section, nodes: id -> text of its position, key}

function show_processes() {
  for (const process of view.processes) {
    let graph = graphs.get(process.name);
    if (!graph) {
      graph = { key: "", nodes: new Map(), before: new Map() };
      graph.title = h("h2");
      graph.picture = h("div", { class: "card graph" });
      graph.table = h("tbody");
      graph.section = h("section", { "data-process": process.name, "aria-label": `Process ${process.name}` }, graph.title, graph.picture,
        h("details", { open: innerWidth >= NARROW }, h("summary", null, "Operators, their hosts and why they are there"),
          h("div", { class: "card flush" }, h("table", { class: "operators" },
            h("thead", null, h("tr", null, ["Operator", "Runs on", "Since, and why", "May run on", "Epoch", "Permanent checkpoint", "Parameters in force"].map((t) => h("th", { scope: "col" }, t)))),
            graph.table))));
      graphs.set(process.name, graph);
      $("processes").append(graph.section);
    }
    draw(graph, process);
  }
  for (const [name, { section }] of graphs) {
    if (!view.processes.some((process) => process.name === name)) {
      section.remove();
      graphs.delete(name);
    }
  }
}

const down = (name) => view.hosts.some((host) => host.name === name && ["lost", "gone", "never seen"].includes(host.link));

function draw(graph, process) {
  const width = Math.max(280, graph.picture.clientWidth - 18);
  const key = JSON.stringify([process, width, view.hosts.map((host) => [host.name, host.link, host.battery_mv, host.left_s])]);
  if (graph.key === key) return;
  graph.key = key;
  const steps = { runs: "", waits: " · does not run everywhere", drains: " · drains for a new version", stops: " · drains, then stops", switches: " · switches to a new version" };
  const sounding = process.alarms.map((alarm) => ` · ${alarm.driver} of ${alarm.host} (${alarm.name}): ${alarm.state}`).join("");
  const late = process.late.map((s) => ` · ${s.stream} cannot be kept within ${number(s.within_ms)} ms when a host dies`).join("");
  graph.title.replaceChildren(`Process ${process.name}`, h("small", null, `checkpoints ${process.strategy}, level ${process.level}${steps[process.step]}${sounding}${late}`));
  const plan = layered(process);
  const laid = width < NARROW ? stacked(plan, width) : lanes(plan, width);
  graph.nodes.clear();
  const svg = s("svg", { viewBox: `0 0 ${width} ${laid.height}`, role: "img", "aria-label": told(process) });
  svg.append(...laid.under, ...laid.edges.map(edge_path).flat(), ...plan.items.map((item) => box(graph, item, laid)).filter(Boolean));
  graph.picture.replaceChildren(svg);
  came(graph, process);
  graph.cells = new Map();
  graph.table.replaceChildren(...process.nodes.map((node) => {
    const at = h("td", null, "–");
    graph.cells.set(node.id, at);
    return operator_row(node, at);
  }));
}

// An operator that has changed its host lights up.
function came(graph, process) {
  const hosts = new Map(process.nodes.map((node) => [node.id, node.host]));
  for (const [id, { g }] of graph.nodes) if (graph.hosts && graph.hosts.has(id) && graph.hosts.get(id) !== hosts.get(id)) g.classList.add("fresh");
  graph.hosts = hosts;
}

// The graph in words, for screen readers.
function told(process) {
  const name = (i) => process.nodes[i].name;
  const parts = process.nodes.map((node) => {
    const to = process.edges.filter((e) => e.from === node.id).map((e) => (e.to === null ? `the lake as ${e.lake}` : name(e.to)));
    return `${node.name} (${node.kind}, on ${node.host}${down(node.host) ? ", which does not answer" : ""}${node.waits ? `, ${node.waits}` : ""}) feeds ${to.join(", ") || "nothing"}`;
  });
  return `Process ${process.name}: ${parts.join("; ")}.`;
}

// Items to place, each with its rank: as far from the sources as the longest way. Feedback leads back.
function layered(process) {
  const items = process.nodes.map((node) => ({ ...node, rank: 0, lake: null }));
  const links = [];
  for (const e of process.edges) {
    if (e.to === null) {
      items.push({ id: "lake:" + e.lake, name: e.lake, lake: e.lake, kind: e.durable, host: "", rank: 0, from: e.from });
      links.push({ from: items[e.from], to: items[items.length - 1] });
    } else {
      links.push({ from: items[e.from], to: items[e.to], back: e.to <= e.from });
    }
  }
  for (const item of items) {
    for (const link of links) if (link.from === item && !link.back) link.to.rank = Math.max(link.to.rank, item.rank + 1);
  }
  const last = Math.max(0, ...items.filter((item) => !item.lake).map((item) => item.rank));
  for (const item of items) if (item.lake) item.rank = last + 1;
  return { items, links, last };
}

// Wide: a lane for every host, time from left to right, the lake at the right.
function lanes({ items, links, last }, width) {
  const LABEL = 112, H = 54, GAP = 12, THIN = 16, PAD = 14;
  const column = (width - LABEL - 8) / (last + 2);
  const w = Math.min(168, column - 26);
  const x = (rank) => LABEL + column * rank + (column - w) / 2;
  const hosts = [];
  for (const item of [...items].sort((a, b) => a.rank - b.rank || a.id - b.id)) {
    if (!item.lake && !hosts.includes(item.host)) hosts.push(item.host);
  }
  // A host that operators have left stays to be seen.
  const bare = [...new Set(items.filter((item) => item.moved).map((item) => item.moved.from))].filter((host) => !hosts.includes(host));
  hosts.push(...bare);
  // Rows of a lane: which item is in which row at which rank. An edge over several ranks gets a row to itself.
  const lane = new Map(hosts.map((host) => [host, bare.includes(host) ? { taken: [new Set()], thick: [true] } : { taken: [], thick: [] }]));
  const free = (l, row, from, to) => {
    for (let r = from; r <= to; r++) if (l.taken[row] && l.taken[row].has(r)) return false;
    return true;
  };
  const take = (l, row, from, to) => {
    l.taken[row] = l.taken[row] || new Set();
    for (let r = from; r <= to; r++) l.taken[row].add(r);
  };
  const inside = items.filter((item) => !item.lake).sort((a, b) => a.rank - b.rank);
  for (const item of inside) {
    const l = lane.get(item.host);
    const before = links.find((link) => link.to === item && !link.back && link.from.host === item.host);
    let row = before ? before.from.row : 0;
    while (!free(l, row, item.rank, item.rank)) row++;
    take(l, row, item.rank, item.rank);
    l.thick[row] = true;
    item.row = row;
  }
  for (const link of links) {
    link.row = null;
    if (link.back || link.to.rank - link.from.rank < 2) continue;
    const l = lane.get(link.from.host);
    let row = link.from.row;
    while (!free(l, row, link.from.rank + 1, link.to.rank - 1)) row++;
    take(l, row, link.from.rank + 1, link.to.rank - 1);
    link.row = row;
  }
  const under = [];
  let y = 6;
  for (const host of hosts) {
    const l = lane.get(host);
    l.y = [];
    const top = y;
    y += PAD;
    for (let row = 0; row < l.taken.length; row++) {
      const high = l.thick[row] ? H : THIN;
      l.y[row] = y + high / 2;
      y += high + GAP;
    }
    y += PAD - GAP;
    under.push(s("rect", { class: "lane", x: 0, y: top, width: width - column - 4, height: y - top, rx: 8 }));
    under.push(...lane_label(host, 12, top + 26, LABEL - 16));
    y += 8;
  }
  const height = y;
  for (const item of inside) Object.assign(item, { x: x(item.rank), y: lane.get(item.host).y[item.row] - H / 2, w, h: H });
  // Sinks are placed beside their producer, and move down if needed.
  const sinks = items.filter((item) => item.lake);
  const wish = (sink) => {
    const link = links.find((l) => l.to === sink);
    return lane.get(link.from.host).y[link.row === null ? link.from.row : link.row];
  };
  sinks.sort((a, b) => wish(a) - wish(b));
  let low = 30;
  for (const sink of sinks) {
    const top = Math.max(low, wish(sink) - 22);
    Object.assign(sink, { x: x(last + 1), y: top, w, h: 44 });
    low = top + 52;
  }
  const whole = Math.max(height, low + 4);
  under.push(s("rect", { class: "lane", x: width - column, y: 6, width: column, height: whole - 14, rx: 8 }));
  under.push(s("text", { class: "lane-name", x: width - column / 2, y: 24, "text-anchor": "middle" }, "lake"));
  const edges = links.map((link) => {
    const a = link.from, b = link.to;
    const start = [a.x + a.w, a.y + a.h / 2], end = [b.x - 7, b.y + b.h / 2];
    if (link.back) return back(a, b);
    let d = `M${start}`;
    if (link.row !== null) {
      const level = lane.get(a.host).y[link.row];
      const from = x(a.rank + 1), to = x(b.rank) - (column - w);
      d += curve(start, [from, level]) + `L${[to, level]}` + curve([to, level], end);
    } else d += curve(start, end);
    return { d, end };
  });
  return { under, edges, height: whole };
}

function curve(a, b) {
  const bend = Math.max(14, (b[0] - a[0]) / 2);
  return `C${[a[0] + bend, a[1]]} ${[b[0] - bend, b[1]]} ${b}`;
}

// Feedback: around below in a lane, otherwise to the far side of where it leads.
function back(a, b) {
  const from = a.x + a.w / 2, to = b.x + b.w / 2;
  if (a.y === b.y) {
    const y = a.y + a.h + 20;
    return { d: `M${[from, a.y + a.h]}C${[from, y]} ${[to, y]} ${[to, b.y + b.h + 7]}`, end: [to, b.y + b.h + 7], up: true, back: true };
  }
  const above = b.y < a.y;
  const end = [b.x + b.w + 7, b.y + b.h * (above ? 0.8 : 0.2)];
  return { d: `M${[from, above ? a.y : a.y + a.h]}C${[from, end[1]]} ${[from, end[1]]} ${end}`, end, left: true, back: true };
}

function lane_label(host, x, y, room) {
  const found = view.hosts.find((each) => each.name === host);
  const lines = [s("text", { class: "lane-name", x, y }, clip(host, room / 8), s("title", null, host))];
  if (!found) lines.push(s("text", { class: "small", x, y: y + 17 }, "● this one"));
  if (found) {
    const [kind, word] = LINKS[found.link];
    lines.push(s("text", { class: kind === "bad" ? "lane-bad" : "small", x, y: y + 17 }, word));
    const known = found.left_s !== null ? `${left(found.left_s)} left` : found.battery_mv ? `${(found.battery_mv / 1000).toFixed(2)} V` : "";
    if (known) lines.push(s("text", { class: "small", x, y: y + 33 }, known));
  }
  return lines;
}

// Narrow: from top to bottom, the host and the streams of the lake written into each box.
function stacked({ items, links, last }, width) {
  const H = 58, SINK = 17, GAP = 30, SIDE = 16;
  for (const sink of items.filter((item) => item.lake)) {
    const producer = items[sink.from];
    (producer.sinks = producer.sinks || []).push(sink.lake);
  }
  let y = 4;
  for (let rank = 0; rank <= last; rank++) {
    const here = items.filter((item) => !item.lake && item.rank === rank);
    for (let i = 0; i < here.length; i += 2) {
      const pair = here.slice(i, i + 2);
      const w = Math.min(240, (width - 2 * SIDE - 12 * (pair.length - 1)) / pair.length);
      const left = (width - w * pair.length - 12 * (pair.length - 1)) / 2;
      const high = Math.max(...pair.map((item) => H + SINK * (item.sinks || []).length));
      pair.forEach((item, k) => Object.assign(item, { x: left + k * (w + 12), y, w, h: H + SINK * (item.sinks || []).length, tagged: true }));
      y += high + (i + 2 < here.length ? 12 : GAP);
    }
  }
  const gutter = [4, width - 4];
  const edges = links.filter((link) => !link.to.lake).map(({ from: a, to: b, back: leads_back }) => {
    const start = [a.x + a.w / 2, a.y + a.h], end = [b.x + b.w / 2, b.y - 7];
    if (leads_back || b.rank - a.rank > 1) {
      const middle = Math.abs(b.x + b.w / 2 - width / 2) < 1 ? a : b;
      const left = middle.x + middle.w / 2 <= width / 2 + 1;
      const side = gutter[left ? 0 : 1];
      gutter[left ? 0 : 1] += left ? 4 : -4;
      const out = [left ? a.x : a.x + a.w, a.y + a.h / 2], to = [left ? b.x - 7 : b.x + b.w + 7, b.y + b.h / 2];
      return { d: `M${out}C${[side, out[1]]} ${[side, out[1]]} ${[side, (out[1] + to[1]) / 2]}S${[side, to[1]]} ${to}`, end: to, left: !left, back: leads_back };
    }
    const middle = (start[1] + end[1]) / 2;
    return { d: `M${start}C${[start[0], middle]} ${[end[0], middle]} ${end}`, end, below: true };
  });
  return { under: [], edges, height: y - GAP + 8, narrow: true };
}

function edge_path({ d, end: [x, y], back: leads_back, up, below, left }) {
  const turn = up ? -90 : below ? 90 : left ? 180 : 0;
  return [s("path", { class: "edge" + (leads_back ? " back" : ""), d }),
    s("path", { class: "arrow", d: "M-5 -5L4 0L-5 5Z", transform: `translate(${x} ${y}) rotate(${turn})` })];
}

function box(graph, item, laid) {
  if (item.lake && laid.narrow) return null;
  const kind = item.lake ? "sink" : item.kind === "source" ? "source" : "operator";
  const room = (item.w - 18) / 7.7, small = (item.w - 18) / 6.4;
  const state = item.lake ? "" : sign(item) ? ` · ${sign(item)}` : item.moved ? ` · from ${item.moved.from}` : "";
  const under = item.lake ? `durable at ${item.kind}` : item.tagged ? `${down(item.host) ? "▲ " : ""}${item.kind} · ${item.host}${state}` : item.kind + state;
  const whole = item.lake ? `${item.lake}, ${under}` : `${item.name}: ${item.kind} on ${item.host}${item.waits ? `, ${item.waits}` : ""}`;
  const g = s("g", { class: kind + (item.host && down(item.host) ? " down" : "") + (sign(item) ? " waits" : ""), transform: `translate(${item.x} ${item.y})`, "data-node": item.name },
    s("title", null, whole),
    s("rect", { class: "box", width: item.w, height: item.h, rx: item.lake ? item.h / 2 : 8 }),
    s("text", { class: "name", x: item.lake ? item.w / 2 : 10, y: 18, "text-anchor": item.lake ? "middle" : "start" }, clip(item.name, room)),
    s("text", { class: "small", x: item.lake ? item.w / 2 : 10, y: item.lake ? 34 : 33, "text-anchor": item.lake ? "middle" : "start" }, clip(under, small)));
  if (!item.lake) {
    const at = s("text", { class: kind === "source" ? "small" : "check", x: 10, y: 48 });
    g.append(at);
    graph.nodes.set(item.id, { g, at, room: small });
    (item.sinks || []).forEach((name, k) => g.append(s("text", { class: "small", x: 10, y: 66 + 17 * k }, clip(`→ lake: ${name}`, small))));
  }
  return g;
}

// The position of every vertex: sources by what they put out, operators by their permanent checkpoint.
function show_positions() {
  for (const process of view.processes) {
    const graph = graphs.get(process.name);
    (view.positions[process.name] || []).forEach((p, id) => {
      const node = graph.nodes.get(id);
      const text = p.checkpoint ? `✓ ${positions(p.checkpoint)}` : p.last !== undefined ? `at ${number(p.last)}` : "";
      if (node) {
        const shown = clip(text, node.room);
        if (node.at.textContent !== shown) node.at.textContent = shown;
        const before = graph.before.get(id);
        if (p.checkpoint && before && before !== text) {
          node.g.classList.remove("fresh");
          node.g.getBBox(); // restarts the animation
          node.g.classList.add("fresh");
        }
      }
      graph.before.set(id, text);
      const cell = graph.cells.get(id);
      const long = p.checkpoint ? `covers ${positions(p.checkpoint)}` : p.safe !== undefined ? `output ${number(p.last)}, safe ${number(p.safe)}` : "–";
      if (cell && cell.textContent !== long) cell.textContent = long;
    });
  }
}

// ---- plots

const plots = new Map(); // stream -> {t: [us], columns: {field: []}, section, canvas, label, seconds}
const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3]];
const WINDOWS_S = [10, 30, 120, 600, 3600];
const POINTS_MAX = 6000;
let undecided = false;

function chosen() {
  try {
    const names = JSON.parse(localStorage.getItem("headwater.plots") || "null");
    return Array.isArray(names) ? names.filter((name) => typeof name === "string").slice(0, PLOTS_MAX) : null;
  } catch {
    return null; // a browser that keeps nothing for us
  }
}

function keep() {
  try {
    localStorage.setItem("headwater.plots", JSON.stringify([...plots.keys()]));
  } catch {
    return; // then the choice lasts as long as the page
  }
}

function add_plot(name) {
  const label = h("small");
  const canvas = h("canvas", { role: "img" });
  const section = h("div", { class: "card plot", "data-plot": name }, h("h3", null, name, label), canvas);
  plots.set(name, { t: [], columns: {}, section, canvas, label, seconds: WINDOWS_S[0] });
  $("plots").append(section);
}

// Nothing is chosen yet: start with two streams.
function first_plots() {
  undecided = false;
  for (const row of view.streams.slice(0, 2)) add_plot(row.stream);
  $("plots-none").hidden = true;
  connect();
}

function toggle(name) {
  undecided = false;
  if (plots.has(name)) {
    plots.get(name).section.remove();
    plots.delete(name);
  } else {
    if (plots.size >= PLOTS_MAX) toggle(plots.keys().next().value);
    add_plot(name);
  }
  keep();
  if (rows.has(name)) rows.get(name).cells.button.setAttribute("aria-pressed", plots.has(name));
  $("plots-none").hidden = plots.size > 0;
  connect();
}

function take({ stream, t0_us, ms, fields }) {
  const plot = plots.get(stream);
  if (!plot) return;
  // After a new connection the gateway sends everything again.
  const last = plot.t.length ? plot.t[plot.t.length - 1] : 0;
  ms.forEach((dt, i) => {
    const at = t0_us + 1000 * dt;
    if (at <= last) return;
    plot.t.push(at);
    for (const [name, values] of Object.entries(fields)) {
      (plot.columns[name] = plot.columns[name] || []).push(values[i]);
    }
  });
  const over = plot.t.length - POINTS_MAX;
  if (over > 0) {
    plot.t.splice(0, over);
    for (const values of Object.values(plot.columns)) values.splice(0, over);
  }
  paint(plot);
}

// A stream without new elements is shown up to the present.
function ending(plot) {
  const last = plot.t[plot.t.length - 1];
  return clock && clock.us - last > 3e6 ? clock.us : last;
}

// The shortest window that shows some dozens of points, so that a slow stream is not a dot.
function fit(plot) {
  const end = ending(plot);
  for (const seconds of WINDOWS_S) {
    const start = end - seconds * 1e6;
    const first = plot.t.findIndex((t) => t >= start);
    if (first >= 0 && plot.t.length - first >= 24) return seconds;
  }
  const all = (end - plot.t[0]) / 1e6;
  return WINDOWS_S.find((seconds) => seconds >= all) || WINDOWS_S[WINDOWS_S.length - 1];
}

function paint(plot) {
  const { canvas, t, columns } = plot;
  const names = Object.keys(columns);
  if (!t.length || !names.length) return;
  const dpr = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * dpr);
  canvas.height = Math.round(height * dpr);
  const c = canvas.getContext("2d");
  c.scale(dpr, dpr);
  const css = getComputedStyle(document.documentElement);
  const colour = (name) => css.getPropertyValue(name).trim();
  const seconds = fit(plot);
  const end = ending(plot), start = end - seconds * 1e6;
  const first = t.findIndex((at) => at >= start);
  if (first < 0) return;
  let low = Infinity, high = -Infinity;
  for (const name of names) {
    for (let i = first; i < t.length; i++) {
      const v = columns[name][i];
      if (v === null) continue;
      low = Math.min(low, v);
      high = Math.max(high, v);
    }
  }
  if (low === Infinity) return;
  if (low === high) {
    low -= 1;
    high += 1;
  }
  const step = ticks(low, high, 4);
  low = Math.floor(low / step) * step;
  high = Math.ceil(high / step) * step;
  const L = 54, B = 20, T = 6, R = 6;
  const x = (at) => L + ((at - start) / (end - start)) * (width - L - R);
  const y = (v) => T + ((high - v) / (high - low)) * (height - T - B);
  c.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  c.fillStyle = colour("--quiet");
  c.strokeStyle = colour("--line");
  c.lineWidth = 1;
  c.textAlign = "right";
  c.textBaseline = "middle";
  for (let v = low; v <= high + step / 2; v += step) {
    c.beginPath();
    c.moveTo(L, Math.round(y(v)) + 0.5);
    c.lineTo(width - R, Math.round(y(v)) + 0.5);
    c.stroke();
    c.fillText(value(Number(v.toPrecision(6))), L - 6, y(v));
  }
  c.textBaseline = "alphabetic";
  c.textAlign = "left";
  c.fillText(`−${span(seconds)}`, L, height - 4);
  c.textAlign = "right";
  c.fillText(time(end), width - R, height - 4);
  // A hole in the stream is a hole in the line.
  const gaps = [];
  for (let i = first + 1; i < t.length; i++) gaps.push(t[i] - t[i - 1]);
  gaps.sort((a, b) => a - b);
  const wide = gaps.length ? Math.max(8 * gaps[gaps.length >> 1], 1.5e6) : Infinity;
  c.lineJoin = "round";
  names.forEach((name, k) => {
    c.strokeStyle = colour(`--plot-${k}`);
    c.fillStyle = c.strokeStyle;
    c.setLineDash(DASHES[k]);
    c.lineWidth = 1.5;
    c.beginPath();
    let pen = false;
    for (let i = first; i < t.length; i++) {
      const v = columns[name][i];
      if (v === null) {
        pen = false;
        continue;
      }
      if (!pen || t[i] - t[i - 1] > wide) c.moveTo(x(t[i]), y(v));
      else c.lineTo(x(t[i]), y(v));
      pen = true;
    }
    c.stroke();
    if (t.length - first <= 60) {
      for (let i = first; i < t.length; i++) {
        if (columns[name][i] === null) continue;
        c.beginPath();
        c.arc(x(t[i]), y(columns[name][i]), 2.5, 0, 7);
        c.fill();
      }
    }
  });
  c.setLineDash([]);
  const marks = ["—", "– –", "···", "–·–"];
  plot.label.replaceChildren(...names.flatMap((name, k) => {
    const mark = h("span", { "aria-hidden": "true" }, names.length > 1 ? marks[k] + " " : "");
    mark.style.color = `var(--plot-${k})`;
    const v = columns[name][t.length - 1];
    return [mark, name + " ", h("b", null, v === null ? "–" : value(v)), k < names.length - 1 ? ", " : ""];
  }));
  canvas.setAttribute("aria-label", `The last ${span(seconds)} of ${plot.section.dataset.plot}: ${plot.label.textContent}, between ${value(low)} and ${value(high)}`);
  plot.section.dataset.points = t.length;
}

// A round step that cuts the range into about n.
function ticks(low, high, n) {
  const raw = (high - low) / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((m) => m * power >= raw);
}

// ---- the start

function resized() {
  if (!view.processes) return;
  show_processes();
  show_positions();
  for (const plot of plots.values()) paint(plot);
}

function begin() {
  const names = chosen();
  undecided = names === null;
  for (const name of names || []) add_plot(name);
  $("plots-none").hidden = plots.size > 0;
  $("again").addEventListener("click", connect);
  $("go-on").addEventListener("click", () => closed(false));
  document.addEventListener("visibilitychange", () => {
    // The page is hidden: the gateway need not work for it.
    if (document.hidden) {
      disconnect();
      retry_at = 0;
    } else if (!given_up) connect();
  });
  let due = 0;
  window.addEventListener("resize", () => {
    clearTimeout(due);
    due = setTimeout(resized, 100);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", resized);
  setInterval(tick, 500);
  connect();
}

begin();
