// The interactive view of one photo. `show` takes what overlay/payload.py makes. With `onChoose`, an alternative
// can be chosen in place of the caption.
function createView(root, { onChoose } = {}) {
  const find = (selector) => root.querySelector(selector);
  const photo = find(".photo"), image = find(".photo img"), canvas = find(".photo canvas"), box = find(".place");
  const sentence = find(".sentence"), detail = find(".detail"), play = find(".play");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const SAMPLES_A_CELL = 10, FADE_MS = 220, WORD_MS = 950, COPIED_MS = 2000;

  const RIGHT_TO_LEFT = /^\P{L}*[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}]/u;

  let said = ""; // what is copied
  let data = null, fields = [], buttons = [], table = null;
  let chosen = -1; // the word that stays; -1: the plain photo
  let shown = null; // the field on the canvas, null when it is clear
  let mode = "heat", place = null, timer = 0, fade = 0;

  const percent = (share) => share >= 0.995 || share === 0 ? `${Math.round(share * 100)}%`
    : share < 0.01 ? "<1%" : `${Math.round(share * 100)}%`;

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // What is on the canvas.

  function fieldOf(number) {
    if (number < 0 || !data.words[number]?.map) return null;
    const scale = Math.max(2, Math.min(SAMPLES_A_CELL, Math.floor(400 / Math.max(...data.grid))));
    return (fields[number] ??= smoothField(data.words[number], data.grid, scale));
  }

  function paint(field) {
    shown = field;
    photo.classList.toggle("heat", Boolean(field) && mode === "heat");
    if (field) paintField(canvas, field, mode, table, data.alpha);
    else canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
  }

  function fadeTo(field) {
    cancelAnimationFrame(fade);
    const from = shown;
    if (!from || !field || from === field || calm.matches) return paint(field);
    const start = performance.now();
    const step = (now) => {
      const share = Math.min(1, Math.max(0, now - start) / FADE_MS);
      if (share >= 1) return paint(field);
      const values = field.values.map((value, at) => from.values[at] + (value - from.values[at]) * share);
      paint({ ...field, values });
      fade = requestAnimationFrame(step);
    };
    fade = requestAnimationFrame(step);
  }

  // Words.

  function describe(number) {
    detail.replaceChildren();
    if (number < 0) {
      detail.append(data.words.some((word) => word.map) ? "Choose a word to see where the model looked for it."
        : "No attention maps were kept for this photo.");
      return;
    }
    const word = data.words[number];
    const name = element("b");
    name.append(asCaption(element("bdi", "", word.text)));
    detail.append(name, ` is ${percent(word.probability)} likely here, after the words before it. `);
    if (word.sentinel !== null)
      detail.append(`${percent(word.sentinel)} of its attention went to the sentence, not to the photo.`);
  }

  function preview(number) {
    if (place) leavePlace();
    fadeTo(fieldOf(number));
    describe(number);
  }

  function choose(number, { focus = false } = {}) {
    chosen = number;
    buttons.forEach((button, at) => {
      button.setAttribute("aria-pressed", String(at === number));
      button.tabIndex = at === Math.max(0, number) ? 0 : -1;
    });
    preview(number);
    if (focus) buttons[number]?.focus();
    find(".previous").disabled = number <= 0;
    find(".next").disabled = number >= buttons.length - 1;
  }

  function step(by, focus) {
    if (buttons.length) choose(Math.min(buttons.length - 1, Math.max(0, chosen + by)), { focus });
  }

  function makeWord(word, number) {
    const button = element("span", "word"); // the text of a <button> cannot be selected
    button.setAttribute("role", "button");
    const bar = element("span", "bar");
    bar.style.setProperty("--probability", word.probability);
    button.append(asCaption(element("bdi", "", word.text || "∅")), bar, element("small", "", percent(word.probability)));
    button.append(element("span", "heat-dot"));
    button.addEventListener("click", () => { stop(); choose(number); });
    button.addEventListener("keydown", (event) => {
      if (event.key !== " " && event.key !== "Enter") return;
      event.preventDefault();
      stop();
      choose(number);
    });
    button.addEventListener("focus", () => { if (number !== chosen) choose(number); });
    button.addEventListener("pointerenter", (event) => {
      if (event.pointerType === "mouse") { stop(); preview(number); }
    });
    return button;
  }

  // Places on the photo.

  function explore(row, column) {
    stop();
    const [rows, columns] = data.grid;
    place = [Math.min(rows - 1, Math.max(0, row)), Math.min(columns - 1, Math.max(0, column))];
    Object.assign(box.style, {
      top: `${place[0] / rows * 100}%`, left: `${place[1] / columns * 100}%`,
      height: `${100 / rows}%`, width: `${100 / columns}%`,
    });
    box.hidden = false;
    const heats = data.words.map((word, number) => heatAt(number, place));
    heats.forEach(warm);
    const looked = heats.map((heat, number) => [heat, number]).filter(([heat]) => heat >= 0.25).sort((a, b) => b[0] - a[0]);
    detail.replaceChildren();
    if (!looked.length) return detail.append("No word looked at this place much.");
    detail.append(looked.length > 1 ? "Words that looked here: " : "The word that looked here: ");
    looked.slice(0, 5).forEach(([heat, number], at) => {
      if (at) detail.append(", ");
      const name = element("b");
      name.append(asCaption(element("bdi", "", data.words[number].text)));
      detail.append(name);
    });
  }

  function heatAt(number, [row, column]) {
    const field = fieldOf(number);
    if (!field) return 0;
    const y = Math.floor((row + 0.5) * field.height / data.grid[0]);
    const x = Math.floor((column + 0.5) * field.width / data.grid[1]);
    return field.values[y * field.width + x];
  }

  function leavePlace() {
    place = null;
    box.hidden = true;
    buttons.forEach((_, number) => warm(0, number));
  }

  function warm(heat, number) {
    buttons[number].style.setProperty("--heat", heat.toFixed(3));
    buttons[number].classList.toggle("looked", heat > 0);
  }

  function exploreAt(event) {
    const frame = photo.getBoundingClientRect(), [rows, columns] = data.grid;
    explore(Math.floor((event.clientY - frame.top) / frame.height * rows),
      Math.floor((event.clientX - frame.left) / frame.width * columns));
  }

  photo.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") exploreAt(event); });
  photo.addEventListener("click", exploreAt); // a tap
  photo.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") { leavePlace(); describe(chosen); }
  });
  photo.addEventListener("blur", () => { leavePlace(); describe(chosen); });
  photo.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const [row, column] = place ?? data.grid.map((side) => Math.floor((side - 1) / 2));
    explore(...(place ? [row + move[0], column + move[1]] : [row, column]));
  });

  // Playing.

  function stop() {
    clearTimeout(timer);
    timer = 0;
    play.setAttribute("aria-label", "Play");
    play.classList.remove("playing");
  }

  function start() {
    choose(chosen < 0 || chosen >= buttons.length - 1 ? 0 : chosen);
    play.setAttribute("aria-label", "Pause");
    play.classList.add("playing");
    const advance = () => {
      if (chosen >= buttons.length - 1) return stop();
      step(1, false);
      timer = setTimeout(advance, WORD_MS);
    };
    timer = setTimeout(advance, WORD_MS);
  }

  play.addEventListener("click", () => (timer ? stop() : start()));
  find(".previous").addEventListener("click", () => { stop(); step(-1, false); });
  find(".next").addEventListener("click", () => { stop(); step(1, false); });
  sentence.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse" && !timer) preview(chosen);
  });
  root.querySelectorAll("[name=mode]").forEach((radio) => radio.addEventListener("change", () => {
    mode = radio.value;
    showLegend();
    paint(fieldOf(chosen));
  }));

  function showLegend() {
    const stops = data.colormap.match(/.{6}/g).map((stop) => `#${stop}`);
    find(".ramp").style.setProperty("--ramp", `linear-gradient(90deg, ${mode === "heat" ? stops.join(",") : "#0c0b0e, #fff"})`);
  }

  // What the reader sees first: the word that looked at one place most of all, of those that name something.
  function sharpest() {
    const onlySmall = data.words.every((word) => word.small || !word.map);
    const peaks = data.words.map((word) =>
      (word.map && (onlySmall || !word.small) ? word.max * (1 - (word.sentinel ?? 0)) : 0));
    return peaks.some((peak) => peak > 0) ? peaks.indexOf(Math.max(...peaks)) : -1;
  }

  // Copying: the words, without what stands below them.

  sentence.addEventListener("copy", (event) => {
    const selection = getSelection();
    const selected = buttons.filter((button) => selection.containsNode(button.firstChild, true));
    if (!selected.length) return;
    event.clipboardData.setData("text/plain", selected.map((button) => button.firstChild.textContent).join(" "));
    event.preventDefault();
  });

  find(".copy").addEventListener("click", async () => {
    const copied = await copyText(said);
    find(".copied").textContent = copied ? "Copied" : "The browser does not let the page copy.";
    setTimeout(() => { find(".copied").textContent = ""; }, COPIED_MS);
  });

  // Numbers and alternatives.

  function addNumber(name, value, explanation) {
    const entry = element("div"), described = element("dd");
    described.append(element("bdi", "", value));
    if (explanation) described.append(element("small", "", explanation));
    entry.append(element("dt", "", name), described);
    find(".numbers").append(entry);
  }

  // The search ranks by likelihood and length: a shorter caption that is likelier can come later.
  function likelihood({ text, ratio }) {
    if (ratio < 0.995) return `${percent(ratio)} as likely`;
    const count = (sentence) => sentence.split(" ").length;
    return count(text) < count(data.caption) ? "likelier, as it is shorter" : "as likely";
  }

  function makeAlternative(other, number) {
    const item = element("li");
    const text = asCaption(element("span", "text", other.text));
    text.dir = "auto";
    item.append(text, element("span", "ratio", likelihood(other)));
    if (!onChoose) return item;
    const button = element("button", "choose", "Use"), key = number < 9 ? ` ${number + 1}` : "";
    button.type = "button";
    button.setAttribute("aria-label", `Use${key}: ${other.text}`);
    if (key) {
      button.dataset.key = key.trim();
      button.append(" ", element("kbd", "", key.trim()));
    }
    button.addEventListener("click", () => onChoose(other.text));
    item.append(button);
    return item;
  }

  // What a person says in place of the caption; null for the caption itself.
  function say(text) {
    said = text ?? data.caption;
    find(".copy").disabled = !said;
    asCaption(image).alt = said;
    find(".said").hidden = said === data.caption;
    asCaption(find(".said")).textContent = said;
    find(".said").dir = "auto";
  }

  // `word` is the one to open on; without it, the one that looked at one place most.
  function show(next, { word } = {}) {
    stop();
    data = next;
    fields = [];
    table = colorTable(data.colormap);
    cancelAnimationFrame(fade);
    mode = data.mode;
    root.querySelector(`[name=mode][value=${mode}]`).checked = true;
    if (data.url && image.src !== data.url) image.src = data.url;
    say(data.said ?? null);
    // A photo that is all but a line is drawn wider than it is, or there would be nothing to see.
    find(".stage").style.setProperty("--aspect", Math.min(12, Math.max(1 / 6, data.width / data.height)));

    buttons = data.words.map(makeWord);
    sentence.replaceChildren(...(buttons.length ? buttons : [asCaption(element("span", "plain", data.caption))]));
    play.disabled = !buttons.length;
    sentence.dir = RIGHT_TO_LEFT.test(data.caption) ? "rtl" : "ltr";
    find(".numbers").replaceChildren();
    if (data.confidence !== null) addNumber("Confidence", percent(data.confidence), "the chance that the caption is good");
    else if (data.meanProbability !== null)
      addNumber("Likelihood of a word", percent(data.meanProbability), "on average; this model does not rate captions");
    if (data.model) addNumber("Model", data.model);
    find(".legend-note").textContent = buttons.length ? `${data.grid[0]} by ${data.grid[1]} places` : "";
    find(".others").hidden = !data.alternatives.length;
    find(".others ol").replaceChildren(...data.alternatives.map(makeAlternative));
    if (onChoose) characterKeys.tell(find(".others"));
    leavePlace();
    showLegend();
    shown = null;
    choose(word ?? sharpest());
  }

  // Keys that work wherever the focus is, but in fields where they mean something else.
  function handleKey(event) {
    const other = onChoose && data?.alternatives[characterKeys.of(event) - 1];
    if (other) {
      event.preventDefault();
      return onChoose(other.text);
    }
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
    const isRightToLeft = sentence.dir === "rtl";
    const inSentence = event.target.matches("button, body, .view-title, .word");
    const moves = {
      ArrowRight: () => step(isRightToLeft ? -1 : 1, true),
      ArrowLeft: () => step(isRightToLeft ? 1 : -1, true),
      Home: inSentence && (() => choose(0, { focus: true })),
      End: inSentence && (() => choose(buttons.length - 1, { focus: true })),
      Escape: () => { leavePlace(); choose(-1); },
    };
    if (!moves[event.key] || !buttons.length) return;
    stop();
    moves[event.key]();
    event.preventDefault();
  }

  return { show, say, handleKey, stop };
}
