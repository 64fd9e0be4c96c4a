// A grid of cards of one size that holds only those near the window, however many there are; all while it is printed.
function createList(root, { makeCard, minCardWidth, pictureAspect, linesHeight, coveredHeight, gap, tell }) {
  let items = [], columns = 1, cardWidth = 0, rowHeight = 0, current = 0, printing = false;
  const made = new Map(); // position -> <li>

  function measure() {
    const width = root.clientWidth;
    columns = Math.max(1, Math.floor((width + gap) / (minCardWidth() + gap)));
    cardWidth = (width - gap * (columns - 1)) / columns;
    rowHeight = Math.round(cardWidth * pictureAspect + linesHeight()) + gap;
    root.style.height = `${Math.max(0, Math.ceil(items.length / columns) * rowHeight - gap)}px`;
  }

  function draw() {
    const top = root.getBoundingClientRect().top, margin = innerHeight;
    const first = printing ? 0 : Math.max(0, Math.floor((-top - margin) / rowHeight) * columns);
    const end = printing ? items.length : Math.min(items.length, Math.ceil((innerHeight - top + margin) / rowHeight) * columns);
    for (const [position, node] of made)
      if ((position < first || position >= end) && position !== current) {
        node.remove();
        made.delete(position);
      }
    for (let position = first; position < end; position++) place(position);
    if (items.length) place(current);
  }

  function place(position) {
    let node = made.get(position);
    if (!node) {
      node = document.createElement("li");
      node.setAttribute("aria-posinset", position + 1);
      node.setAttribute("aria-setsize", items.length);
      const card = makeCard(items[position]);
      card.tabIndex = position === current ? 0 : -1;
      card.addEventListener("focus", () => setCurrent(position));
      node.append(card);
      made.set(position, node);
      // In reading order, for those who read the page by its order.
      const after = made.has(position + 1) ? position + 1
        : [...made.keys()].filter((other) => other > position).sort((a, b) => a - b)[0];
      root.insertBefore(node, after === undefined ? null : made.get(after));
    }
    node.style.width = `${cardWidth}px`;
    node.style.height = `${rowHeight - gap}px`;
    node.style.transform = `translate(${(position % columns) * (cardWidth + gap)}px, ${Math.floor(position / columns) * rowHeight}px)`;
  }

  function setCurrent(position) {
    const before = made.get(current)?.firstChild, after = made.get(position)?.firstChild;
    current = position;
    if (before) before.tabIndex = -1;
    if (after) after.tabIndex = 0;
  }

  function focus(position) {
    position = Math.min(items.length - 1, Math.max(0, position));
    if (position < 0) return;
    place(position);
    setCurrent(position);
    const card = made.get(position).firstChild;
    card.focus({ preventScroll: true });
    reveal(card);
    draw();
  }

  // Make the card of an item anew, after the item has changed.
  function refresh(item) {
    const position = items.indexOf(item), node = made.get(position);
    if (!node) return;
    const hadFocus = node.contains(document.activeElement);
    node.remove();
    made.delete(position);
    place(position);
    if (hadFocus) made.get(position).firstChild.focus({ preventScroll: true });
  }

  function reveal(card) {
    const frame = card.getBoundingClientRect(), covered = coveredHeight() + gap;
    if (frame.top < covered) scrollBy(0, frame.top - covered);
    else if (frame.bottom > innerHeight - gap) scrollBy(0, frame.bottom - innerHeight + gap);
  }

  function show(next) {
    items = next;
    current = 0;
    made.clear();
    root.replaceChildren();
    measure();
    draw();
  }

  root.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(innerHeight / rowHeight)) * columns;
    const to = {
      ArrowLeft: current - 1, ArrowRight: current + 1, ArrowUp: current - columns, ArrowDown: current + columns,
      PageUp: current - page, PageDown: current + page, Home: 0, End: items.length - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (to >= 0 || event.key !== "ArrowUp") focus(to);
  });
  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };
  addEventListener("scroll", redraw, { passive: true });

  // Printing takes all cards, but where a photo is open, which is printed alone. Chromium does not wait for the pictures of
  // those that are made for it, so that Ctrl-P waits here; after the browser's menu, the cards stay for another try.
  const isPrinted = () => root.checkVisibility() && !document.querySelector(".viewer[open]");
  const unloaded = () => [...root.querySelectorAll("img")].filter((image) => !image.complete);
  const settled = (image) => new Promise((resolve) => { image.onload = image.onerror = resolve; });
  addEventListener("beforeprint", () => { printing = isPrinted(); draw(); });
  addEventListener("afterprint", () => {
    if (printing && unloaded().length) return tell("If photos are missing in the print, print again, or with Ctrl-P.");
    printing = false;
    draw();
  });
  addEventListener("keydown", async (event) => {
    if (event.key.toLowerCase() !== "p" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || !isPrinted()) return;
    event.preventDefault();
    printing = true;
    draw();
    tell("All photos are loaded to be printed…");
    await Promise.all(unloaded().map(settled));
    tell("");
    print();
  });
  new ResizeObserver(() => { measure(); draw(); }).observe(root.parentElement);
  return { show, focus, refresh };
}
