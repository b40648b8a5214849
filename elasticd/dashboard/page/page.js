// The page: reads the stream of looks and courses, and shows them. Whatever a job, a node or a log
// says becomes text, never markup.

import { clock, lineChart, ring, short, timeline } from "/drawing.js";

const KEY = "elasticd token";
const SILENCE = 25_000;
const ENDED = ["finished", "failed", "cancelled"];
const at = (id) => document.getElementById(id);
let token = takeToken();
let wanted = "";
let look = null, course = null, newest = null, zoom = 0, storedFor = "", hurry = null, announced = "", told = 0;

function takeToken() {
  const found = /token=([\w-]+)/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, found[1]);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY) || "";
}

// --- asking -------------------------------------------------------------------------------------

const asking = (more = {}) => ({ cache: "no-store", ...more, headers: { Authorization: `Bearer ${token}`, ...more.headers } });
const pause = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

async function follow() {
  let wait = 250;
  for (;;) {
    if (!token) {
      await entered("");
      continue;
    }
    const cut = (hurry = new AbortController());
    try {
      const answer = await fetch(`/api/live?job=${encodeURIComponent(wanted)}`, asking({ signal: cut.signal }));
      if (answer.status === 401) {
        token = "";
        sessionStorage.removeItem(KEY);
        await entered("That token opens nothing here.");
        continue;
      }
      if (!answer.ok) throw new Error((await answer.json()).error);
      wait = 250;
      await read(answer.body.getReader(), cut);
    } catch (error) {
      if (cut.signal.reason === "another") continue;
      connected(`lost: ${error.message ?? error}; trying again`, true);
    }
    if (cut.signal.reason !== "another") {
      connected("lost; trying again", true);
      await pause(wait);
      wait = Math.min(2 * wait, 2000);
    }
  }
}

async function read(reader, cut) {
  const decoder = new TextDecoder();
  let text = "", silent = 0;
  try {
    for (;;) {
      silent = setTimeout(() => cut.abort("silent"), SILENCE);
      const { done, value } = await reader.read();
      clearTimeout(silent);
      if (done) return;
      text += decoder.decode(value, { stream: true });
      for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) heard(text.slice(0, end));
    }
  } finally {
    clearTimeout(silent);
  }
}

function heard(block) {
  const found = /^event: (\w+)\ndata: (.*)$/.exec(block);
  if (!found) return;
  const said = JSON.parse(found[2]);
  if (found[1] === "look") {
    look = said;
    if (said.live) connected(`live, from ${said.asked ?? "no node"}`, false);
    else connected("not live: no answer from the daemon", true);
    if (course && course.job !== said.job?.id) matched(); // it was forgotten, say
    showLook();
    if (!course && newest?.job === said.job?.id) matched();
  } else if (found[1] === "course") {
    newest = said;
    matched();
  }
}

// Figures are shown beside the job whose they are only.
function matched() {
  course = newest?.job === look?.job?.id ? newest : null;
  showCourse();
}

function connected(text, lost) {
  put(at("connection"), text);
  at("connection").classList.toggle("lost", lost);
}

function entered(why) {
  at("entry").hidden = false;
  at("told").hidden = true;
  if (why) put(at("entry-why"), `${why} The address that 'elasticctl dashboard' prints opens it.`);
  connected("needs a token", true);
  return new Promise((done) => {
    at("entry").onsubmit = (event) => {
      event.preventDefault();
      token = (/([\w-]+)\s*$/.exec(at("token").value) || ["", ""])[1];
      at("token").value = "";
      if (!token) return;
      sessionStorage.setItem(KEY, token);
      at("entry").hidden = true;
      done();
    };
  });
}

async function fetched(path, more) {
  const answer = await fetch(path, asking(more));
  const said = await answer.json();
  if (!answer.ok) throw new Error(said.error);
  return said;
}

// --- changing -----------------------------------------------------------------------------------

const QUESTIONS = { cancel: "Cancel", drain: "Drain" };

function sure(question) {
  const dialog = at("sure");
  put(at("sure-text"), question);
  return new Promise((done) => {
    dialog.onclose = () => done(dialog.returnValue === "yes");
    dialog.returnValue = "";
    dialog.showModal();
  });
}
at("sure-no").onclick = () => at("sure").close("no");
at("sure-yes").onclick = () => at("sure").close("yes");

async function change(what, id) {
  if (QUESTIONS[what] && !(await sure(`${QUESTIONS[what]} ${id}?`))) return;
  say(`${what} ${id} …`);
  try {
    const body = JSON.stringify({ do: what, id });
    const said = await fetched("/api/change", { method: "POST", body, headers: { "Content-Type": "application/json" } });
    say(said.already ? `${said.id} had ended already (${said.state})` : `${said.id} ${said.state}`);
  } catch (error) {
    say(`${what} ${id}: ${error.message}`);
  }
}

