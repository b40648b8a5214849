"""Charts as SVG that stands in an HTML page. Colours are classes, so that the page may be dark."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from elasticd.cli.reports.chronicle import Stretch, StretchKind
from elasticd.cli.reports.paper import Chart, CourseChart

WIDTH, HEIGHT = 720, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 34
_MOST_BARS = 2000
_SPAN = HEIGHT - _TOP - _BOTTOM
LEGEND: tuple[tuple[StretchKind, str], ...] = (
    ("training", "training"),
    ("detection", "until a fault was found"),
    ("regrouping", "regrouping"),
    ("parked", "parked"),
    ("waiting", "waiting"),
    ("paused", "paused"),
)


def line_chart(chart: Chart) -> ET.Element:
    """A line with its axes."""
    xs, ys = [x for x, _ in chart.points], [y for _, y in chart.points]
    x0, x1 = _span(xs)
    y0, y1 = _span([0.0, *ys] if chart.stepped else ys)
    svg = _svg(HEIGHT, f"{chart.title}: {chart.said}")
    for value in ticks(y0, y1, 4):
        y = _TOP + _SPAN * (1 - (value - y0) / (y1 - y0))
        _line(svg, (_LEFT, y), (WIDTH - _RIGHT, y), "grid")
        _text(svg, _LEFT - 6, y + 4, f"{value:.6g}", "end")
    for value in ticks(x0, x1, 6):
        _text(svg, _across(value, x0, x1), HEIGHT - _BOTTOM + 16, f"{value:.6g}", "middle")
    _text(svg, WIDTH - _RIGHT, HEIGHT - 4, chart.across, "end")
    places: list[tuple[float, float]] = []
    for x, y in chart.points:
        place = (_across(x, x0, x1), _TOP + _SPAN * (1 - (y - y0) / (y1 - y0)))
        if chart.stepped and places:
            places.append((place[0], places[-1][1]))
        places.append(place)
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    ET.SubElement(svg, "path", {"d": path, "class": "curve"})
    return svg


def course_chart(chart: CourseChart) -> ET.Element:
    """A bar of stretches, one after the other, with a mark at each fault."""
    height = 84
    svg = _svg(height, chart.said)
    if not chart.stretches:
        return svg
    x0 = min(chart.begin, chart.stretches[0].begin)
    x1 = max(chart.stretches[-1].end, x0 + 1e-3)
    for each in _widest(chart.stretches):
        left, right = _across(each.begin, x0, x1), _across(each.end, x0, x1)
        bar = {
            "x": f"{left:.2f}",
            "y": "26",
            "width": f"{max(right - left, 0.6):.2f}",
            "height": "26",
            "class": each.kind,
        }
        said = f"{each.kind}: {each.seconds:.2f} s from second {each.begin - x0:.2f}"
        _titled(ET.SubElement(svg, "rect", bar), said)
    for fault in chart.faults[-_MOST_BARS:]:
        x = min(max(_across(fault.begun, x0, x1), _LEFT), WIDTH - _RIGHT)
        mark = ET.SubElement(svg, "path", {"d": f"M{x - 4:.1f} 14h8l-4 9z", "class": "fault"})
        _titled(mark, f"{fault.fault} on {fault.node}")
    for value in ticks(0.0, x1 - x0, 6):
        _text(svg, _across(x0 + value, x0, x1), 68, f"{value:.6g}", "middle")
    _text(svg, WIDTH - _RIGHT, 82, "seconds", "end")
    return svg


def ticks(low: float, high: float, count: int) -> list[float]:
    """About so many round numbers between two."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * f for f in (1, 2, 5, 10) if power * f >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(n * step, 12) for n in range(first, last + 1)]


def _widest(stretches: Sequence[Stretch]) -> list[Stretch]:
    """Those that can be drawn, in their order: the longest."""
    if len(stretches) <= _MOST_BARS:
        return list(stretches)
    kept = sorted(stretches, key=lambda each: -each.seconds)[:_MOST_BARS]
    return sorted(kept, key=lambda each: each.begin)


def _span(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest, never the same."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        room = max(abs(low) * 0.1, 0.5)
        return low - room, high + room
    return low, high


def _across(value: float, low: float, high: float) -> float:
    return _LEFT + (WIDTH - _LEFT - _RIGHT) * (value - low) / (high - low)


def _svg(height: int, said: str) -> ET.Element:
    described = {"viewBox": f"0 0 {WIDTH} {height}", "role": "img", "aria-label": said}
    return ET.Element("svg", described)


def _titled(element: ET.Element, text: str) -> None:
    ET.SubElement(element, "title").text = text


def _line(svg: ET.Element, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
    (x1, y1), (x2, y2) = start, end
    places = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    ET.SubElement(svg, "line", {**{k: f"{v:.1f}" for k, v in places.items()}, "class": kind})


def _text(svg: ET.Element, x: float, y: float, text: str, anchor: str) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ET.SubElement(svg, "text", place).text = text
