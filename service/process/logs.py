"""What the log's lines look like: time, level, message, and the id of the request that they are about."""

import copy
import datetime as dt
import logging
from typing import Any

from uvicorn.config import LOGGING_CONFIG

from probity.service.http.request_id import current_id
from probity.service.settings import Settings


class PathOnly(logging.Filter):
    """Removes the query from lines of the access log: the service does not use it, and it may hold a key."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every line."""
        if isinstance(record.args, tuple) and len(record.args) == 5:  # client, method, target, version, status
            client, method, target, *rest = record.args
            record.args = (client, method, f"{target}".partition("?")[0], *rest)
        return True


class WithContext(logging.Filter):
    """Adds the time (UTC, milliseconds) as `moment`, and as `request` the id of the request, empty outside of one."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every line."""
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
        record.moment = moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
        identity = getattr(record, "request_id", None) or current_id()  # given where no context has it
        record.request = "" if identity is None else f" request={identity}"
        return True


def log_config(settings: Settings) -> dict[str, Any]:
    """uvicorn's logging configuration, with time and request in each line, and a logger for the service's messages."""
    config = copy.deepcopy(LOGGING_CONFIG)
    config["filters"] = {"path_only": {"()": PathOnly}, "context": {"()": WithContext}}
    for formatter in config["formatters"].values():
        formatter["fmt"] = f"%(moment)s {formatter['fmt']}%(request)s"
    for handler in config["handlers"].values():
        handler["filters"] = ["context"]
    config["loggers"]["uvicorn.access"]["filters"] = ["path_only"]
    config["loggers"]["probity"] = {"handlers": ["default"], "level": settings.log_level.upper()}
    return config
