"""The Grafana dashboards and Prometheus' recording rules, written from one description of their queries."""
