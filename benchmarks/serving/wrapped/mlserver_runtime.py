"""MLServer: a custom runtime with adaptive batching (its settings are in `benchmarks.serving.servers`)."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.serving.wrapped.common import load


class Digits(MLModel):
    """The Open Inference Protocol, tensors in JSON."""

    async def load(self) -> bool:
        self.predictor = load()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        found = self.predictor.predict(NumpyCodec.decode_input(payload.inputs[0]))
        names = ("probabilities", "variance", "score", "p_value", "rejected")
        outputs = [NumpyCodec.encode_output(name, getattr(found, name)) for name in names]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)
