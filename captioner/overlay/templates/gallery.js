// The gallery: what is shown follows from the hash, so that a link shows what its sender saw.
const captionerGallery = (() => {
  const find = (selector) => document.querySelector(selector);
  const files = document.body.dataset.files;
  const query = find(".query"), order = find(".order"), count = find(".count"), viewer = find(".viewer");
  const view = createView(find(".view"));
  const photos = [], byKey = new Map(), views = new Map();
  let chosen = [], opened = null, listed = "";

  // Data comes from scripts beside the page, which call these.

  function receiveIndex(rows) {
    for (const [name, caption, confidence, error, probability, file = name] of rows) {
      const number = photos.length;
      const key = byKey.has(name) ? `${name} (${number})` : name;
      const photo = { number, key, name, file, caption, confidence, error, probability };
      decideOn(photo);
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
      if (opened?.number === number) showProblem("The view of this photo is missing from the folder beside the page.");
    });
    document.head.append(script);
  }

  // Review.

  const review = createReview(find(".review"), {
    storageKey: `captioner-review ${location.pathname}`,
    onChange: (photo) => {
      decideOn(photo);
      list.refresh(photo);
      showDownload();
    },
    onNext: () => {
      const place = chosen.indexOf(opened);
      if (place >= 0 && place < chosen.length - 1) move(1);
    },
  });

  function decideOn(photo) {
    photo.decision = review.of(photo.file) ?? null;
    const said = photo.decision?.caption ?? photo.caption;
    photo.haystack = fold(`${said} ${photo.name} ${photo.error ?? ""}`);
  }

  function showDownload() {
    find(".download").hidden = review.count() === 0;
    find(".download").textContent = `Download ${review.count()} ${review.count() === 1 ? "correction" : "corrections"}`;
  }

  find(".download").addEventListener("click", () => review.download("corrections.jsonl"));

  // Cards.

  const SVG = "http://www.w3.org/2000/svg";
  const BROKEN = "M4 4h16v16H4zm2 2v9l3.5-3.5 3 3L16 11l2 2V6zm0 12h12v-2.2l-2-2-3.5 3.5-3-3L6 17.8z";

  function element(name, className, ...content) {
    const made = document.createElement(name);
    made.className = className;
    made.append(...content);
    return made;
  }

  function makeCard(photo) {
    const card = element("a", photo.error === null ? "card" : "card failed");
    card.href = `#${hash({ photo: photo.key })}`;
    const picture = element("span", "picture");
    if (photo.error === null) {
      const image = new Image();
      image.alt = "";
      image.decoding = "async";
      image.draggable = false;
      image.src = `${files}/thumbs/${photo.number}.jpg`;
      picture.append(image);
    } else {
      const icon = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
      icon.setAttribute("viewBox", "0 0 24 24");
      icon.setAttribute("aria-hidden", "true");
      path.setAttribute("d", BROKEN);
      icon.append(path);
      picture.append(icon);
    }
    const said = photo.decision?.status === "edited" ? photo.decision.caption : photo.error ?? photo.caption;
    const says = element("span", "says", ...markTerms(said, query.value));
    says.dir = "auto";
    const name = element("span", "name", element("bdi", "", ...markTerms(photo.name, query.value)));
    const meta = element("span", "meta", name);
    if (photo.confidence !== null) {
      const gauge = element("span", "gauge");
      gauge.style.setProperty("--share", photo.confidence);
      meta.append(gauge, element("span", "sure", `${Math.round(photo.confidence * 100)}%`));
    }
    if (photo.decision) meta.append(element("span", `status ${photo.decision.status}`, photo.decision.status));
    card.append(picture, element("span", "lines", says, meta));
    return card;
  }

  const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);
  const LINES_REM = 6.6;
  find(".cards").style.setProperty("--lines-height", `${LINES_REM}rem`);
  const list = createList(find(".cards"), {
    makeCard,
    minCardWidth: () => (innerWidth < 40 * rem() ? 9.25 * rem() : 15 * rem()),
    pictureAspect: 0.75,
    linesHeight: () => LINES_REM * rem(),
    coveredHeight: () => Math.max(0, find(".bar-top").getBoundingClientRect().bottom),

    gap: 12,
  });

  // The state of the page and its hash.

  const state = () => ({ query: query.value, order: order.value, show: find("[name=show]:checked").value });

  function hash({ photo } = {}) {
    const { query: q, order: sort, show } = state();
    const parts = new URLSearchParams();
    if (q.trim()) parts.set("q", q);
    if (sort !== "folder") parts.set("sort", sort);
    if (show !== "all") parts.set("show", show);
    if (photo !== undefined) parts.set("photo", photo);
    return parts.toString();
  }

  function readHash() {
    const parts = new URLSearchParams(location.hash.slice(1));
    query.value = parts.get("q") ?? "";
    order.value = parts.get("sort") ?? "folder";
    if (order.selectedIndex < 0) order.value = "folder";
    const show = [...document.querySelectorAll("[name=show]")].find((radio) => radio.value === parts.get("show"));
    (show ?? find("[name=show]")).checked = true;
    update();
    const photo = byKey.get(parts.get("photo"));
    if (photo) open(photo);
    else if (viewer.open) viewer.close();
  }

  function update() {
    const wanted = JSON.stringify(state());
    if (wanted === listed) return;
    listed = wanted;
    chosen = selectPhotos(photos, state());
    list.show(chosen);
    const all = photos.length.toLocaleString(), some = chosen.length.toLocaleString();
    count.textContent = chosen.length === photos.length ? `${all} ${photos.length === 1 ? "photo" : "photos"}` : `${some} of ${all}`;
    find(".nothing").hidden = chosen.length > 0;
    if (!photos.length && document.scripts.length > 1)
      find(".nothing").textContent = `The folder ${decodeURIComponent(files)} is missing; it must lie beside this page.`;

  }

  function updateFromTools() {
    update();
    scrollTo(0, 0);
    history.replaceState(null, "", `#${hash()}`);
  }

  // The view of one photo.

  function open(photo) {
    opened = photo;
    find(".viewer-name").textContent = photo.name;
    find(".view").hidden = true;
    find(".problem").hidden = true;
    const place = chosen.indexOf(photo);
    find(".photo-before").disabled = place <= 0;
    find(".photo-after").disabled = place < 0 || place >= chosen.length - 1;
    if (!viewer.open) viewer.showModal();
    viewer.scrollTop = 0;
    review.open(photo);
    if (photo.error !== null) showProblem(photo.error);
    else if (views.has(photo.number)) showOpened();
    else requestView(photo.number);
  }

  function showOpened() {
    find(".view").hidden = false;
    find(".view-title").textContent = opened.caption;
    view.show(views.get(opened.number));
  }

  function showProblem(message) {
    view.stop();
    find(".view").hidden = true;
    find(".problem").textContent = message;
    find(".problem").hidden = false;
  }

  function move(by) {
    const next = chosen[chosen.indexOf(opened) + by];
    if (!next || !chosen.includes(opened)) return;
    history.replaceState(null, "", `#${hash({ photo: next.key })}`);
    open(next);
  }

  viewer.addEventListener("close", () => {
    view.stop();
    const place = chosen.indexOf(opened);
    opened = null;
    history.replaceState(null, "", `#${hash()}`);
    if (place >= 0) list.focus(place);
  });
  viewer.addEventListener("click", (event) => { if (event.target === viewer) viewer.close(); }); // the backdrop
  find(".close").addEventListener("click", () => viewer.close());
  find(".photo-before").addEventListener("click", () => move(-1));
  find(".photo-after").addEventListener("click", () => move(1));

  document.addEventListener("keydown", (event) => {
    if (viewer.open) {
      if (event.key === "PageUp" || event.key === "PageDown") {
        event.preventDefault();
        move(event.key === "PageUp" ? -1 : 1);
      } else if (!review.handleKey(event) && event.key !== "Escape" && opened?.error === null) view.handleKey(event);
    } else if (event.key === "/" && !event.target.matches("input, select")) {
      event.preventDefault();
      query.select();
    } else if (event.key === "ArrowDown" && event.target === query) {
      event.preventDefault();
      list.focus(0);
    } else if (event.key === "Enter" && event.target === query && chosen.length) {
      event.preventDefault();
      location.hash = hash({ photo: chosen[0].key });
    }
  });
  query.addEventListener("input", updateFromTools);
  order.addEventListener("change", updateFromTools);
  document.querySelectorAll("[name=show]").forEach((radio) => radio.addEventListener("change", updateFromTools));
  addEventListener("hashchange", readHash);
  addEventListener("DOMContentLoaded", () => { showDownload(); readHash(); });
  createThemeButtons(document.querySelectorAll(".theme"));

  return { receiveIndex, receiveView };
})();
