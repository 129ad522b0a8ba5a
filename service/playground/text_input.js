// A box for a text, which the service's tokenizer reads.

import { element } from "./elements.js";

export class TextInput {
  constructor(place, changed) {
    const box = element("textarea", { id: "text", rows: 6 });
    const said = element("p", { class: "note", role: "status" });
    const read = () => {
      const text = box.value.trim();
      said.textContent = text ? "" : "Enter a text.";
      changed(text ? { texts: [text] } : null);
    };
    box.addEventListener("input", read);
    place.append(element("label", { for: "text" }, "Text"), box, said);
    read();
  }
}
