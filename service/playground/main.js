// The page: asks what is served, and puts the input that suits it beside the answer.

import { Answer } from "./answer.js";
import { CurveInput } from "./curve_input.js";
import { element } from "./elements.js";
import { ImageInput } from "./image_input.js";
import { Live } from "./live.js";
import { Latest, Service } from "./service.js";
import { TableInput } from "./table_input.js";
import { tabs } from "./tabs.js";
import { TokenInput } from "./token_input.js";

const find = (id) => document.getElementById(id);
const service = new Service();

function fail(error) {
  find("problem").textContent = error.message;
  find("problem").hidden = false;
}

function withInput(card, changed) {
  const place = find("input");
  const { input } = card;
  if (input.image && input.shape[1] === input.shape[2]) {
    return new ImageInput(place, input, card.class_names ?? [], changed);
  }
  if (!input.parts && CurveInput.takes(card)) return new CurveInput(place, card, service, changed);
  if (!input.parts && TokenInput.takes(input)) return new TokenInput(place, input, changed);
  if (!input.parts && TableInput.takes(input)) return new TableInput(place, input, changed);
  place.append(element("p", {}, "This model's inputs have no form here. Ask it over the ", element("a", { href: "./docs" }, "API"), "."));
  return null;
}

async function start() {
  find("problem").hidden = true;
  const [card, reference] = await Promise.all([service.card(), service.reference()]);
  find("key-form").hidden = true;
  find("page").hidden = false;
  find("model").textContent = `${card.name}, version ${card.version}: ${card.task}`;
  document.title = `${card.name} – Probity playground`;
  const answer = new Answer(find("answer"), card, reference.scores);
  const latest = new Latest((body) => service.predict(body), (found) => {
    find("problem").hidden = true;
    answer.show(found);
    find("trial").dataset.answered = "";
  }, fail, (busy) => find("trial").setAttribute("aria-busy", busy));
  withInput(card, (body) => latest.send(body));
  const live = new Live(find("live"), service, card, fail);
  tabs(find("tabs"), (chosen) => live.show(chosen === "watch"));
}

function begin() {
  start().catch((error) => {
    if (error.status === 401) find("key-form").hidden = false;
    else fail(error);
  });
}

find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  service.key = find("key").value;
  begin();
});
begin();
