// Text as the network takes it: whole numbers, one a token, where the bundle holds no tokenizer.

import { element } from "./elements.js";

export class TokenInput {
  static takes(spec) {
    return spec.dtype === "int64" && spec.shape.length === 1;
  }

  constructor(place, spec, changed) {
    const [count] = spec.shape;
    const box = element("textarea", { id: "tokens", rows: 6, spellcheck: "false" });
    const said = element("p", { class: "note", role: "status" });
    const read = () => {
      const words = box.value.split(/[\s,]+/).filter(Boolean);
      const wrong = words.find((word) => !/^-?\d+$/.test(word));
      if (wrong !== undefined || words.length !== count) changed(null);
      if (words.length === 0) said.textContent = `Enter ${count} whole numbers with spaces between them.`;
      else if (wrong !== undefined) said.textContent = `Found "${wrong}", expected whole numbers, one a token.`;
      else if (words.length !== count) said.textContent = `Found ${words.length} tokens, expected ${count}.`;
      else {
        said.textContent = "";
        changed({ inputs: [words.map(Number)] });
      }
    };
    box.addEventListener("input", read);
    place.append(element("label", { for: "tokens" }, `${count} tokens, as the numbers of your vocabulary`), box, said);
    read();
  }
}
