// The page at /: photos come in, words and captions go on the screen. The hash #N is photo N of the gallery.
(() => {
  const find = (selector) => document.querySelector(selector);
  const given = JSON.parse(find("#settings").textContent);
  const image = find(".photo img"), video = find(".photo video"), again = find(".again");
  const single = find(".single"), gallery = find(".gallery"), status = find(".status");
  const AT_ONCE = 2;
  const photos = [];
  let others = 0, stopped = null, opened = null, limits = {}, learned = null, run = new AbortController();

  // `retry` says whether the button to try again is of use.
  function say(message, { bad = false, retry = false } = {}) {
    status.textContent = message;
    status.classList.toggle("bad", bad);
    again.hidden = !retry;
  }

  const api = createApi(createTokenDialog(find("dialog.token")));

  // Captions, settings, decisions.

  const altText = createAltText(given.altText), another = new RegExp(given.language.another, "i");
  const settings = createSettings(find("dialog.settings"), {
    countOpen: () => photos.filter((photo) => !photo.decision).length,
    onChange: ({ again }) => {
      photos.forEach(word);
      if (again) captionAnew();
      else if (opened) open(opened);
      desk.update();
    },
  });
  const captioning = createCaptioning({ api, tell: say, options: () => settings.options(limits), limits: () => limits, ready: () => learned });
  const decisions = createDecisions({
    keeper: { entries: [], keep: () => {} },
    onChange: (change) => {
      const touched = desk.receive(change);
      for (const photo of touched) photo.saved = false;
      if (opened) review.tell(find(".told").textContent);
      if (change.undone && touched.length === 1 && opened && touched[0] !== opened) go(touched[0].number);
      showDecision();
      toggleTools();
    },
  });
  const desk = createDesk({
    photos, decisions, search: createSearch(given.forms),
    pictureOf: (photo) => photo.thumbnail ?? null, hrefOf: (photo) => `#${photo.number}`, coveredHeight: () => 0,
    onFilter: () => {
      if (desk.partial) say(`No photo has all of these words; ${desk.chosen.length} of ${photos.length} have some`);
      else report();
    },
    saves: { jsonl: saveRecords }, onSave: () => { for (const photo of photos) photo.saved = true; },
  });
  const review = createReview(find(".review"), { decisions, list: () => photos, onNext: () => move(1) });
  const view = createView(find(".view"), { onChoose: (text) => review.use(settings.style === "alt" ? altText(text) : text) });

  // The caption of a photo in the style that was asked for.
  function word(photo) {
    const text = photo.result?.caption ?? null;
    photo.caption = text !== null && settings.style === "alt" ? altText(text) : text;
    photo.confidence = photo.result?.confidence ?? null;
    photo.payload = photo.result ? makePayload(photo.result, photo.size, given) : null;
    photo.probability = photo.payload?.meanProbability ?? null;
    desk.learn(photo);
    photo.foreign = another.test(photo.result?.caption ?? "");
    document.body.dataset.language = languageOfCaptions();
  }

  // As `language_of_captions` in captioner/words/english.py.
  function languageOfCaptions() {
    const captioned = photos.filter((photo) => photo.result);
    const foreign = captioned.filter((photo) => photo.foreign);
    return foreign.length > given.language.few * captioned.length ? "" : "en";
  }

  // What is lost unless it is downloaded: decisions, and captions of more than one photo.
  const unsaved = () => photos.filter((photo) => !photo.saved && (photo.decision || (photos.length > 1 && photo.caption)));
  addEventListener("beforeunload", (event) => { if (unsaved().length) event.preventDefault(); });

  const clearing = find("dialog.clearing");
  function mayClear() {
    const count = unsaved().length;
    if (!count) return Promise.resolve(true);
    find(".clearing-lost").textContent = `${count} ${count === 1 ? "caption has" : "captions have"} not been downloaded.`;
    clearing.returnValue = "";
    clearing.showModal();
    return new Promise((resolve) => {
      clearing.onclose = () => {
        if (clearing.returnValue === "download") desk.save("csv");
        resolve(["download", "clear"].includes(clearing.returnValue));
      };
    });
  }

  // One photo.

  function show(photo, payload, options) {
    find(".view").setAttribute("aria-busy", String(!photo.result && !photo.error));
    view.show({ ...payload, url: photo.url }, options);
  }

  image.addEventListener("error", () => { image.hidden = true; });
  image.addEventListener("load", () => { image.hidden = !video.hidden; });

  // A photo that has no caption yet.
  function showEmpty(photo) {
    show(photo, makePayload({ caption: "", words: [] }, photo.size ?? { width: 4, height: 3 }, given, false));
    find(".detail").textContent = "";
  }

  function showDecision() {
    review.show();
    if (opened?.result) view.say(desk.saidOf(opened));
    showTitle(opened);
  }

  function showTitle(photo) {
    find(".view-title").textContent = photo && (desk.saidOf(photo) ?? photo.name);
  }

  function face(photo) {
    single.hidden = false;
    gallery.hidden = true;
    setBusy(true);
    image.hidden = false;
    video.hidden = true;
    find(".live-tools").hidden = true;
    find(".review").hidden = false;
    find(".titles").hidden = false;
    find(".file-name bdi").textContent = photo.name;
    image.src = photo.url;
    find(".downloads").hidden = !photo.result;
    review.open(photo);
    showTitle(photo);
  }

  async function captionOpened(photo, signal) {
    say(`Captioning ${photo.name}…`);
    await captioning.prepare(photo, signal);
    const start = (words) => ({ caption: words.map((word) => word.text).join(" "), words });
    if (opened === photo) showEmpty(photo);
    await captioning.aloud(photo, signal, (words) => {
      say(`Captioning ${photo.name}…`);
      if (opened === photo) show(photo, makePayload(start(words), photo.size, given, false), { word: words.length - 1 });
    });
    word(photo);
    if (opened !== photo) return;
    showResult(photo);
    say(`${photo.name}: ${photo.caption}${photo.size.unseen ? " (this browser cannot show the photo)" : ""}`);
  }

  function showResult(photo) {
    find(".downloads").hidden = false;
    show(photo, photo.payload);
    showDecision();
  }

  async function open(photo) {
    opened = photo;
    face(photo);
    toggleTools();
    if (photo.result) {
      showResult(photo);
      say("");
    } else showEmpty(photo);
    review.announce(photo.result && desk.saidOf(photo), find(".view-title"));
    if (photo.result) return;
    if (photo.error) say(photo.error, { bad: true, retry: photo.retry });
    else if (!photo.working) {
      const error = await work(photo, captionOpened);
      if (error && opened === photo) say(`${photo.name}: ${error.message}`, { bad: true, retry: true });
      if (error) stopped = error;
      else if (photos.length > 1) captionAll(); // what stopped the others has passed
    } else say(`Captioning ${photo.name}…`);
  }

  // Returns the error that concerns all photos, if one did.
  async function work(photo, how) {
    const { signal } = run;
    photo.working = true;
    photo.error = null;
    try {
      await how(photo, signal);
      photo.saved = false;
    } catch (error) {
      if (signal.aborted) return null;
      photo.retry = error.passing ?? false;
      if (error.general && photos.length > 1) return error;
      photo.error = error.message;
      photo.code = error.status === undefined ? "failed" : error.code.toLowerCase();
      if (opened === photo || photos.length === 1) say(`${photo.name}: ${error.message}`, { bad: true, retry: photo.retry });
    } finally {
      photo.working = false;
    }
    if (opened === photo) review.show();
    desk.learn(photo);
    return null;
  }

  async function captionQuietly(photo, signal) {
    await captioning.quietly(photo, signal);
    word(photo);
  }

  // Many photos: captioned in order, shown as a gallery.

  // How far the gallery is, and what stopped it.
  function report() {
    const done = photos.filter((one) => one.result).length;
    const failed = photos.filter((one) => one.error), retry = Boolean(stopped) || failed.some((one) => one.retry);
    const parts = [`${done} of ${photos.length} photos captioned`];
    if (failed.length) parts.push(`${failed.length} failed`);
    if (others) parts.push(`${others} other ${others === 1 ? "file" : "files"} left out`);
    say(`${stopped ? `${stopped.message} ` : ""}${parts.join(", ")}`, { bad: Boolean(stopped), retry });
  }

  // Everything that failed and may succeed now.
  function tryAgain() {
    if (document.activeElement === again) status.focus(); // the button goes
    for (const photo of photos) if (photo.retry) photo.error = null;
    if (!photos.length) return learned = learnModel();
    if (opened && !opened.result) return open(opened);
    return photos.length > 1 ? captionAll() : null;
  }

  let captioningAll = null;
  async function captionAll() {
    const { signal } = run;
    stopped = null;
    if (!opened) report();
    refresh();
    if (captioningAll === signal) return;
    captioningAll = signal;
    const next = () => photos.find((photo) => !photo.result && !photo.error && !photo.working);
    const worker = async () => {
      for (let photo = next(); photo && !signal.aborted && !stopped; photo = next()) {
        stopped = await work(photo, captionQuietly) ?? stopped;
        if (signal.aborted) return;
        if (stopped || !opened) report();
        else if (opened === photo) open(photo);
        refresh();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    if (captioningAll === signal) captioningAll = null;
    desk.learnChoices();
  }

  // Caption again with other settings what nobody has decided about.
  function captionAnew() {
    run.abort();
    run = new AbortController();
    captioningAll = stopped = null;
    for (const photo of photos)
      if (!photo.decision) {
        Object.assign(photo, { result: null, error: null, working: false });
        word(photo);
      }
    if (opened) open(opened);
    else captionAll();
  }

  function refresh() {
    if (gallery.hidden) return;
    const focused = find(".cards a:focus")?.hash.slice(1);
    desk.update();
    const photo = photos[focused - 1];
    if (photo && desk.chosen.includes(photo)) desk.focus(photo);
  }

  function showGallery() {
    const before = opened;
    opened = null;
    review.tell("");
    view.stop();
    single.hidden = true;
    gallery.hidden = false;
    find(".titles").hidden = true;
    setBusy(true);
    toggleTools();
    desk.learnChoices();
    refresh();
    report();
    if (desk.chosen.includes(before)) desk.focus(before);
  }

  // What brings photos fills the empty page; beside photos it is a menu.
  const addMenu = find(".add-menu");
  function setBusy(busy) {
    if (addMenu.hidden !== busy) return;
    if (busy) addMenu.querySelector(".menu-items").append(find(".pick-tools"));
    else find(".ways").after(find(".pick-tools"));
    addMenu.hidden = !busy;
    find(".pick").hidden = busy;
  }
  createMenu(addMenu);

  function toggleTools() {
    const many = photos.length > 1 && opened !== null, place = photos.indexOf(opened);
    for (const name of [".back", ".photo-before", ".photo-after"]) find(name).hidden = !many;
    find(".photo-before").disabled = place <= 0;
    find(".photo-after").disabled = place >= photos.length - 1;
    find(".clear").hidden = !photos.length;
  }

  function move(by) {
    const next = photos[photos.indexOf(opened) + by];
    if (next && opened) go(next.number);
  }

  // Unlike a new `location.hash`, which is followed later: keys that are pressed meanwhile are for the next photo.
  function go(place) {
    history.pushState(null, "", `#${place}`);
    followHash();
  }

  function followHash() {
    if (camera.running) return;
    const photo = photos[Number(location.hash.slice(1)) - 1];
    if (photos.length === 1) open(photos[0]);
    else if (photos.length) location.hash && photo ? open(photo) : showGallery();
  }

  // What comes in, and what goes.

  function clear() {
    run.abort();
    run = new AbortController();
    for (const photo of photos) {
      URL.revokeObjectURL(photo.url);
      if (photo.thumbnail) URL.revokeObjectURL(photo.thumbnail);
    }
    photos.length = others = 0;
    decisions.forget();
    review.tell("");
    opened = stopped = captioningAll = null;
    find(".query").value = "";
    single.hidden = gallery.hidden = true;
    find(".titles").hidden = true;
    setBusy(false);
    view.stop();
    desk.update();
    say("");
    toggleTools();
    if (location.hash) history.replaceState(null, "", location.pathname);
  }

  // A name that no photo on the page has.
  function freeName(name) {
    const taken = new Set(photos.map((photo) => photo.file)), [, start, end] = name.match(/^(.*?)(\.[^./]*)?$/s);
    for (let number = 1; ; number++) {
      const free = number === 1 ? name : `${start} (${number})${end ?? ""}`;
      if (!taken.has(free)) return free;
    }
  }

  function receive(found) {
    const images = found.filter(({ file }) => isImage(file));
    if (!images.length)
      return say(found.length ? "None of these files is an image." : "There are no files in this.", { bad: true });
    stopCamera();
    others += found.length - images.length;
    for (const { file: blob, name } of images) {
      const file = freeName(name || "photo");
      const photo = { blob, file, name: file, number: photos.length + 1, url: URL.createObjectURL(blob), error: null, result: null };
      photos.push(photo);
      word(photo);
    }
    if (images.length > 1) {
      if (location.hash) history.replaceState(null, "", location.pathname);
      showGallery();
      return captionAll();
    }
    if (photos.length > 1) history.replaceState(null, "", `#${photos.length}`);
    return open(photos.at(-1));
  }

  find(".clear").addEventListener("click", async () => {
    if (!await mayClear()) return;
    stopCamera();
    clear();
    find(".files").focus();
  });
  takePhotosIn({ receive, fail: (message) => say(message, { bad: true }) });

  // The camera.

  const held = () => find(".sentence:hover") && matchMedia("(hover: hover)").matches || find(".sentence :focus-visible");
  const camera = createCamera(video, {
    captionFrame: (frame, signal) => api.caption(frame, { attention: true, beam_size: 1 }, { signal, tell: say }),
    show: (caption, size) => { if (!held()) { say(""); view.show(makePayload(caption, size, given)); } },
    fail: (error) => { stopCamera(); followHash(); say(error.message, { bad: true }); },
    rate: (pace) => { find(".rate").textContent = `${pace.toFixed(1)} captions a second`; },
  });

  async function startCamera(start) {
    try {
      const cameras = await start();
      opened = null;
      single.hidden = false;
      gallery.hidden = true;
      setBusy(true);
      image.hidden = true;
      video.hidden = false;
      find(".downloads").hidden = find(".review").hidden = true;
      find(".live-tools").hidden = false;
      find(".switch").hidden = cameras < 2;
      find(".titles").hidden = true;
      find(".detail").setAttribute("aria-live", "off"); // it changes several times a second
      toggleTools();
    } catch (error) {
      stopCamera();
      followHash();
      say(error.name === "NotAllowedError" ? "The browser was not allowed to use the camera."
        : error.name === "NotFoundError" ? "There is no camera." : error.message, { bad: true });
    }
  }

  function stopCamera() {
    if (video.hidden) return;
    camera.end();
    video.hidden = true;
    single.hidden = true;
    find(".detail").setAttribute("aria-live", "polite");
    setBusy(photos.length > 0);
    view.stop();
    toggleTools();
    (addMenu.hidden ? find(".camera") : addMenu.querySelector("summary")).focus();
  }

  find(".camera").addEventListener("click", () => startCamera(() => camera.start()));
  find(".switch").addEventListener("click", () => startCamera(() => camera.switch()));
  find(".end").addEventListener("click", () => { stopCamera(); say(""); followHash(); });
  find(".take").addEventListener("click", async () => {
    const frame = await camera.grab(Infinity);
    stopCamera();
    if (frame) await receive([{ file: new File([frame.blob], "camera.jpg", { type: "image/jpeg" }), name: "camera.jpg" }]);
  });

  // Buttons and keys.

  document.querySelectorAll("[data-format]").forEach((button) => button.addEventListener("click", () =>
    download(button.dataset.format, image, opened, desk.saidOf(opened)).then(() => { if (opened) opened.saved = true; })
      .catch((error) => say(error.message, { bad: true }))));
  function saveRecords() {
    const lines = photos.filter((photo) => photo.result || photo.error).map((photo) => JSON.stringify(photo.result
      ? { image: photo.file, ...photo.result } : { image: photo.file, error: { code: photo.code, message: photo.error } }));
    saveFile(`${lines.join("\n")}\n`, "captions.jsonl", "application/jsonl");
  }
  find(".settings-open").addEventListener("click", settings.open);
  find(".back").addEventListener("click", () => go(""));
  find(".photo-before").addEventListener("click", () => move(-1));
  find(".photo-after").addEventListener("click", () => move(1));
  addEventListener("hashchange", followHash);
  document.addEventListener("keydown", (event) => {
    if (find("dialog[open]")) return;
    if (single.hidden) return void desk.handleKey(event);
    if (event.key === "PageUp" || event.key === "PageDown") {
      if (photos.length > 1) event.preventDefault();
      move(event.key === "PageUp" ? -1 : 1);
    } else if (camera.running || !(review.handleKey(event) || desk.handleKey(event))) view.handleKey(event);
  });
  createThemeButtons(document.querySelectorAll(".theme"));
  createKeyList(find(".key-list"), document.querySelectorAll(".keys-open"));

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

  again.addEventListener("click", tryAgain);
  addEventListener("online", () => again.hidden || tryAgain());
  toggleTools();
  learned = learnModel();
})();
