// The gallery: what is shown follows from the hash, so that a link shows what its sender saw.
const captionerGallery = (() => {
  const find = (selector) => document.querySelector(selector);
  const { files, saves } = document.body.dataset;
  const count = find(".count"), viewer = find(".viewer"), query = find(".query");
  const photos = [], byKey = new Map(), views = new Map();
  const FIRST = { order: "folder", show: "all" }, IN_HASH = { query: "q", order: "sort", show: "show", sureness: "sure", folder: "folder", keyword: "word" };
  let opened = null;

  const keeper = saves ? keepOnServer(saves, tellSaving) : keepInBrowser(`captioner-review ${location.pathname}`, tellSaving);
  const decisions = createDecisions({
    keeper,
    onChange: (change) => {
      const touched = desk.receive(change);
      if (!viewer.open) return;
      review.tell(find(".told").textContent);
      if (change.undone && touched.length === 1 && touched[0] !== opened) show(touched[0]);
      showDecision();
    },
  });
  const search = createSearch(JSON.parse(find("#forms").textContent));
  const desk = createDesk({
    photos, decisions, search,
    pictureOf: (photo) => (photo.error === null ? `${files}/thumbs/${photo.number}.jpg` : null),
    hrefOf: (photo) => `#${hash({ photo: photo.key })}`,
    coveredHeight: () => Math.max(0, find(".bar-top").getBoundingClientRect().bottom),
    onFilter: () => {
      showCount();
      scrollTo(0, 0);
      if (!leaving) history.replaceState(null, "", `#${hash()}`);
    },
  });
  const review = createReview(find(".review"), { decisions, list: () => desk.chosen, onNext: () => move(1) });
  const view = createView(find(".view"), { onChoose: review.use });

  // Data comes from scripts beside the page, which call these.

  function receiveIndex(rows) {
    for (const [name, caption, confidence, error, probability, file, alike] of rows) {
      const number = photos.length;
      const key = byKey.has(name) ? `${name} (${number})` : name;
      const photo = { number, key, name, file: file ?? name, caption: error === null ? caption : null, confidence, error, probability, alike };
      desk.learn(photo);
      photos.push(photo);
      byKey.set(key, photo);
    }
  }

  function receiveView(number, data) {
    views.set(number, { ...data, url: data.url ?? `${files}/photos/${number}.jpg` });
    if (views.size > 50) views.delete(views.keys().next().value);
    if (opened?.number === number) showOpened();
  }

  function requestView(number) {
    const script = document.createElement("script");
    script.src = `${files}/views/${number}.js`;
    script.addEventListener("load", () => script.remove());
    script.addEventListener("error", () => {
      script.remove();
      if (opened?.number === number) showProblem(saves ? "The server cannot be reached." : "The view of this photo is missing from the folder beside the page.");
    });
    document.head.append(script);
  }

  // The state of the page and its hash.

  function hash({ photo } = {}) {
    const state = desk.state(), parts = new URLSearchParams();
    for (const [name, short] of Object.entries(IN_HASH))
      if (state[name].trim() && state[name] !== FIRST[name]) parts.set(short, state[name]);
    if (photo !== undefined) parts.set("photo", photo);
    return parts.toString();
  }

  function readHash() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const before = JSON.stringify(desk.state());
    desk.setState(Object.fromEntries(Object.entries(IN_HASH).map(([name, short]) => [name, parts.get(short) ?? FIRST[name]])));
    if (!listed || JSON.stringify(desk.state()) !== before) desk.update();
    listed = true;
    showCount();
    const photo = byKey.get(parts.get("photo"));
    if (photo) open(photo);
    else if (viewer.open) viewer.close();
  }
  let listed = false;

  // A photo that is opened from the list has an entry of the history, marked as one above the list. Closing the photo
  // goes back to the list, which takes a moment; `next` is what was opened meanwhile.
  let leaving = false, next = null;

  function go(to) {
    if (leaving) return void (next = to);
    history.pushState({ aboveList: true }, "", to);
    return readHash();
  }

  function leave() {
    if (!history.state?.aboveList) return history.replaceState(null, "", `#${hash()}`);
    leaving = true;
    return history.back();
  }

  function followHash() {
    if (!leaving) return readHash();
    leaving = false;
    history.replaceState(null, "", `#${hash()}`); // the filters may have changed since the photo was opened
    if (next !== null) go(next);
    next = null;
  }

  function showCount() {
    const all = photos.length.toLocaleString(), some = desk.chosen.length.toLocaleString();
    count.textContent = desk.partial ? `No photo has all of these words; ${some} of ${all} have some`
      : desk.chosen.length === photos.length ? `${all} ${photos.length === 1 ? "photo" : "photos"}` : `${some} of ${all}`;
    if (!photos.length && document.scripts.length > 2)
      find(".nothing").textContent = `The folder ${decodeURIComponent(files)} is missing; it must lie beside this page.`;
  }

  // The view of one photo.

  function open(photo) {
    opened = photo;
    find(".viewer-name").textContent = photo.name;
    find(".view").hidden = true;
    find(".problem").hidden = true;
    const place = desk.chosen.indexOf(photo);
    find(".photo-before").disabled = place <= 0;
    find(".photo-after").disabled = place < 0 || place >= desk.chosen.length - 1;
    if (!viewer.open) {
      review.tell("");
      viewer.showModal();
      viewer.focus(); // until there is a caption
    }
    viewer.scrollTop = 0;
    review.open(photo);
    if (photo.error !== null) showProblem(photo.error);
    else if (views.has(photo.number)) showOpened();
    else requestView(photo.number);
  }

  function showOpened() {
    find(".view").hidden = false;
    view.show(views.get(opened.number));
    showDecision();
    review.announce(desk.saidOf(opened), find(".view-title"));
  }

  function showDecision() {
    review.show();
    if (!find(".view").hidden) view.say(desk.saidOf(opened));
    asCaption(find(".view-title")).textContent = desk.saidOf(opened) || opened.name;
  }

  // Above the photos, and over the one that covers them.
  function tellSaving(text) {
    desk.tell(text);
    find(".unsaved").textContent = text;
    find(".unsaved").hidden = !text;
  }

  function showProblem(message) {
    view.stop();
    find(".view").hidden = true;
    find(".problem").textContent = message;
    find(".problem").hidden = false;
    review.announce(message, find(".problem"));
  }

  function show(photo) {
    history.replaceState(history.state, "", `#${hash({ photo: photo.key })}`);
    open(photo);
  }

  function move(by) {
    const place = desk.chosen.indexOf(opened), next = desk.chosen[place + by];
    if (place >= 0 && next) show(next);
  }

  viewer.addEventListener("close", () => {
    view.stop();
    const photo = opened;
    opened = null;
    leave();
    if (desk.chosen.includes(photo)) desk.focus(photo);
  });
  viewer.addEventListener("click", (event) => { if (event.target === viewer) viewer.close(); }); // the backdrop
  find(".close").addEventListener("click", () => viewer.close());
  find(".photo-before").addEventListener("click", () => move(-1));
  find(".photo-after").addEventListener("click", () => move(1));

  document.addEventListener("keydown", (event) => {
    if (find("dialog[open]:not(.viewer)")) return;
    if (viewer.open) {
      if (event.key === "PageUp" || event.key === "PageDown") {
        event.preventDefault();
        move(event.key === "PageUp" ? -1 : 1);
      } else if (!review.handleKey(event) && event.key !== "/" && !desk.handleKey(event) && event.key !== "Escape" && !find(".view").hidden)
        view.handleKey(event);
    } else if (!desk.handleKey(event) && event.key === "Enter" && event.target === query && desk.chosen.length) {
      event.preventDefault();
      go(`#${hash({ photo: desk.chosen[0].key })}`);
    }
  });
  find(".cards").addEventListener("click", (event) => {
    const card = event.target.closest(".card");
    if (!card || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return; // the browser opens a tab
    event.preventDefault();
    go(card.hash);
  });
  addEventListener("hashchange", followHash);

  function start() {
    desk.learnChoices();
    readHash();
  }

  // What was decided earlier, from the server, where it keeps decisions.
  async function startServed() {
    const kept = await keeper.read();
    if (kept) decisions.receive(kept);
    else desk.tell("The decisions of before cannot be read from the server.");
    photos.forEach(desk.learn);
    start();
  }
  addEventListener("DOMContentLoaded", saves ? startServed : start);
  createThemeButtons(document.querySelectorAll(".theme"));
  createKeyList(find(".key-list"), document.querySelectorAll(".keys-open"));

  return { receiveIndex, receiveView };
})();
