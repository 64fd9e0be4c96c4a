// One photo on the page: what of it is shown while it waits, while its words come, and when it has its caption. `page` is
// that of main.js.
function createSingle({ page, given, captioning, review, saidOf, word, onChoose, say }) {
  const find = (selector) => document.querySelector(selector);
  const image = find(".photo img"), view = createView(find(".view"), { onChoose });

  function show(photo, payload, options) {
    find(".view").setAttribute("aria-busy", String(!photo.result && !photo.error));
    view.show({ ...payload, url: photo.url }, options);
  }

  image.addEventListener("error", () => { image.hidden = true; });
  image.addEventListener("load", () => { image.hidden = page.part === "live"; });

  // A photo that has no caption yet.
  function showEmpty(photo) {
    show(photo, makePayload({ caption: "", words: [] }, photo.size ?? { width: 4, height: 3 }, given, false));
    find(".detail").textContent = "";
  }

  function showResult(photo) {
    find(".downloads").hidden = false;
    show(photo, photo.payload);
    showDecision();
  }

  function showTitle() {
    const photo = page.opened;
    find(".view-title").textContent = photo && (saidOf(photo) ?? photo.name);
  }

  function showDecision() {
    review.show();
    if (page.opened?.result) view.say(saidOf(page.opened));
    showTitle();
  }

  function open(photo) {
    image.hidden = false;
    find(".file-name bdi").textContent = photo.name;
    image.src = photo.url;
    find(".downloads").hidden = !photo.result;
    review.open(photo);
    showTitle();
    if (photo.result) showResult(photo);
    else showEmpty(photo);
    review.announce(photo.result && saidOf(photo), find(".view-title"));
  }

  async function caption(photo, signal) {
    say(`Captioning ${photo.name}…`);
    await captioning.prepare(photo, signal);
    const start = (words) => ({ caption: words.map((one) => one.text).join(" "), words });
    if (page.opened === photo) showEmpty(photo);
    await captioning.aloud(photo, signal, (words) => {
      say(`Captioning ${photo.name}…`);
      if (page.opened === photo) show(photo, makePayload(start(words), photo.size, given, false), { word: words.length - 1 });
    });
    word(photo);
    if (page.opened !== photo) return;
    showResult(photo);
    say(`${photo.name}: ${photo.caption}${photo.size.unseen ? " (this browser cannot show the photo)" : ""}`);
  }

  document.querySelectorAll("[data-format]").forEach((button) => button.addEventListener("click", () => {
    const photo = page.opened;
    download(button.dataset.format, image, photo, saidOf(photo)).then(() => { photo.saved = true; })
      .catch((error) => say(error.message, { bad: true }));
  }));

  return { open, caption, showDecision, view };
}