function say(text) {
  put(at("said"), text);
  const now = ++told;
  setTimeout(() => now === told && put(at("said"), ""), 8000);
}

// --- showing ------------------------------------------------------------------------------------

function put(element, text) {
  text = text === null || text === undefined ? "-" : String(text);
  if (element.textContent !== text) element.textContent = text;
}

function made(name, text, className = "") {
  const found = document.createElement(name);
  if (text !== undefined) put(found, text);
  if (className) found.className = className;
  return found;
}

const stateClass = (state) => (/^[a-z]+$/.test(state ?? "") ? `s-${state}` : "");

// Rows stay where they are, so that who has the keyboard on one keeps it. rows: [key, cells, state].
function fill(table, rows, finish = () => {}) {
  const body = table.tBodies[0];
  const there = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  rows.forEach(([key, cells, state], place) => {
    let row = there.get(key);
    if (!row) {
      row = made("tr");
      row.dataset.key = key;
      for (const _ of cells) row.append(made("td"));
    }
    there.delete(key);
    cells.forEach((cell, column) => {
      put(row.cells[column], cell);
      if (state !== undefined && column === 1) row.cells[column].className = stateClass(state);
    });
    finish(row, key);
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] ?? null);
  });
  for (const row of there.values()) row.remove();
}

function bytes(count) {
  if (!count) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(Math.floor(Math.log2(count) / 10), 4);
  return `${(count / 1024 ** unit).toFixed(unit ? 1 : 0)} ${units[unit]}`;
}

const seconds = (value) => (typeof value === "number" ? value.toFixed(2) : "-");
const share = (value) => (typeof value === "number" ? `${(100 * value).toFixed(1)}%` : "-");

function showLook() {
  at("told").hidden = false;
  at("trouble").hidden = !look.trouble;
  put(at("trouble"), look.trouble);
  const { view } = look;
  put(at("cluster"), look.cluster ? `cluster ${look.cluster}` : "elasticd");
  put(at("view"), `leader ${view.leader ?? "-"}, ${view.members?.length ?? 0} in view, epoch ${view.epoch ?? "-"}`);
  chooser();
  showJob(look.job);
  showNodes();
}

function chooser() {
  const select = at("job");
  const options = [["", "the one that has its turn"], ...look.jobs.map((job) => [job.id, `${job.id} (${job.state})`])];
  const now = JSON.stringify(options);
  if (select.dataset.now === now) return;
  select.dataset.now = now;
  select.replaceChildren(...options.map(([value, text]) => Object.assign(made("option", text), { value })));
  select.value = wanted;
  if (select.selectedIndex < 0) select.value = ""; // it was forgotten
}

// Of a plain job only its script knows the steps: what tells of them is hidden.
const isPlain = (job) => job?.mode === "plain";
const lasting = (value) => (value < 60 ? `${value.toFixed(0)} s` : value < 3600 ? `${(value / 60).toFixed(0)} min` : `${(value / 3600).toFixed(1)} h`);

function showJob(job) {
  const plain = isPlain(job);
  document.title = job ? `${job.state} ${plain ? "" : `${job.step}/${job.steps} `}${job.id}` : "elasticd";
  const ended = !job || ENDED.includes(job.state);
  for (const button of at("job-buttons").children) {
    const what = button.dataset.do;
    button.disabled = ended || (what === "pause" && job.state === "paused") || (what === "resume" && job.state !== "paused");
    button.onclick = () => job && change(what, job.id);
  }
  at("reason").hidden = !job?.reason;
  put(at("reason"), job?.reason ?? "");
  for (const part of document.querySelectorAll("[data-steps]")) part.hidden = plain;
  at("progress").value = job?.steps ? job.step / job.steps : 0;
  const pairs = job
    ? [
        ["job", job.id], ["state", job.state, stateClass(job.state)],
        ...(plain
          ? [["its script runs", job.script_seconds ? lasting(job.script_seconds) : "-"], ["begun anew", job.restarts ?? "-"]]
          : [["step", `${job.step} of ${job.steps}`], ["loss", short(job.loss)], ["steps per second", short(job.steps_per_second)],
             ["goodput", share(course?.job === job.id ? course.course?.goodput : null)]]),
        ["recoveries", job.recoveries], ...(plain ? [] : [["lost steps", job.lost_steps]]),
        ["world", `${job.ranks.length} ranks, generation ${job.generation}`],
        ...(plain ? [] : [["exact", job.exact ? "yes" : "no"]]),
      ]
    : [["job", "no jobs yet (elasticctl submit JOB.toml)"]];
  const list = at("figures");
  if (list.children.length !== pairs.length) {
    list.replaceChildren(...pairs.map(() => { const part = made("div"); part.append(made("dt"), made("dd")); return part; }));
  }
  pairs.forEach(([name, value, className], place) => {
    const [term, value_] = list.children[place].children;
    put(term, name);
    put(value_, value);
    value_.className = className ?? "";
  });
  announce(job);
  const stored = course?.job === job?.id ? course?.newest ?? "" : "";
  const asked = job ? `${job.id} ${stored} ${job.digest_step} ${job.state}` : "";
  if (asked !== storedFor) {
    storedFor = asked;
    if (job) showStored(job.id);
    else fill(at("stored"), []);
  }
}

