"""What a run looks like: charts, and one page that holds them."""

from nestegg.report.charts import comparison_chart, label_chart, quality_chart, spending_chart
from nestegg.report.page import write_report

__all__ = ["comparison_chart", "label_chart", "quality_chart", "spending_chart", "write_report"]
