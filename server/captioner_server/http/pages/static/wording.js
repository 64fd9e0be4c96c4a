// What is said of photos: the caption of the model in the style that was asked for, and the language of all captions.
function createWording({ photos, given, settings, learn }) {
  const altText = createAltText(given.altText), another = new RegExp(given.language.another, "i");
  const inStyle = (text) => (text !== null && settings.style === "alt" ? altText(text) : text);

  // To be called when the result of a photo or the style has changed.
  function word(photo) {
    photo.caption = inStyle(photo.result?.caption ?? null);
    photo.confidence = photo.result?.confidence ?? null;
    photo.payload = photo.result ? makePayload(photo.result, photo.size, given) : null;
    photo.probability = photo.payload?.meanProbability ?? null;
    learn(photo);
    photo.foreign = another.test(photo.result?.caption ?? "");
    document.body.dataset.language = languageOfCaptions();
  }

  // As `language_of_captions` in captioner/words/english.py.
  function languageOfCaptions() {
    const captioned = photos.filter((photo) => photo.result);
    const foreign = captioned.filter((photo) => photo.foreign);
    return foreign.length > given.language.few * captioned.length ? "" : "en";
  }

  return { word, inStyle };
}
