// A caption that a person wrote, as it is kept: one line. Python takes some control characters for space, so that a
// caption of these alone would be empty there.
const oneLine = (text) => text.replace(/[\s\p{Cc}]+/gu, " ").trim();

// What a person decided about captions, {caption, status} by the file name of the photo, and how to take the last
// action back. `keeper` has what was decided earlier, `entries`, and keeps what `keep(changes, decided)` receives.
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
    keeper.keep(changes, decided);
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

  receive(keeper.entries);
  return { receive, decide, undo, forget, of: (file) => decided.get(file) ?? null, entries: () => [...decided],
    get count() { return decided.size; }, get canUndo() { return actions.length > 0; } };
}

// Keeps decisions in the browser, as far as it allows that for pages from disk.
function keepInBrowser(key) {
  let entries = [];
  try { entries = JSON.parse(localStorage.getItem(key) ?? "[]"); } catch { /* nothing is kept, or something else's data */ }
  return {
    entries: Array.isArray(entries) ? entries : [],
    keep(_, decided) {
      try { localStorage.setItem(key, JSON.stringify([...decided])); } catch { /* as above */ }
    },
  };
}

// Keeps decisions on the server that the page comes from, in the order in which they are made.
function keepOnServer(path, tell) {
  let waiting = [], sending = null;
  async function send() {
    while (waiting.length) {
      const changes = waiting;
      waiting = [];
      const body = JSON.stringify(changes.map(([image, decision]) => ({ image, ...(decision ?? { status: null }) })));
      try {
        const response = await fetch(path, { method: "POST", body, headers: { "Content-Type": "application/json" } });
        if (!response.ok) throw new Error((await response.json()).error.message);
        tell("");
      } catch (error) {
        waiting = [...changes, ...waiting];
        tell(`Not saved: ${error instanceof TypeError ? "the server cannot be reached" : error.message}. The next decision tries again.`);
        return;
      }
    }
  }
  addEventListener("beforeunload", (event) => { if (waiting.length || sending) event.preventDefault(); });
  return {
    entries: [],
    keep(changes) {
      waiting.push(...changes);
      sending ??= send().finally(() => { sending = null; });
    },
  };
}
