"""What a run looks like: charts, and one page that holds them."""

from nestegg.report.page import write_report

__all__ = ["write_report"]
