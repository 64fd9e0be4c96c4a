// Approving, editing and rejecting captions. What was decided stays in the browser, as far as it allows that for
// pages from disk, and is taken away as a file of JSON lines, {"image", "caption", "status"}.
function createReview(root, { storageKey, onChange, onNext }) {
  const find = (selector) => root.querySelector(selector);
  const editor = find(".editor"), field = find(".editor textarea"), state = find(".review-state");
  const NAMES = { approved: "Approved", edited: "Edited", rejected: "Rejected" };
  const decided = new Map(); // file name of the photo -> {caption, status}
  let photo = null;

  try {
    for (const [name, decision] of JSON.parse(localStorage.getItem(storageKey) ?? "[]"))
      if (NAMES[decision?.status]) decided.set(name, { caption: String(decision.caption), status: decision.status });
  } catch { /* a browser that keeps nothing for pages from disk, or something else's data */ }

  function keep() {
    try { localStorage.setItem(storageKey, JSON.stringify([...decided])); } catch { /* as above */ }
  }

  function decide(status, caption) {
    const known = decided.get(photo.file);
    if (status) decided.set(photo.file, { caption: caption ?? known?.caption ?? photo.caption, status });
    else decided.delete(photo.file);
    keep();
    onChange(photo);
    showState();
  }

  function showState() {
    const decision = decided.get(photo.file);
    state.textContent = decision ? `${NAMES[decision.status]}${decision.status === "edited" ? `: ${decision.caption}` : ""}` : "";
    find(".undo").disabled = !decision;
    find(".approve").disabled = find(".reject").disabled = photo.error !== null;
  }

  function open(next) {
    photo = next;
    editor.hidden = true;
    showState();
  }

  function approve() { if (photo.error === null) { decide("approved", photo.caption); onNext(); } }
  function reject() { if (photo.error === null) { decide("rejected", photo.caption); onNext(); } }
  function edit() {
    editor.hidden = false;
    field.value = decided.get(photo.file)?.caption ?? photo.caption;
    field.focus();
    field.select();
  }
  function cancel() {
    editor.hidden = true;
    find(".edit").focus();
  }
  function save() {
    const text = field.value.trim().replace(/\s+/g, " ");
    if (!text) return field.focus();
    editor.hidden = true;
    decide(text === photo.caption ? "approved" : "edited", text);
    onNext();
  }

  find(".approve").addEventListener("click", approve);
  find(".reject").addEventListener("click", reject);
  find(".edit").addEventListener("click", edit);
  find(".undo").addEventListener("click", () => decide(null));
  find(".cancel").addEventListener("click", cancel);
  editor.addEventListener("submit", (event) => { event.preventDefault(); save(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); save(); }
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); cancel(); }
  });

  // Returns whether the key meant something.
  function handleKey(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return false;
    const action = { a: approve, e: edit, r: reject, u: () => decide(null) }[event.key.toLowerCase()];
    if (!action) return false;
    event.preventDefault();
    action();
    return true;
  }

  function download(fileName) {
    const lines = [...decided].map(([image, { caption, status }]) => `${JSON.stringify({ image, caption, status })}\n`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
    link.download = fileName;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  return { open, handleKey, download, of: (name) => decided.get(name), count: () => decided.size };
}
