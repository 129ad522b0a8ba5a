// The page: asks what is served, and puts the input that suits it beside the answer.

import { Answer } from "./answer.js";
import { element } from "./elements.js";
import { ImageInput } from "./image_input.js";
import { Live } from "./live.js";
import { AGAIN, Latest, Service } from "./service.js";
import { TableInput } from "./table_input.js";
import { tabs } from "./tabs.js";
import { TextInput } from "./text_input.js";
import { TokenInput } from "./token_input.js";

const find = (id) => document.getElementById(id);
const service = new Service();
const SLOW_MILLISECONDS = 1000; // after which the answer before is no longer shown
const BEGIN_AGAIN_MILLISECONDS = 2000;
const REPLACED = "The model was replaced since this page was loaded: load it again.";
let again = begin; // what is done once a key is given

function told(text) {
  find("problem").textContent = text;
  find("problem").hidden = text === "";
}

function fail(error) {
  if (error.status === 401) {
    const known = find("key").value !== "";
    find("key-note").textContent = known ? error.message : "This service answers with a key only. It is kept until you leave this page.";
    find("key-form").hidden = false;
  } else told(error.message);
}

function withInput(card, changed, fail) {
  const place = find("input");
  const { input } = card;
  if (input.image) return new ImageInput(place, input, card.class_names ?? [], changed, fail);
  if (input.text) return new TextInput(place, changed);
  if (!input.parts && TokenInput.takes(input)) return new TokenInput(place, input, changed);
  if (!input.parts && TableInput.takes(input)) return new TableInput(place, input, changed);
  const parts = input.parts?.map(({ name, shape }) => `${name} (${shape.join(" × ")})`).join(", ") ?? input.shape.join(" × ");
  place.append(element("p", {}, `This model's inputs have no form here: ${parts}. Ask it over the `, element("a", { href: "./docs" }, "API"), "."));
  for (const part of [".decided", "#answer"]) document.querySelector(part).hidden = true;
  return null;
}

async function start() {
  const [card, reference] = await Promise.all([service.card(), service.reference()]);
  told("");
  service.model = card;
  find("page").hidden = false;
  find("model").textContent = `${card.name}, version ${card.version}: ${card.task}`;
  document.title = `${card.name} – Demur playground`;
  const answer = new Answer(find("answer"), card, reference.scores);
  let asked = null;
  let slow = 0;
  const latest = new Latest((body) => service.predict(body), (found) => {
    clearTimeout(slow);
    told(found.digest === card.digest ? "" : REPLACED);
    answer.show(found);
    find("trial").dataset.answered = "";
  }, (error) => {
    answer.clear(error.message);
    if (error.status === 401) fail(error);
    // The new model may take other inputs, and refuse those of the old one's form; or the old one is no longer here.
    if (error.status === 422 || error.status === 404) service.card().then(({ digest }) => digest === card.digest || told(REPLACED)).catch(fail);
  }, (busy) => {
    find("trial").setAttribute("aria-busy", busy);
    clearTimeout(slow);
    if (busy) slow = setTimeout(() => answer.clear("The service has not answered yet."), SLOW_MILLISECONDS);
  });
  const send = (body) => {
    asked = body;
    if (body !== null) {
      latest.send(body);
      return;
    }
    latest.cancel();
    told("");
    answer.clear("What is entered is no input yet.");
  };
  withInput(card, send, (error) => {
    latest.cancel();
    answer.clear(error.message);
  });
  again = async () => send(asked);
  const live = new Live(find("live"), service, card, (error) => (error ? fail(error) : told("")));
  tabs(find("tabs"), (chosen) => live.show(chosen === "watch"));
}

function begin() {
  return start().catch((error) => {
    fail(error);
    if (AGAIN.has(error.status)) setTimeout(begin, BEGIN_AGAIN_MILLISECONDS);
  });
}

find("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!/^[\x20-\x7e]+$/.test(find("key").value)) {
    find("key-note").textContent = "A key has letters without accents, digits and signs only.";
    return;
  }
  find("key-form").hidden = true;
  find("pages").hidden = true; // a link sends no key
  service.key = find("key").value;
  again().then(() => find("try").focus());
});
begin();
