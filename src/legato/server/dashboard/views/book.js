// @ts-check
// A document made up for the demonstration: plain sentences, different each time, so that no cache remembers it.

const PEOPLE = ["Ada", "Boris", "Clara", "Dario", "Elena", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Karin", "Leo"];
const PLACES = [
  "harbour",
  "library",
  "old mill",
  "market",
  "station",
  "garden",
  "lighthouse",
  "school",
  "bakery",
  "bridge",
];
const THINGS = [
  "letter",
  "lantern",
  "map",
  "clock",
  "violin",
  "basket",
  "key",
  "coat",
  "kettle",
  "ladder",
  "book",
  "boat",
];
const DEEDS = ["carried", "found", "repaired", "painted", "lost", "sold", "borrowed", "hid", "returned", "cleaned"];
const TIMES = ["In the morning", "At noon", "Before the rain", "Late in the evening", "On Sunday", "A week later"];
const ENDINGS = [
  "nobody asked why",
  "the wind had turned by then",
  "it was colder than expected",
  "the others were already waiting",
  "that changed nothing for the moment",
  "everybody remembered it for years",
];
/** Tokens of one word of such sentences, about; vocabularies differ. */
const TOKENS_A_WORD = 1.25;

/**
 * @param {number} tokens How long it shall be, about.
 * @param {() => number} [random] From 0 to below 1.
 * @returns {string} It begins with a number, so that already its first words are new.
 */
export function makeBook(tokens, random = Math.random) {
  const pick = (/** @type {string[]} */ list) => list[Math.floor(random() * list.length)];
  const sentences = [`Report number ${Math.floor(random() * 1e9)}, told by ${pick(PEOPLE)}.`];
  let words = 6;
  while (words * TOKENS_A_WORD < tokens) {
    const deed = `${pick(PEOPLE)} ${pick(DEEDS)} a ${pick(THINGS)} near the ${pick(PLACES)}`;
    const sentence = `${pick(TIMES)} ${deed}, and ${pick(ENDINGS)}.`;
    words += sentence.split(" ").length;
    sentences.push(sentence);
  }
  return sentences.join(" ");
}
