// Charts as SVG. What a job has said gets in as text only.

const SVG = "http://www.w3.org/2000/svg";

export function shape(name, attributes = {}, text = undefined) {
  const found = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  if (text !== undefined) found.textContent = text;
  return found;
}

export function short(value) {
  if (typeof value !== "number" || !Number.isFinite(value)) return "-";
  return String(Number(value.toPrecision(4)));
}

export function clock(seconds, long = false) {
  if (typeof seconds !== "number" || !(seconds > 0 && seconds < 1e11)) return "-";
  const when = new Date(seconds * 1000);
  return long ? when.toLocaleString() : when.toLocaleTimeString();
}

// Round numbers from low to high, about so many.
export function ticks(low, high, about) {
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const power = 10 ** Math.floor(Math.log10(span / about));
  const step = power * [1, 2, 5, 10].find((each) => span / (each * power) <= about);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high && found.length < 50; at++) found.push(at * step);
  return found;
}

// points: [x, y]; stepped: a value holds until the next point; shown: how an x reads.
export function lineChart(svg, points, { stepped = false, shown = short, across = "step", none = "nothing yet", what = "" } = {}) {
  svg.replaceChildren();
  const known = points.filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
  if (known.length < 2) {
    const one = known.map(([x, y]) => `${what ? `${what} ` : ""}${short(y)} at ${across} ${shown(x)}, no curve yet`);
    const said = one[0] ?? none;
    svg.append(shape("text", { x: 4, y: 20 }, said));
    svg.setAttribute("aria-label", said);
    return;
  }
  const wide = svg.clientWidth || 600, high = svg.clientHeight || 180;
  const xs = known.map((p) => p[0]), ys = known.map((p) => p[1]);
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  let [y0, y1] = [Math.min(...ys), Math.max(...ys)];
  if (y0 === y1) [y0, y1] = [y0 - (Math.abs(y0) || 1) / 10, y1 + (Math.abs(y1) || 1) / 10];
  const left = 52, right = wide - 8, top = 8, bottom = high - 20;
  const atX = (x) => left + ((right - left) * (x - x0)) / (x1 - x0 || 1);
  const atY = (y) => bottom - ((bottom - top) * (y - y0)) / (y1 - y0);
  for (const y of ticks(y0, y1, 4)) {
    svg.append(shape("line", { class: "axis", x1: left, x2: right, y1: atY(y), y2: atY(y) }));
    svg.append(shape("text", { x: left - 4, y: atY(y) + 4, "text-anchor": "end" }, short(y)));
  }
  const marks = across === "step" ? ticks(x0, x1, Math.max(2, wide / 120)) : [x0, (x0 + x1) / 2, x1];
  marks.forEach((x, at) => {
    const anchor = across === "step" || at === 1 ? "middle" : at ? "end" : "start";
    svg.append(shape("text", { x: atX(x), y: high - 5, "text-anchor": anchor }, shown(x)));
  });
  let path = "";
  known.forEach(([x, y], at) => {
    if (stepped && at) path += `H${atX(x).toFixed(1)}`;
    path += `${at ? "L" : "M"}${atX(x).toFixed(1)} ${atY(y).toFixed(1)}`;
  });
  svg.append(shape("path", { class: "curve", d: path }));
  const [first, last] = [known[0], known[known.length - 1]];
  svg.setAttribute(
    "aria-label",
    `${what ? `${what} ` : ""}from ${short(first[1])} at ${across} ${shown(first[0])} to ${short(last[1])} at ${across} ${shown(last[0])}; ` +
      `lowest ${short(Math.min(...ys))}, highest ${short(Math.max(...ys))}`,
  );
}

// last: so many seconds at the end; 0: all.
export function timeline(svg, course, last) {
  svg.replaceChildren();
  const wide = svg.clientWidth || 600;
  const end = course.end, begin = last ? Math.max(course.begin, end - last) : course.begin;
  const at = (time) => (wide * (Math.min(Math.max(time, begin), end) - begin)) / (end - begin || 1);
  for (const [from, until, kind] of course.stretches) {
    if (until < begin || !/^[a-z]+$/.test(kind)) continue;
    const bar = shape("rect", { class: `k-${kind}`, x: at(from), y: 18, height: 30, width: Math.max(at(until) - at(from), 0.5) });
    bar.append(shape("title", {}, `${kind} ${(until - from).toFixed(2)} s, from ${clock(from, true)}`));
    svg.append(bar);
  }
  const shown = course.faults.filter((fault) => fault.time >= begin);
  for (const fault of shown) {
    const x = Math.min(Math.max(at(fault.time), 4), wide - 4);
    svg.append(shape("line", { class: "fault", x1: x, x2: x, y1: 12, y2: 52 }));
    const mark = shape("path", { class: "faultmark", d: `M${x - 5} 4h10l-5 9z` });
    mark.append(shape("title", {}, `${fault.fault} on ${fault.node}, ${clock(fault.time, true)}`));
    svg.append(mark);
  }
  svg.append(shape("text", { x: 0, y: 64 }, clock(begin)));
  svg.append(shape("text", { x: wide, y: 64, "text-anchor": "end" }, clock(end)));
  svg.setAttribute("aria-label", `${shown.length} faults from ${clock(begin, true)} to ${clock(end, true)}; the tables below say which`);
}

// links: of the node that was asked, by the name of the other one: "up", "lost" or "".
export function ring(svg, ranks, asked, links) {
  svg.replaceChildren();
  if (!ranks.length) {
    svg.append(shape("text", { x: 4, y: 20 }, "no world"));
    svg.setAttribute("aria-label", "no world");
    return;
  }
  const wide = svg.clientWidth || 400, high = svg.clientHeight || 260;
  const radius = ranks.length > 1 ? Math.min(wide, high) / 2 - 46 : 0;
  const places = ranks.map((_, at) => {
    const angle = (2 * Math.PI * at) / ranks.length - Math.PI / 2;
    return [wide / 2 + radius * Math.cos(angle) * Math.min(wide / high, 1.5), high / 2 + radius * Math.sin(angle)];
  });
  const said = [];
  const pairs = ranks.length > 2 ? ranks.length : ranks.length - 1;
  for (let at = 0; at < pairs; at++) {
    const [one, other] = [ranks[at], ranks[(at + 1) % ranks.length]];
    const far = one.node === asked ? other.node : other.node === asked ? one.node : null;
    const health = far === null ? "" : links.get(far) ?? "";
    const [a, b] = [places[at], places[(at + 1) % ranks.length]];
    const line = shape("line", { class: `link ${health}`, x1: a[0], y1: a[1], x2: b[0], y2: b[1] });
    line.append(shape("title", {}, `${one.node} to ${other.node}: ${health || "not known here"}`));
    svg.append(line);
    said.push(`${one.node} to ${other.node} ${health || "not known"}`);
  }
  const size = ranks.length > 16 ? 8 : 17;
  ranks.forEach((rank, at) => {
    const [x, y] = places[at];
    svg.append(shape("circle", { class: "rank", cx: x, cy: y, r: size }));
    if (ranks.length > 16) return;
    svg.append(shape("text", { class: "ranktext", x, y: y + 5, "text-anchor": "middle" }, String(rank.rank)));
    const below = y >= high / 2;
    svg.append(shape("text", { x, y: below ? y + size + 14 : y - size - 6, "text-anchor": "middle" }, rank.node));
  });
  svg.setAttribute("aria-label", `${ranks.length} ranks; links: ${said.join(", ") || "none"}`);
}