// Those who listen hear what changes, not every figure.
function announce(job) {
  const now = job ? `${job.id} is ${job.state}, ${job.recoveries} recoveries` : "";
  if (announced && now && now !== announced) say(now);
  announced = now;
}

// What the time of a step goes to, as the daemon names it.
const PARTS = ["data", "compute", "reduce", "update", "waiting", "checkpoint", "script"];
const fine = (value) => (Number.isFinite(value) ? value.toFixed(4) : "-");

function showNodes() {
  const ranks = look.job?.ranks ?? [];
  const total = ranks.reduce((sum, rank) => sum + (rank.grains || 0), 0);
  const links = new Map();
  fill(at("node-table"), look.nodes.map((node) => {
    const paths = node.links ?? [], up = paths.filter((path) => path.state === "up");
    const times = up.map((path) => path.round_trip_seconds).filter((time) => time > 0);
    if (paths.length) links.set(node.id, up.length ? "up" : "lost");
    let link = paths.length ? (up.length ? (times.length ? `${(1000 * Math.min(...times)).toFixed(1)} ms` : "up") : "lost") : "-";
    if (up.length && up.length < paths.length) link += `, ${paths.length - up.length} lost`;
    return [node.id, [node.id, node.state, link, node.chip, bytes(node.memory_bytes), node.version], node.state];
  }), (row, id) => {
    let button = row.querySelector("button");
    if (!button) {
      button = made("button");
      button.type = "button";
      const cell = made("td");
      cell.append(button);
      row.append(cell);
    }
    const draining = row.cells[1].textContent === "draining";
    put(button, draining ? "Undrain" : "Drain");
    button.setAttribute("aria-label", `${draining ? "Undrain" : "Drain"} ${id}`);
    button.disabled = !draining && row.cells[1].textContent === "dead";
    button.onclick = () => change(draining ? "undrain" : "drain", id);
  });
  fill(at("ranks"), ranks.map((rank) => [
    String(rank.rank), [rank.rank, rank.node, isPlain(look.job) ? "-" : rank.step, total ? share((rank.grains || 0) / total) : "-", rank.grain_seconds ? short(rank.grain_seconds) : "-"],
  ]));
  fill(at("parts"), ranks.map((rank) => {
    const told = rank.seconds ?? {}, known = PARTS.filter((part) => Number.isFinite(told[part]));
    const sum = known.reduce((total, part) => total + told[part], 0);
    return [String(rank.rank), [rank.rank, rank.node, ...[...PARTS.map((part) => told[part]), known.length ? sum : null].map(fine)]];
  }));
  const shown = JSON.stringify([ranks.map((rank) => rank.node), [...links], look.asked, at("ring").clientWidth]);
  if (at("ring").dataset.shown !== shown) {
    at("ring").dataset.shown = shown;
    ring(at("ring"), ranks, look.asked, links);
  }
}

const WORDS = {
  useful: "steps that count", detection: "until faults were found", regrouping: "regrouping after faults", redone: "steps made again (estimate)",
  parked: "parked: too few nodes", growth: "pauses for members that joined", checkpoints: "pauses for checkpoints", waiting: "waiting for its turn", paused: "paused",
};

const OF_STEPS = ["useful", "redone", "checkpoints"];
const NOTHING = { losses: [], values: {}, rates: [], events: [], course: null };

