// The photos as cards, and what can be done with many at once: search, filters, order, bulk decisions, downloads.
// A photo is {number, name, file, caption, error, confidence, probability, alike}: `caption` is the model's, null without
// one; `alike` is the number of a group of photos that look alike, if it is in one.
function createDesk({ photos, decisions, search, pictureOf, hrefOf, coveredHeight, onFilter, saves = {}, onSave = () => {} }) {
  const find = (selector) => document.querySelector(selector);
  const query = find(".query"), told = find(".told"), cards = find(".cards"), menu = find(".save-menu"), fold = find(".fold");
  const SELECTS = ["order", "show", "sureness", "folder", "keyword"], MOST_KEYWORDS = 200, LINES_REM = 6.6;
  const select = (name) => find(`.${name}`);
  let chosen = [], partial = false;

  const saidOf = (photo) => photo.decision?.caption ?? photo.caption;

  // To be called when a photo is new, or its caption or the decision about it has changed.
  function learn(photo) {
    photo.decision = decisions.of(photo.file);
    search.index(photo, saidOf(photo));
  }

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
    const waiting = photo.caption === null && photo.error === null && !photo.decision;
    const card = element("a", `card${photo.error !== null ? " failed" : waiting ? " waiting" : ""}`);
    card.href = hrefOf(photo);
    const picture = element("span", "picture"), source = pictureOf(photo);
    if (source) {
      const image = new Image();
      image.alt = "";
      image.decoding = "async";
      image.draggable = false;
      image.src = source;
      picture.append(image);
    } else if (photo.error !== null) {
      const icon = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
      icon.setAttribute("viewBox", "0 0 24 24");
      icon.setAttribute("aria-hidden", "true");
      path.setAttribute("d", BROKEN);
      icon.append(path);
      picture.append(icon);
    }
    const said = photo.decision ? saidOf(photo) : photo.error ?? saidOf(photo) ?? "Waiting…";
    const says = element("span", "says", ...search.mark(said, query.value, photos));
    says.dir = "auto";
    if (said === saidOf(photo)) asCaption(says);
    const meta = element("span", "meta", element("span", "name", element("bdi", "", ...search.mark(photo.name, query.value, photos))));
    if (photo.confidence !== null && !photo.decision) {
      const gauge = element("span", "gauge"), sure = element("span", "sure", `${Math.round(photo.confidence * 100)}%`);
      gauge.style.setProperty("--share", photo.confidence);
      sure.title = "Confidence: the chance that the caption is good";
      meta.append(gauge, sure);
    }
    if (photo.decision) meta.append(element("span", `status ${photo.decision.status}`, photo.decision.status));
    card.append(picture, element("span", "lines", says, meta));
    return card;
  }

  const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);
  cards.style.setProperty("--lines-height", `${LINES_REM}rem`);
  const list = createList(cards, {
    makeCard, minCardWidth: () => (innerWidth < 40 * rem() ? 9.25 : 15) * rem(), pictureAspect: 0.75,
    linesHeight: () => LINES_REM * rem(), coveredHeight, gap: 12, tell: (text) => tell(text),
  });

  // What is shown.

  const state = () => ({ query: query.value, ...Object.fromEntries(SELECTS.map((name) => [name, select(name).value])) });

  // Sets the tools; what is not named, or not known, gets its first value.
  function setState(values) {
    query.value = values.query ?? "";
    for (const name of SELECTS) {
      select(name).value = values[name] ?? "";
      if (select(name).selectedIndex < 0) select(name).selectedIndex = 0;
    }
  }

  function fill(name, first, options) {
    const value = select(name).value;
    const make = ([key, text]) => Object.assign(document.createElement("option"), { value: key, textContent: text });
    select(name).replaceChildren(...[["", first], ...options].map(make));
    select(name).value = value;
    if (select(name).selectedIndex < 0) select(name).selectedIndex = 0;
    select(name).parentElement.hidden = !options.length;
  }

  // The choices that depend on the photos.
  function learnChoices() {
    const folders = [...new Set(photos.map(folderOf).filter(Boolean))].sort(names.compare);
    fill("folder", "All folders", folders.map((name) => [name, name]));
    fill("keyword", "Any keyword", search.keywords(photos).slice(0, MOST_KEYWORDS).map(([base, form, count]) => [base, `${form} (${count})`]));
    select("show").querySelector("[value=alike]").hidden = !photos.some((photo) => photo.alike);
    select("sureness").parentElement.hidden = !photos.some((photo) => (photo.confidence ?? photo.probability) !== null);
  }

  function update() {
    const wanted = state(), found = search.find(photos, wanted.query);
    partial = found.partial;
    chosen = found.photos.filter((photo) => passes(photo, wanted));
    const order = ORDERS[wanted.order] ?? (wanted.show === "alike" && ((a, b) => a.alike - b.alike || a.number - b.number));
    if (order) chosen.sort(order);
    fold.classList.toggle("main", SELECTS.some((name) => select(name).selectedIndex > 0));
    list.show(chosen);
    find(".nothing").hidden = chosen.length > 0;
    showActions();
  }

  function showActions() {
    const open = chosen.filter((photo) => photo.error === null && photo.caption && !photo.decision).length;
    find(".approve-all").disabled = !open;
    find(".replace").disabled = !photos.some(saidOf);
    for (const button of document.querySelectorAll(".undo")) button.disabled = !decisions.canUndo;
    find("[data-save=corrections]").disabled = !decisions.count;
  }

  const counted = (count, noun) => `${count.toLocaleString()} ${noun}${count === 1 ? "" : "s"}`;
  const tell = (text) => { told.textContent = text; };

  // What decisions changed: their photos, and a message.
  function receive({ files, label, undone }) {
    const changed = new Set(files);
    const touched = photos.filter((photo) => changed.has(photo.file));
    for (const photo of touched) {
      learn(photo);
      list.refresh(photo);
    }
    const what = touched.length === 1 ? touched[0].name : counted(touched.length, "caption");
    tell(undone ? `Undone: ${label.toLowerCase()} (${what})` : `${label}: ${what}`);
    showActions();
    return touched;
  }

  // Actions.

  find(".approve-all").addEventListener("click", () => decisions.decide(
    chosen.filter((photo) => photo.error === null && photo.caption && !photo.decision)
      .map((photo) => [photo.file, { caption: photo.caption, status: "approved" }]), "Approved"));
  find(".actions .undo").addEventListener("click", decisions.undo);
  const replacer = createReplacer(find(".replacer"), {
    shown: () => chosen, all: () => photos, saidOf,
    onReplace: (changes) => decisions.decide(changes.map(([photo, caption]) =>
      [photo.file, { caption, status: caption === photo.caption ? "approved" : "edited" }]), "Edited"),
  });
  find(".replace").addEventListener("click", replacer.open);

  const said = () => photos.filter((photo) => saidOf(photo) && photo.decision?.status !== "rejected")
    .map((photo) => ({ file: photo.file, said: saidOf(photo) }));
  const SAVES = {
    corrections: () => saveFile(makeCorrections(decisions.entries()), "corrections.jsonl", "application/jsonl"),
    csv: () => saveFile(makeTable(said()), "captions.csv", "text/csv"),
    txt: () => saveFile(makeLines(said()), "captions.txt", "text/plain"),
    zip: () => saveFile(makeSidecars(said()), "captions.zip"),
    ...saves,
  };
  function save(kind) {
    SAVES[kind]();
    onSave();
  }
  menu.addEventListener("click", (event) => {
    const button = event.target.closest("[data-save]");
    if (!button) return;
    save(button.dataset.save);
  });
  createMenu(menu);

  // On phones, filters and actions are folded away.
  fold.addEventListener("click", () => fold.setAttribute("aria-expanded", String(fold.getAttribute("aria-expanded") === "false")));

  const filter = () => { update(); onFilter(); };
  query.addEventListener("input", filter);
  for (const name of SELECTS) select(name).addEventListener("change", filter);

  // Keys of the list. Returns whether the key meant something.
  function handleKey(event) {
    const character = characterKeys.of(event), isControl = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (character === "u" || (isControl && event.key.toLowerCase() === "z" && !isWriting(event))) decisions.undo();
    else if (character === "/" && !cards.closest("[hidden]")) query.select();
    else if (event.key === "ArrowDown" && event.target === query) list.focus(0);
    else return false;
    event.preventDefault();
    return true;
  }

  return { learn, learnChoices, update, receive, state, setState, tell, saidOf, handleKey, showActions, save,
    refresh: list.refresh, focus: (photo) => list.focus(chosen.indexOf(photo)),
    get chosen() { return chosen; }, get partial() { return partial; } };
}
