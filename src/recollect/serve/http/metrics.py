"""Count requests and their times, and print them as Prometheus text."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from itertools import accumulate

import psutil

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class Metrics:
    """Counts of one process; only its event loop changes them."""

    requests: Counter[tuple[str, str, int]] = field(default_factory=Counter)  # method, route, status
    seconds: dict[str, float] = field(default_factory=dict)  # by route
    buckets: dict[str, list[int]] = field(default_factory=dict)  # by route: as many as BUCKETS, and one more
    active: int = 0  # requests under way
    refused: int = 0  # for too many at a time

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests[method, route, status] += 1
        self.seconds[route] = self.seconds.get(route, 0.0) + seconds
        self.buckets.setdefault(route, [0] * (len(BUCKETS) + 1))[bisect_left(BUCKETS, seconds)] += 1

    def text(self, gauges: dict[str, float]) -> str:
        """Return all counts, and some more numbers by name, in the text format of Prometheus."""
        name = "recollect_requests_total"
        lines = _head(name, "counter", "Requests by method, route and status.")
        for (method, route, status), number in sorted(self.requests.items()):
            lines.append(f'{name}{{method="{method}",route="{route}",status="{status}"}} {number}')
        name = "recollect_request_seconds"
        lines += _head(name, "histogram", "Time from a request's headers to the end of its answer.")
        for route, counts in sorted(self.buckets.items()):
            *inner, total = accumulate(counts)
            for bound, number in zip(BUCKETS, inner, strict=True):
                lines.append(f'{name}_bucket{{route="{route}",le="{bound}"}} {number}')
            lines.append(f'{name}_bucket{{route="{route}",le="+Inf"}} {total}')
            lines.append(f'{name}_sum{{route="{route}"}} {self.seconds[route]:.6f}')
            lines.append(f'{name}_count{{route="{route}"}} {total}')
        lines += _head("recollect_refused_total", "counter", "Questions refused because too many were under way.")
        lines.append(f"recollect_refused_total {self.refused}")
        own = {"requests_active": self.active, "resident_bytes": psutil.Process().memory_info().rss}
        for each, value in {**own, **gauges}.items():
            lines += [*_head(f"recollect_{each}", "gauge", ""), f"recollect_{each} {value}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [*([f"# HELP {name} {text}"] if text else []), f"# TYPE {name} {kind}"]
