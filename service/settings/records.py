"""What is recorded: the audit trail, labels that come later, traces, and the log."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from .types import Bytes, Seconds


class RecordSettings(BaseModel):
    """What is recorded: the audit trail, labels that come later, traces, and the log."""

    audit_file: Annotated[
        Path | None,
        Field(
            description="File that gets one JSON line for each prediction: its id, model, score, p-value and decision; "
            "`-` is standard output. None: no such file."
        ),
    ] = None
    audit_bytes: Annotated[
        Bytes,
        Field(
            description="What the audit trail takes on the disk at most: its file is renamed when it has a tenth of "
            "it, and the oldest of ten is deleted. An answer takes some 440 bytes, and up to 20 for each number of its "
            "kept inputs: without these, the default lasts four hours at 100 answers a second."
        ),
    ] = 640 * 2**20
    audit_inputs: Annotated[
        bool, Field(description="Whether the audit file holds the inputs too, as the network takes them.")
    ] = False
    feedback_secret_file: Annotated[
        Path | None,
        Field(
            description="File of secrets, one a line, of at least 32 bytes each. With it every answer has a signed "
            "receipt, with which its labels come by `POST /feedback`. The first secret signs, all are accepted. None: "
            "no feedback."
        ),
    ] = None
    feedback_max_age_seconds: Annotated[
        Seconds, Field(description="How long after an answer its labels are accepted.")
    ] = 30 * 86400
    feedback_keys_file: Annotated[
        Path | None,
        Field(description="File of hashed API keys that `/feedback` needs, in place of those of the other routes."),
    ] = None
    traces: Annotated[
        bool,
        Field(
            description="Whether to send a trace of each request by OTLP over HTTP. OpenTelemetry's variables, such "
            "as `OTEL_EXPORTER_OTLP_ENDPOINT`, choose the collector, the share of requests and the service's name."
        ),
    ] = False
    access_log: Annotated[
        bool, Field(description="Whether to log each request; the metrics count requests either way.")
    ] = True
    log_format: Annotated[
        Literal["text", "json"], Field(description="How the log is written: lines to read, or a JSON object a line.")
    ] = "text"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Least severe level to log.")
    ] = "info"
