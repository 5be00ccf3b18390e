"""Reports of a compilation: HTML page, memory diagram, text and trace."""

from __future__ import annotations

from .html import report_html
from .memory_diagram import memory_page, memory_svg, memory_text
from .trace import chrome_trace

__all__ = ["chrome_trace", "memory_page", "memory_svg", "memory_text", "report_html"]
