"""What is written down: the audit trail, answers that wait for labels, and the log."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from probity.service.settings.types import Positive


class RecordSettings(BaseModel):
    """What is written down: the audit trail, answers that wait for labels, and the log."""

    audit_file: Annotated[
        Path | None,
        Field(
            description="File that gets one JSON line for each prediction: its id, model, score, p-value and decision. "
            "None: no such file."
        ),
    ] = None
    audit_bytes: Annotated[
        Positive, Field(description="Size from which the audit file is renamed and a new one begun, in bytes.")
    ] = 64 * 2**20
    audit_files: Annotated[Positive, Field(description="How many renamed audit files are kept.")] = 10
    audit_inputs: Annotated[
        bool, Field(description="Whether the audit file holds the inputs too, as the network takes them.")
    ] = False
    feedback_file: Annotated[
        Path | None,
        Field(
            description="SQLite file that remembers answers, without inputs, until their labels come by `POST "
            "/feedback`. None: no feedback."
        ),
    ] = None
    feedback_examples: Annotated[
        Positive, Field(description="How many of the latest examples the feedback file remembers.")
    ] = 1_000_000
    feedback_keys_file: Annotated[
        Path | None,
        Field(description="File of hashed API keys that `/feedback` needs, in place of those of the other routes."),
    ] = None
    access_log: Annotated[
        bool, Field(description="Whether to log each request; the metrics count requests either way.")
    ] = True
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Field(description="Least severe level to log.")
    ] = "info"

    @model_validator(mode="after")
    def check_files(self) -> Self:
        """Refuse one file for two purposes: each would destroy the other's content."""
        audit, feedback = self.audit_file, self.feedback_file
        if audit is not None and feedback is not None and audit.resolve() == feedback.resolve():
            raise ValueError(f"audit_file: found {str(audit)!r:.100}, which is feedback_file too")
        return self
