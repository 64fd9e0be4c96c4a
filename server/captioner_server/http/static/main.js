// The page at /: photos come in, words and captions go on the screen. The hash #N is photo N of the gallery.
(() => {
  const find = (selector) => document.querySelector(selector);
  const settings = JSON.parse(find("#settings").textContent);
  const image = find(".photo img"), video = find(".photo video");
  const single = find(".single"), gallery = find(".gallery"), status = find(".status"), query = find(".query");
  const again = find(".again");
  const view = createView(find(".view"));
  const OPTIONS = { attention: true, alternatives: 3 }, AT_ONCE = 2, THUMBNAIL = 400;
  let photos = [], others = 0, stopped = null, chosen = [], opened = null, limits = {}, run = new AbortController();

  // `retry` says whether the button to try again is of use.
  function say(message, { bad = false, retry = false } = {}) {
    status.textContent = message;
    status.classList.toggle("bad", bad);
    again.hidden = !retry;
  }

  // The token.

  const dialog = find("dialog.token"), field = find(".token-field");
  const askForToken = (wrong) => new Promise((resolve) => { // null if none is given
    field.value = dialog.returnValue = "";
    find(".token-problem").textContent = wrong ? "That token is not one of this server's." : "";
    if (!dialog.open) dialog.showModal();
    dialog.onclose = () => resolve((dialog.returnValue === "ok" && field.value.trim()) || null);
  });
  find(".token-cancel").addEventListener("click", () => dialog.close("cancel"));
  const api = createApi(askForToken);

  // New photos replace those on the page. Captions of a gallery that were not downloaded would be lost.

  const replacing = find("dialog.replacing");
  const unsaved = () => (photos.length > 1 ? photos.filter((photo) => photo.caption && !photo.saved) : []);

  function mayReplace() {
    const count = unsaved().length;
    if (!count) return Promise.resolve(true);
    find(".replacing-lost").textContent = `${count} ${count === 1 ? "caption has" : "captions have"} not been downloaded.`;
    replacing.returnValue = "";
    if (!replacing.open) replacing.showModal();
    return new Promise((resolve) => { // of several questions, the last is answered
      replacing.onclose = () => {
        if (replacing.returnValue === "download") saveCaptions();
        resolve(["download", "replace"].includes(replacing.returnValue));
      };
    });
  }
  addEventListener("beforeunload", (event) => { if (unsaved().length) event.preventDefault(); });

  // One photo: greedy words as they come, then the searched caption.

  async function measure(url) {
    const probe = new Image();
    probe.src = url;
    await probe.decode().catch(() => {}); // a format that only the server reads
    return probe.naturalWidth ? { width: probe.naturalWidth, height: probe.naturalHeight } : { width: 4, height: 3, unseen: true };
  }

  function show(photo, payload, options) {
    find(".view").setAttribute("aria-busy", String(!photo.caption));
    view.show({ ...payload, url: photo.url }, options);
  }

  function face(photo) {
    single.hidden = false;
    gallery.hidden = true;
    document.body.classList.add("busy");
    image.hidden = false;
    video.hidden = true;
    find(".live-tools").hidden = true;
    find(".file-name").hidden = false;
    find(".file-name bdi").textContent = photo.name;
    image.src = photo.url;
    find(".downloads").hidden = !photo.caption;
  }

  async function captionOpened(photo, signal) {
    say(`Captioning ${photo.name}…`);
    photo.size = await measure(photo.url);
    const words = [];
    show(photo, makePayload({ caption: "", words }, photo.size, settings, false));
    find(".detail").textContent = "";
    const small = await shrink(photo.file, limits.max_image_bytes ?? Infinity);
    for await (const [kind, data] of api.stream(small, OPTIONS, { signal, tell: say })) {
      if (!words.length) say(`Captioning ${photo.name}…`);
      if (kind === "word") words.push(data);
      else photo.caption = data;
      if (opened !== photo) continue;
      const caption = photo.caption ?? { caption: words.map((word) => word.text).join(" "), words };
      photo.payload = makePayload(caption, photo.size, settings, Boolean(photo.caption));
      show(photo, photo.payload, photo.caption ? {} : { word: words.length - 1 });
    }
    if (opened !== photo) return;
    find(".downloads").hidden = false;
    say(`${photo.name}: ${photo.caption.caption}${photo.size.unseen ? " (this browser cannot show the photo)" : ""}`);
  }

  async function open(photo) {
    opened = photo;
    face(photo);
    toggleMoves();
    if (photo.caption) {
      photo.payload ??= makePayload(photo.caption, photo.size, settings);
      show(photo, photo.payload);
      say("");
    } else if (photo.error) {
      view.show({ ...makePayload({ caption: "", words: [] }, { width: 4, height: 3 }, settings, false), url: photo.url });
      say(photo.error, { bad: true, retry: photo.retry });
    } else if (!photo.working) {
      const error = await work(photo, captionOpened);
      if (error && opened === photo) say(`${photo.name}: ${error.message}`, { bad: true, retry: true });
      if (error) stopped = error;
      else if (stopped) captionAll(); // what stopped the others has passed
    } else say(`Captioning ${photo.name}…`);
  }

  // Returns the error that concerns all photos, if one did.
  async function work(photo, how) {
    const { signal } = run;
    photo.working = true;
    photo.error = null;
    try {
      await how(photo, signal);
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
    photo.haystack = fold(`${photo.caption?.caption ?? ""} ${photo.name}`);
    return null;
  }

  // Many photos: captioned in order, shown as a gallery.

  async function captionQuietly(photo, signal) {
    photo.size = await measure(photo.url);
    const small = await shrink(photo.file, limits.max_image_bytes ?? Infinity);
    photo.caption = await api.caption(small, OPTIONS, { signal, tell: say });
    const bitmap = await createImageBitmap(photo.file).catch(() => null);
    if (!bitmap) return;
    const made = drawPhoto(bitmap, bitmap, THUMBNAIL);
    bitmap.close();
    photo.thumbnail = await new Promise((resolve) => made.toBlob((blob) => resolve(blob && URL.createObjectURL(blob)), "image/jpeg", 0.8));
  }

  // How far the gallery is, and what stopped it.
  function report() {
    const done = photos.filter((one) => one.caption).length;
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
    if (!photos.length) return learnModel();
    if (opened && !opened.caption) open(opened);
    return photos.length > 1 ? captionAll() : null;
  }

  async function captionAll() {
    const { signal } = run, all = photos;
    const next = all.values();
    stopped = null;
    if (!opened) report();
    refresh();
    const worker = async () => {
      for (const photo of next) {
        if (signal.aborted || stopped) return;
        if (!photo.caption && !photo.error && !photo.working) stopped = await work(photo, captionQuietly) ?? stopped;
        if (signal.aborted) return;
        if (stopped || !opened) report();
        else if (opened === photo) open(photo);
        refresh();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  }

  function makeCard(photo) {
    const make = (name, className, ...content) => {
      const made = document.createElement(name);
      made.className = className;
      made.append(...content);
      return made;
    };
    const card = make("a", `card${photo.error ? " failed" : photo.caption ? "" : " waiting"}`);
    card.href = `#${photo.number}`;
    const picture = make("span", "picture");
    if (photo.thumbnail) {
      const small = new Image();
      small.alt = "";
      small.src = photo.thumbnail;
      picture.append(small);
    }
    const says = make("span", "says", ...markTerms(photo.error ?? photo.caption?.caption ?? "Waiting…", query.value));
    const meta = make("span", "meta", make("span", "name", make("bdi", "", photo.name)));
    if (photo.caption?.confidence !== undefined) {
      const gauge = make("span", "gauge");
      gauge.style.setProperty("--share", photo.caption.confidence);
      meta.append(gauge, make("span", "sure", `${Math.round(photo.caption.confidence * 100)}%`));
    }
    card.append(picture, make("span", "lines", says, meta));
    return card;
  }

  const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize), LINES_REM = 6.6;
  find(".cards").style.setProperty("--lines-height", `${LINES_REM}rem`);
  const list = createList(find(".cards"), {
    makeCard, minCardWidth: () => (innerWidth < 40 * rem() ? 9.25 : 15) * rem(), pictureAspect: 0.75,
    linesHeight: () => LINES_REM * rem(), coveredHeight: () => 0, gap: 12,
  });

  function refresh() {
    if (gallery.hidden) return;
    const focused = find(".cards a:focus")?.hash.slice(1);
    chosen = selectPhotos(photos, { query: query.value, order: "folder", show: "all" });
    list.show(chosen);
    find(".nothing").hidden = chosen.length > 0;
    const place = chosen.findIndex((photo) => String(photo.number) === focused);
    if (place >= 0) list.focus(place);
  }

  function showGallery() {
    const before = opened;
    opened = null;
    view.stop();
    single.hidden = true;
    gallery.hidden = false;
    find(".file-name").hidden = true;
    document.body.classList.add("busy");
    toggleMoves();
    refresh();
    report();
    if (before) list.focus(chosen.indexOf(before));
  }

  function toggleMoves() {
    const many = photos.length > 1 && opened !== null, place = photos.indexOf(opened);
    for (const name of [".back", ".photo-before", ".photo-after"]) find(name).hidden = !many;
    find(".photo-before").disabled = place <= 0;
    find(".photo-after").disabled = place >= photos.length - 1;
  }

  function move(by) {
    const next = photos[photos.indexOf(opened) + by];
    if (next) location.hash = next.number;
  }

  function followHash() {
    if (photos.length < 2 || camera.running) return;
    const photo = photos[Number(location.hash.slice(1)) - 1];
    if (location.hash && photo) open(photo);
    else showGallery();
  }

  // What comes in.

  function reset() {
    camera.end();
    run.abort();
    run = new AbortController();
    for (const photo of photos) {
      URL.revokeObjectURL(photo.url);
      if (photo.thumbnail) URL.revokeObjectURL(photo.thumbnail);
    }
    photos = [];
    opened = stopped = null;
    query.value = "";
    if (location.hash) history.replaceState(null, "", location.pathname);
  }

  async function receive(found) {
    const images = found.filter(({ file }) => isImage(file));
    if (!images.length)
      return say(found.length ? "None of these files is an image." : "There are no files in this.", { bad: true });
    if (!await mayReplace()) return;
    reset();
    others = found.length - images.length;
    photos = images.map(({ file, name }, at) => ({
      file, name: name || "photo", number: at + 1, url: URL.createObjectURL(file), error: null, haystack: fold(name),
    }));
    if (photos.length === 1) return open(photos[0]);
    showGallery();
    return captionAll();
  }

  for (const input of document.querySelectorAll("input[type=file]"))
    input.addEventListener("change", async () => {
      const found = named(input.files);
      input.value = "";
      if (!found.length) return;
      await receive(found);
    });
  addEventListener("paste", (event) => { if (event.clipboardData.files.length) receive(named(event.clipboardData.files)); });
  addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  addEventListener("drop", async (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    const found = await droppedFiles(event.dataTransfer).catch((error) => {
      say(`What was dropped cannot be read: ${error.message}`, { bad: true });
    });
    if (found) await receive(found);
  });

  // The camera.

  const held = () => find(".sentence:hover") && matchMedia("(hover: hover)").matches || find(".sentence :focus-visible");
  const camera = createCamera(video, {
    captionFrame: (frame, signal) => api.caption(frame, { attention: true, beam_size: 1 }, { signal, tell: say }),
    show: (caption, size) => { if (!held()) { say(""); view.show(makePayload(caption, size, settings)); } },
    fail: (error) => { stopCamera(); say(error.message, { bad: true }); },
    rate: (pace) => { find(".rate").textContent = `${pace.toFixed(1)} captions a second`; },
  });

  async function startCamera(start) {
    try {
      const cameras = await start();
      single.hidden = false;
      gallery.hidden = true;
      document.body.classList.add("busy");
      image.hidden = true;
      video.hidden = false;
      find(".downloads").hidden = true;
      find(".live-tools").hidden = false;
      find(".switch").hidden = cameras < 2;
      find(".file-name").hidden = true;
      find(".detail").setAttribute("aria-live", "off"); // it changes several times a second
      toggleMoves();
    } catch (error) {
      stopCamera();
      say(error.name === "NotAllowedError" ? "The browser was not allowed to use the camera."
        : error.name === "NotFoundError" ? "There is no camera." : error.message, { bad: true });
    }
  }

  function stopCamera() {
    camera.end();
    video.hidden = true;
    single.hidden = true;
    find(".detail").setAttribute("aria-live", "polite");
    document.body.classList.remove("busy");
    view.stop();
    find(".camera").focus();
  }

  find(".camera").addEventListener("click", async () => {
    if (!await mayReplace()) return;
    reset();
    await startCamera(() => camera.start());
  });
  find(".switch").addEventListener("click", () => startCamera(() => camera.switch()));
  find(".end").addEventListener("click", () => { stopCamera(); say(""); });
  find(".take").addEventListener("click", async () => {
    const frame = await camera.grab(Infinity);
    stopCamera();
    if (frame) await receive([{ file: new File([frame.blob], "camera.jpg", { type: "image/jpeg" }), name: "camera.jpg" }]);
  });

  // Buttons and keys.

  document.querySelectorAll("[data-format]").forEach((button) => button.addEventListener("click", () =>
    download(button.dataset.format, image, opened).then(() => { if (opened) opened.saved = true; })
      .catch((error) => say(error.message, { bad: true }))));
  function saveCaptions() {
    const lines = photos.filter((photo) => photo.caption || photo.error).map((photo) => JSON.stringify(photo.caption
      ? { image: photo.name, ...photo.caption } : { image: photo.name, error: { code: photo.code, message: photo.error } }));
    saveFile(`${lines.join("\n")}\n`, "captions.jsonl", "application/jsonl");
    for (const photo of photos) photo.saved = Boolean(photo.caption);
  }
  find(".captions-file").addEventListener("click", saveCaptions);
  query.addEventListener("input", refresh);
  find(".back").addEventListener("click", () => { location.hash = ""; });
  find(".photo-before").addEventListener("click", () => move(-1));
  find(".photo-after").addEventListener("click", () => move(1));
  addEventListener("hashchange", followHash);
  document.addEventListener("keydown", (event) => {
    if (find("dialog[open]") || single.hidden) return;
    if (event.key === "PageUp" || event.key === "PageDown") {
      if (photos.length > 1) event.preventDefault();
      move(event.key === "PageUp" ? -1 : 1);
    } else view.handleKey(event);
  });
  createThemeButtons(document.querySelectorAll(".theme"));

  async function learnModel() {
    try {
      limits = await api.model();
      find(".model").textContent = `${limits.model} on ${limits.device}`;
      if (!again.hidden) say("");
    } catch (error) {
      say(error.message, { bad: true, retry: error.passing });
    }
  }

  again.addEventListener("click", tryAgain);
  addEventListener("online", () => again.hidden || tryAgain());
  learnModel();
})();
