// The page at /: photos come in, words and captions go on the screen. The hash #N is photo N of the gallery.
(() => {
  const find = (selector) => document.querySelector(selector);
  const given = JSON.parse(find("#settings").textContent);
  const again = find(".again"), status = find(".status"), addMenu = find(".add-menu");
  // What the page shows: "empty", "single", "gallery" or "live"; the photo that is open; files that were left out.
  const page = { photos: [], part: "empty", opened: null, others: 0 };
  const { photos } = page;
  let limits = {}, learned = null;

  // `retry` says whether the button to try again is of use.
  function say(message, { bad = false, retry = false } = {}) {
    status.textContent = message;
    status.classList.toggle("bad", bad);
    again.hidden = !retry;
  }

  // The parts of the page.

  const api = createApi(createTokenDialog(find("dialog.token")));
  const settings = createSettings(find("dialog.settings"), {
    countOpen: () => photos.filter((photo) => !photo.decision).length,
    onChange: ({ again }) => {
      photos.forEach(wording.word);
      if (again) captionAnew();
      else if (page.opened) open(page.opened);
      desk.update();
    },
  });
  const wording = createWording({ photos, given, settings, learn: (photo) => desk.learn(photo) });
  const captioning = createCaptioning({ api, tell: say, options: () => settings.options(limits), limits: () => limits, ready: () => learned });
  const queue = createQueue({
    page, say,
    quietly: async (photo, signal) => {
      await captioning.quietly(photo, signal);
      wording.word(photo);
    },
    onDone: (photo) => {
      if (page.opened === photo) review.show();
      desk.learn(photo);
    },
    onProgress: (photo) => {
      if (queue.stopped || !page.opened) queue.report();
      else if (page.opened === photo) open(photo);
      refresh();
    },
    onEnd: () => desk.learnChoices(),
  });
  const album = createAlbum({ photos, clearing: find("dialog.clearing"), onNew: wording.word, download: () => desk.save("csv") });
  const decisions = createDecisions({
    keeper: { entries: [], keep: () => {} },
    onChange: (change) => {
      const touched = desk.receive(change);
      for (const photo of touched) photo.saved = false;
      if (page.opened) review.tell(find(".told").textContent);
      if (change.undone && touched.length === 1 && page.opened && touched[0] !== page.opened) go(touched[0].number);
      single.showDecision();
      toggleTools();
    },
  });
  const desk = createDesk({
    photos, decisions, search: createSearch(given.forms),
    pictureOf: (photo) => photo.thumbnail ?? null, hrefOf: (photo) => `#${photo.number}`, coveredHeight: () => 0,
    onFilter: () => {
      if (desk.partial) say(`No photo has all of these words; ${desk.chosen.length} of ${photos.length} have some`);
      else queue.report();
    },
    saves: { jsonl: () => saveRecords(photos) }, onSave: () => { for (const photo of photos) photo.saved = true; },
  });
  const review = createReview(find(".review"), { decisions, list: () => photos, onNext: () => move(1) });
  const single = createSingle({
    page, given, captioning, review, say, saidOf: desk.saidOf, word: wording.word,
    onChoose: (text) => review.use(wording.inStyle(text)),
  });
  const live = createLive({ page, given, api, say, turnTo, receive, view: single.view, leave: followHash });

  // What is shown.

  function turnTo(part) {
    page.part = part;
    const isLive = part === "live";
    find(".single").hidden = part !== "single" && !isLive;
    find(".gallery").hidden = part !== "gallery";
    find(".titles").hidden = part !== "single";
    find(".live-tools").hidden = find(".photo video").hidden = !isLive;
    find(".review").hidden = isLive;
    if (isLive) find(".photo img").hidden = find(".downloads").hidden = true;
    find(".detail").setAttribute("aria-live", isLive ? "off" : "polite"); // it changes several times a second
    placePick(part === "empty");
    toggleTools();
  }

  // What brings photos fills the empty page; beside photos it is a menu.
  function placePick(empty) {
    if (addMenu.hidden === empty) return;
    if (empty) find(".ways").after(find(".pick-tools"));
    else addMenu.querySelector(".menu-items").append(find(".pick-tools"));
    addMenu.hidden = empty;
    find(".pick").hidden = !empty;
  }

  function toggleTools() {
    const many = photos.length > 1 && page.opened !== null, place = photos.indexOf(page.opened);
    for (const name of [".back", ".photo-before", ".photo-after"]) find(name).hidden = !many;
    find(".photo-before").disabled = place <= 0;
    find(".photo-after").disabled = place >= photos.length - 1;
    find(".clear").hidden = !photos.length;
  }

  async function open(photo) {
    page.opened = photo;
    turnTo("single");
    single.open(photo);
    if (photo.result) say("");
    else if (photo.error) say(photo.error, { bad: true, retry: photo.retry });
    else if (photo.working) say(`Captioning ${photo.name}…`);
    else await queue.one(photo, single.caption);
  }

  function showGallery() {
    const before = page.opened;
    page.opened = null;
    review.tell("");
    single.view.stop();
    turnTo("gallery");
    desk.learnChoices();
    refresh();
    queue.report();
    if (desk.chosen.includes(before)) desk.focus(before);
  }

  function refresh() {
    if (page.part !== "gallery") return;
    const focused = find(".cards a:focus")?.hash.slice(1);
    desk.update();
    const photo = photos[focused - 1];
    if (photo && desk.chosen.includes(photo)) desk.focus(photo);
  }

  function move(by) {
    const next = photos[photos.indexOf(page.opened) + by];
    if (next && page.opened) go(next.number);
  }

  // Unlike a new `location.hash`, which is followed later: keys that are pressed meanwhile are for the next photo.
  function go(place) {
    history.pushState(null, "", `#${place}`);
    followHash();
  }

  function followHash() {
    if (page.part === "live") return;
    const photo = photos[Number(location.hash.slice(1)) - 1];
    if (photos.length === 1) open(photos[0]);
    else if (photos.length) location.hash && photo ? open(photo) : showGallery();
  }

  // What comes in, what goes, and what is done again.

  function receive(found) {
    const images = found.filter(({ file }) => isImage(file));
    if (!images.length)
      return say(found.length ? "None of these files is an image." : "There are no files in this.", { bad: true });
    live.stop();
    page.others += found.length - images.length;
    album.add(images);
    if (images.length > 1) {
      if (location.hash) history.replaceState(null, "", location.pathname);
      showGallery();
      return queue.all();
    }
    if (photos.length > 1) history.replaceState(null, "", `#${photos.length}`);
    return open(photos.at(-1));
  }

  async function clear() {
    if (!await album.mayEmpty()) return;
    live.stop();
    queue.stop();
    album.empty();
    decisions.forget();
    review.tell("");
    page.others = 0;
    page.opened = null;
    find(".query").value = "";
    single.view.stop();
    turnTo("empty");
    desk.update();
    say("");
    if (location.hash) history.replaceState(null, "", location.pathname);
    find(".files").focus();
  }

  // Caption again with other settings what nobody has decided about.
  function captionAnew() {
    queue.stop();
    for (const photo of photos)
      if (!photo.decision) {
        Object.assign(photo, { result: null, error: null, working: false });
        wording.word(photo);
      }
    if (page.opened) open(page.opened);
    else queue.all();
  }

  // Everything that failed and may succeed now.
  function tryAgain() {
    if (document.activeElement === again) status.focus(); // the button goes
    for (const photo of photos) if (photo.retry) photo.error = null;
    if (!photos.length) return learned = learnModel();
    if (page.opened && !page.opened.result) return open(page.opened);
    return photos.length > 1 ? queue.all() : null;
  }

  async function learnModel() {
    try {
      limits = await api.model();
      settings.learn(limits);
      find(".model").textContent = `${limits.model} on ${limits.device}`;
      if (!again.hidden) say("");
    } catch (error) {
      say(error.message, { bad: true, retry: error.passing });
    }
  }

  // Buttons and keys.

  takePhotosIn({ receive, fail: (message) => say(message, { bad: true }) });
  find(".clear").addEventListener("click", clear);
  find(".settings-open").addEventListener("click", settings.open);
  find(".back").addEventListener("click", () => go(""));
  find(".photo-before").addEventListener("click", () => move(-1));
  find(".photo-after").addEventListener("click", () => move(1));
  addEventListener("hashchange", followHash);
  document.addEventListener("keydown", (event) => {
    if (find("dialog[open]")) return;
    if (page.part === "empty" || page.part === "gallery") return void desk.handleKey(event);
    if (event.key === "PageUp" || event.key === "PageDown") {
      if (photos.length > 1) event.preventDefault();
      move(event.key === "PageUp" ? -1 : 1);
    } else if (page.part === "live" || !(review.handleKey(event) || desk.handleKey(event))) single.view.handleKey(event);
  });
  again.addEventListener("click", tryAgain);
  addEventListener("online", () => again.hidden || tryAgain());
  createMenu(addMenu);
  createThemeButtons(document.querySelectorAll(".theme"));
  createKeyList(find(".key-list"), document.querySelectorAll(".keys-open"));
  toggleTools();
  learned = learnModel();
})();
