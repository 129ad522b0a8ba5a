"""Hands answers to whatever else is to have them."""

import time
from functools import partial
from typing import Any

import numpy.typing as npt

from ..feedback.receipts import ReceiptSigner, read_secrets
from ..inference.decision import Decision
from ..inference.policy import Policy
from ..inference.prediction import Prediction
from ..models.served import ServedModel
from ..models.store import ModelStore
from ..monitoring.audit import AuditTrail
from ..monitoring.audit_file import open_audit
from ..monitoring.metrics import Metrics
from ..settings import Settings
from .audit_lines import Asker, audit_lines
from .feedback import Feedback
from .shadow import Shadow


class Recording:
    """`feedback`: gives receipts and counts labels, None: it is not wanted."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        """Raises `AuditFileError` and `SecretFileError`."""
        self._settings, self._metrics, secret = settings, metrics, settings.feedback_secret_file
        self._audit: AuditTrail | None = None
        self._shadow: Shadow | None = None
        self.feedback: Feedback | None = None
        if settings.audit_file is not None:
            self._audit = AuditTrail(open_audit(settings.audit_file, settings.audit_bytes), metrics.audit_lost)
        if secret is not None:
            self.feedback = Feedback(ReceiptSigner(read_secrets(secret), settings.feedback_max_age_seconds))

    def start(self, store: ModelStore, version: str) -> None:
        """Begin to write and to compare."""
        settings = self._settings
        if self._audit is not None:
            self._audit.start()
            self.event("started", service=version, settings=settings.described())
        if (choice := settings.shadow_choice) is not None:
            seconds = settings.compute_timeout_seconds
            self._shadow = Shadow(choice, Policy.of(settings), store, self._metrics, seconds)
            self._shadow.start()

    def check(self) -> None:
        """Log what cannot be recorded: call it once models are loaded."""
        if self._shadow is not None:
            self._shadow.check()

    def close(self) -> None:
        """Write what waits; what is not compared yet is left."""
        if self._shadow is not None:
            self._shadow.close()
        if self._audit is not None:
            self.event("stopped")
            self._audit.close()

    def event(self, event: str, **fields: Any) -> None:
        """Something that happened to the service itself."""
        if self._audit is not None:
            self._audit.event(event, **fields)

    def record(
        self,
        asker: Asker,
        model: ServedModel,
        decision: Decision,
        identity: str,
        prediction: Prediction,
        inputs: npt.NDArray[Any],
        trial: bool,
    ) -> None:
        """An answer; `decision` has decided. identity: of the request. The shadow sees no trial."""
        if self._shadow is not None and not trial and decision is model.predictor.decision:
            self._shadow.offer(model, prediction, inputs)
        if self._audit is not None:
            kept = inputs if self._settings.audit_inputs else None
            make = partial(audit_lines, model, decision, identity, time.time(), prediction, kept, asker, trial)
            numbers = prediction.mean.size + (0 if kept is None else kept.size)
            self._audit.note(make, len(prediction), numbers)

    def receipt(self, model: ServedModel, decision: Decision, prediction: Prediction) -> str | None:
        """That of an answer that `decision` has decided, None without feedback."""
        return None if self.feedback is None else self.feedback.receipt(model, decision, prediction)
