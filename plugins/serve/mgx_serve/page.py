"""The HTML status page: models, load and latencies."""

from __future__ import annotations

import html

from .inference import Service

__all__ = ["page"]

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">
<title>mgx-serve</title><style>body{{font:16px system-ui;margin:2rem;color:#222}}table{{border-collapse:collapse}}
th,td{{padding:.4rem .9rem;border-bottom:1px solid #ddd;text-align:right}}th:first-child,td:first-child{{text-align:left}}
.READY{{color:#137333}}.UNAVAILABLE{{color:#a50e0e}}</style></head><body><h1>mgx-serve {version}</h1><table>
<tr><th>model</th><th>version</th><th>state</th><th>target</th><th>requests</th><th>runs</th><th>rows a run</th>
<th>queue, ms</th><th>run, ms</th><th>waiting</th><th>failed</th><th>refused</th></tr>{rows}</table></body></html>"""


def page(service: Service) -> str:
    """Returns the page as HTML."""
    rows = []
    for entry in service.repository.entries.values():
        if not entry.loaded:
            cells = [
                html.escape(entry.name),
                max(entry.paths, key=int),
                f'<span class="{entry.state}">{html.escape(entry.reason)}</span>',
            ]
            rows.append([*map(str, cells), *[""] * 9])
        for version, deployment in entry.loaded.items():
            r = service.metrics.records[entry.name, version]
            run_rows = sum(size * runs for size, (runs, _) in r.by_size.items())
            rows.append(
                [
                    html.escape(entry.name),
                    version,
                    f'<span class="{entry.state}">{entry.state}</span>',
                    html.escape(deployment.signature.target),
                    str(r.requests),
                    str(r.runs),
                    f"{run_rows / max(r.runs, 1):.1f}",
                    f"{r.queue_ns / max(r.requests, 1) / 1e6:.2f}",
                    f"{r.compute_ns / max(r.requests, 1) / 1e6:.2f}",
                    str(r.waiting),
                    str(r.failures),
                    str(r.refusals),
                ]
            )
    text = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
    return PAGE.format(version=html.escape(service.version), rows=text)
