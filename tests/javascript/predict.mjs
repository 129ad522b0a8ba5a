// Runs ONNX models as a user of onnxruntime-node would: a JSON job on the standard input, JSON on the standard output.
// Values travel as base64 of their bytes, because JSON has neither NaN nor infinity.
import * as ort from "onnxruntime-node";

const ARRAYS = { float32: Float32Array, float64: Float64Array, int64: BigInt64Array };

function decoded({ type, dims, base64 }) {
  const bytes = Uint8Array.from(Buffer.from(base64, "base64"));
  return new ort.Tensor(type, new ARRAYS[type](bytes.buffer), dims);
}

function encoded({ type, dims, data }) {
  return { type, dims, base64: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64") };
}

async function answers({ model, inputs }) {
  const session = await ort.InferenceSession.create(model);
  const batches = [];
  for (const tensor of inputs) {
    const outputs = await session.run({ inputs: decoded(tensor) });
    batches.push(Object.fromEntries(session.outputNames.map((name) => [name, encoded(outputs[name])])));
  }
  return batches;
}

let text = "";
for await (const chunk of process.stdin) text += chunk;
const found = [];
for (const job of JSON.parse(text)) found.push(await answers(job));
process.stdout.write(JSON.stringify(found));
