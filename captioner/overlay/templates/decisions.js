// A caption that a person wrote, as it is kept: one line. Python takes some control characters for space, so that a
// caption of these alone would be empty there.
const oneLine = (text) => text.replace(/[\s\p{Cc}]+/gu, " ").trim();

// What a person decided about captions, {caption, status} by the file name of the photo, and how to take the last
// action back. `keeper` has what was decided earlier, `entries`, keeps what `keep(changes)` receives, and tells of what
// others keep there by `follow`.
function createDecisions({ keeper, onChange }) {
  const STATUSES = ["approved", "edited", "rejected"];
  const decided = new Map(), actions = [];

  function receive(entries) {
    for (const [file, decision] of entries)
      if (STATUSES.includes(decision?.status)) decided.set(file, { caption: String(decision.caption), status: decision.status });
  }

  function put(changes) {
    for (const [file, decision] of changes)
      if (decision) decided.set(file, decision);
      else decided.delete(file);
    keeper.keep(changes);
  }

  // `changes` are pairs of a file name and a decision, or null for none. `label` says what was done: "Approved".
  function decide(changes, label) {
    if (!changes.length) return;
    actions.push({ label, before: changes.map(([file]) => [file, decided.get(file) ?? null]) });
    put(changes);
    onChange({ files: changes.map(([file]) => file), label, undone: false });
  }

  function undo() {
    const action = actions.pop();
    if (!action) return;
    put(action.before);
    onChange({ files: action.before.map(([file]) => file), label: action.label, undone: true });
  }

  function forget() {
    decided.clear();
    actions.length = 0;
  }

  // What is kept now, after others have changed it; `before` is what was kept when this page last knew.
  function follow(after, before = [...decided]) {
    const [old, now] = [before, after].map((entries) => new Map(entries.map(([file, decision]) => [file, JSON.stringify(decision)])));
    const files = [...new Set([...old.keys(), ...now.keys()])].filter((file) => old.get(file) !== now.get(file));
    if (!files.length) return;
    for (const file of files) decided.delete(file);
    receive(after.filter(([file]) => files.includes(file)));
    onChange({ files, label: "Changed elsewhere", undone: false });
  }

  receive(keeper.entries);
  keeper.follow?.(follow);
  return { receive, decide, undo, forget, of: (file) => decided.get(file) ?? null, entries: () => [...decided],
    get count() { return decided.size; }, get canUndo() { return actions.length > 0; } };
}

// Keeps decisions in the browser. Several tabs keep theirs together. `tell` gets what is wrong, where the browser keeps
// nothing: for some pages from disk, in private windows, or when it is full.
function keepInBrowser(key, tell) {
  let lost = false;
  function parse(text) {
    try { return JSON.parse(text).filter(Array.isArray); } catch { return []; } // nothing is kept, or something else's data
  }
  function read() {
    try { return parse(localStorage.getItem(key)); } catch { return []; }
  }
  return {
    entries: read(),
    keep(changes) {
      const kept = new Map(read());
      for (const [file, decision] of changes)
        if (decision) kept.set(file, decision);
        else kept.delete(file);
      try {
        localStorage.setItem(key, JSON.stringify([...kept]));
      } catch {
        if (!lost) addEventListener("beforeunload", (event) => event.preventDefault());
        lost = true;
        // After what the page says of the decision, which would replace it.
        queueMicrotask(() => tell("This browser does not keep decisions: download the corrections before you leave the page."));
      }
    },
    follow(onChange) {
      addEventListener("storage", (event) => { if (event.key === key) onChange(parse(event.newValue), parse(event.oldValue)); });
    },
  };
}

// Keeps decisions on the server that the page comes from, in the order in which they are made. `tell` gets what is wrong,
// and an empty text when that has passed. Whenever the reader comes to the page, it looks for what others decided there.
function keepOnServer(path, tell) {
  const FIRST_PAUSE_MS = 2000, LONGEST_PAUSE_MS = 60_000;
  let made = 0, waiting = [], sending = null, failed = false, told = "", pause = FIRST_PAUSE_MS, timer = 0;
  async function send() {
    while (waiting.length) {
      const changes = waiting;
      waiting = [];
      const body = JSON.stringify(changes.map(([image, decision]) => ({ image, ...(decision ?? { status: null }) })));
      try {
        const response = await fetch(path, { method: "POST", body, headers: { "Content-Type": "application/json" } });
        if (!response.ok) throw new Error((await response.json()).error.message);
        if (failed) tell("");
        failed = false;
        pause = FIRST_PAUSE_MS;
      } catch (error) {
        waiting = [...changes, ...waiting];
        failed = true;
        const trouble = `Not saved: ${error instanceof TypeError ? "the server cannot be reached" : error.message}. This page tries again by itself.`;
        if (trouble !== told) tell(told = trouble); // once, not at each try: it is read out
        timer = setTimeout(flush, pause);
        pause = Math.min(LONGEST_PAUSE_MS, 2 * pause);
        return;
      }
    }
  }
  function flush() {
    clearTimeout(timer);
    if (waiting.length) sending ??= send().finally(() => { sending = null; });
  }

  // What the server keeps; null if it does not say, or this page has decided something meanwhile.
  async function read() {
    const before = made;
    if (waiting.length || sending) return null;
    try {
      const kept = await (await fetch(path)).json();
      return made === before ? kept.map(({ image, caption, status }) => [image, { caption, status }]) : null;
    } catch {
      return null;
    }
  }
  addEventListener("online", flush);
  document.addEventListener("visibilitychange", () => document.hidden || flush());
  addEventListener("beforeunload", (event) => { if (waiting.length || sending) event.preventDefault(); });
  return {
    entries: [],
    read,
    follow(onChange) {
      const look = async () => {
        const kept = document.hidden ? null : await read();
        if (kept) onChange(kept);
      };
      addEventListener("focus", look);
      document.addEventListener("visibilitychange", look);
    },
    keep(changes) {
      made++;
      waiting.push(...changes);
      told = ""; // what the page says of these stands in its place
      flush();
    },
  };
}
