"""`python -m docs.dashboards`: write the dashboards, the recording rules, both for Kubernetes, and the
tables of docs/monitoring.md."""

from docs.dashboards import rules
from docs.dashboards.files import PAGE, RULES, dashboards, kubernetes, parts
from docs.marked import update_parts

if __name__ == "__main__":
    for path, text in dashboards().items():
        path.write_text(text)
    RULES.write_text(rules.page())
    for path, text in kubernetes().items():
        path.write_text(text)
    update_parts(PAGE, parts())