function showCourse() {
  const { losses, values, rates, events, course: told } = course ?? NOTHING;
  const plain = isPlain(look?.job);
  const stored = events.find((event) => event.kind === "checkpoint_committed");
  if (course) course.newest = stored?.line ?? "";
  named(values ?? {});
  const curve = at("curve").value;
  lineChart(at("losses"), curve ? values[curve] : losses, { none: `no ${curve || "losses"} seen yet`, what: curve || "loss" });
  lineChart(at("rates"), rates, { shown: (x) => clock(x), across: "time", none: "no speeds seen yet" });
  const steps = [];
  for (const [since, until, speed] of told?.speeds ?? []) {
    if (steps.length && since > steps.at(-1)[0]) steps.push([steps.at(-1)[0], 0]);
    steps.push([since, speed], [until, speed]);
  }
  lineChart(at("speeds"), steps, { stepped: true, shown: (x) => clock(x), across: "time", none: "too few checkpoints yet" });
  fill(at("recoveries"), (told?.recoveries ?? []).toReversed().map((each, place) => [
    `${each.time} ${place}`, [clock(each.time, true), each.rung, seconds(each.seconds), ...(plain ? ["-", "-"] : [each.lost_steps, each.resume_step])],
  ]));
  fill(at("faults"), (told?.faults ?? []).toReversed().map((each, place) => [
    `${each.time} ${place}`,
    [clock(each.time, true), each.fault, each.rank, each.node, seconds(each.seconds), each.evidence.join("; ") + (each.confidence ? ` (${each.confidence})` : "")],
  ]));
  const spent = told?.went_to ?? {};
  fill(at("went"), Object.entries(WORDS).filter(([cause]) => spent[cause] > 0 && !(plain && OF_STEPS.includes(cause))).map(([cause, text]) => [
    cause, [text, seconds(spent[cause]), cause === "waiting" || cause === "paused" ? "-" : share(told.turn ? spent[cause] / told.turn : null)],
  ]));
  at("events").replaceChildren(...events.map((event) => made("li", event.line)));
  showTimeline();
}

// A script may give a figure of that name to run.log, which need not be the step's loss.
const labelled = (name) => name === "loss" ? "loss, of run.log" : name || "loss";

// What the script gives to run.log can be chosen in place of the loss.
function named(values) {
  const select = at("curve"), names = ["", ...Object.keys(values)];
  const now = JSON.stringify(names);
  if (select.dataset.now === now) return;
  const before = select.value;
  select.dataset.now = now;
  select.replaceChildren(...names.map((name) => Object.assign(made("option", labelled(name)), { value: name })));
  select.value = names.includes(before) ? before : "";
}

function showTimeline() {
  const told = course?.course;
  if (!told) {
    at("timeline").replaceChildren();
    at("timeline").setAttribute("aria-label", "nothing yet");
    at("legend").replaceChildren();
    return;
  }
  timeline(at("timeline"), told, zoom);
  const sums = new Map();
  for (const [from, until, kind] of told.stretches) sums.set(kind, (sums.get(kind) ?? 0) + until - from);
  at("legend").replaceChildren(...[...sums].filter(([kind]) => /^[a-z]+$/.test(kind)).map(([kind, sum]) => {
    const item = made("li");
    item.append(made("i", "", `k-${kind}`), `${kind} ${sum.toFixed(2)} s`);
    return item;
  }));
}

async function showStored(job) {
  try {
    const said = await fetched(`/api/checkpoints?job=${encodeURIComponent(job)}`);
    const silent = Object.entries(said.silent ?? {}).map(([node, why]) => `${node} was not asked: ${why}`);
    at("checkpoints-why").hidden = !silent.length;
    put(at("checkpoints-why"), silent.join("; "));
    fill(at("stored"), (said.checkpoints ?? []).map((row) => [
      `${row.step} ${row.lineage} ${row.digest}`,
      [row.step, bytes(row.bytes), row.replicas, (row.holders ?? []).join(" "), row.consistent ? "yes" : "no", clock(row.created, true)],
    ]));
  } catch (error) {
    at("checkpoints-why").hidden = false;
    put(at("checkpoints-why"), error.message);
  }
}

async function showLines() {
  for (;;) {
    if (at("log-lines").open && look?.job && !document.hidden) {
      try {
        const said = await fetched(`/api/logs?job=${encodeURIComponent(look.job.id)}`);
        put(at("lines"), said.lines.join("\n") || "nothing yet");
      } catch (error) {
        put(at("lines"), error.message);
      }
    }
    await pause(3000);
  }
}

// --- keys and pointers --------------------------------------------------------------------------

at("job").onchange = (event) => {
  wanted = event.target.value;
  course = newest = null;
  hurry?.abort("another");
};
at("curve").onchange = () => course && showCourse();
for (const button of document.querySelectorAll("[data-last]")) {
  button.onclick = () => {
    zoom = Number(button.dataset.last);
    for (const each of document.querySelectorAll("[data-last]")) each.setAttribute("aria-pressed", String(each === button));
    showTimeline();
  };
}
addEventListener("hashchange", () => {
  const before = token;
  token = takeToken();
  if (token !== before) location.reload();
});
addEventListener("resize", () => course && showCourse());
follow();
showLines();
