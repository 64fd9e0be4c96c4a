// Approving, editing and rejecting the caption of the photo that is open, by key and by mouse. `list` returns the photos
// that are gone through, in their order.
function createReview(root, { decisions, list, onNext }) {
  const find = (selector) => root.querySelector(selector);
  const editor = find(".editor"), field = find(".editor textarea"), state = find(".review-state");
  const position = document.querySelector(".position");
  const NAMES = { approved: "Approved", edited: "Edited", rejected: "Rejected" };
  let photo = null;

  const said = () => decisions.of(photo.file)?.caption ?? photo.caption;

  // The same decision once more takes it back.
  function decide(status, caption) {
    const known = decisions.of(photo.file);
    const again = known?.status === status && known.caption === caption;
    decisions.decide([[photo.file, again ? null : { caption, status }]], again ? `No longer ${status}` : NAMES[status]);
    if (!again) onNext();
  }

  function show() {
    const decision = photo && decisions.of(photo.file), open = Boolean(photo && photo.error === null && photo.caption);
    // A photo without a caption of the model shows that of a person nowhere else.
    state.textContent = decision ? `${NAMES[decision.status]}${photo.caption ? "" : `: ${decision.caption}`}` : "";
    find(".undo").disabled = !decisions.canUndo;
    for (const name of [".approve", ".reject"]) find(name).disabled = !open;
    find(".edit").disabled = !photo;
    find(".approve").setAttribute("aria-pressed", String(decision?.status === "approved"));
    find(".reject").setAttribute("aria-pressed", String(decision?.status === "rejected"));
    const decided = list().filter(({ file }) => decisions.of(file)).length;
    find(".review-count").textContent = decided ? `${decided.toLocaleString()} of ${list().length.toLocaleString()} decided` : "";
  }

  function open(next) {
    photo = next;
    editor.hidden = true;
    const place = list().indexOf(photo), count = list().length;
    find(".review-now").textContent = "";
    position.textContent = place < 0 || count < 2 ? "" : `${(place + 1).toLocaleString()} of ${count.toLocaleString()}`;
    show();
  }

  const approve = () => { if (!find(".approve").disabled) decide("approved", said()); };
  const reject = () => { if (!find(".reject").disabled) decide("rejected", said()); };
  function edit() {
    if (!photo) return;
    editor.hidden = false;
    asCaption(field).value = said() ?? "";
    field.focus();
    field.select();
  }
  function cancel() {
    editor.hidden = true;
    find(".edit").focus();
  }
  function use(text) {
    if (!text || text === said()) return onNext(); // an empty alternative is no caption
    decisions.decide([[photo.file, { caption: text, status: text === photo.caption ? "approved" : "edited" }]], "Edited");
    return onNext();
  }
  function save() {
    const text = oneLine(field.value);
    if (!text) return field.focus();
    cancel();
    return use(text);
  }

  find(".approve").addEventListener("click", approve);
  find(".reject").addEventListener("click", reject);
  find(".edit").addEventListener("click", edit);
  find(".undo").addEventListener("click", decisions.undo);
  find(".cancel").addEventListener("click", cancel);
  editor.addEventListener("submit", (event) => { event.preventDefault(); save(); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); save(); }
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); cancel(); }
  });

  // What was done, for those who see and for those who hear the page: the view may have moved on since.
  const tell = (text) => { find(".review-done").textContent = text; };

  // To be called when the photo is shown: says which one, and moves the focus, if what had it is gone, to `caption`.
  function announce(text, caption) {
    find(".review-now").textContent = [photo.name, position.textContent, text].filter(Boolean).join(", ");
    const focused = document.activeElement;
    if (focused.matches("body, dialog, :disabled") || !focused.checkVisibility()) caption.focus({ preventScroll: true });
  }

  // Returns whether the key meant something.
  function handleKey(event) {
    const action = { a: approve, e: edit, r: reject }[characterKeys.of(event)];
    if (!action || !photo) return false;
    event.preventDefault();
    action();
    return true;
  }

  return { open, show, use, tell, announce, handleKey, get editing() { return !editor.hidden; } };
}
