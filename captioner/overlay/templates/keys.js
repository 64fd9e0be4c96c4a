// Keys of single characters, which readers may switch off: who speaks to the computer presses them by chance.
const characterKeys = (() => {
  const memory = createMemory("captioner-keys");
  const isOn = () => memory.value !== "off";

  // The character of a key that is pressed alone, and not to write something; an empty text without one.
  function of(event) {
    const held = event.altKey || event.ctrlKey || event.metaKey || event.repeat || (event.shiftKey && /\p{L}/u.test(event.key));
    if (!isOn() || held || event.key.length > 1 || isWriting(event)) return "";
    return event.key.toLowerCase();
  }

  // To be called for what has a key: <button data-key="a">.
  function tell(root) {
    document.body.classList.toggle("without-keys", !isOn());
    for (const one of root.querySelectorAll("[data-key]"))
      if (isOn()) one.setAttribute("aria-keyshortcuts", one.dataset.key);
      else one.removeAttribute("aria-keyshortcuts");
  }

  function allow(on) {
    memory.value = on ? "on" : "off";
    tell(document);
  }

  return { of, tell, allow, isOn };
})();

// Whether keys mean something to the field that has the focus.
const isWriting = (event) => event.target.matches("input:not([type=radio], [type=checkbox]), select, textarea");

// Keys with which letters are composed are for the field alone. Of the last one, Safari says so by its number only.
addEventListener("keydown", (event) => {
  if (!event.isComposing && event.keyCode !== 229) return;
  event.stopPropagation();
  if (event.key === "Escape") event.preventDefault(); // or dialogs close
}, true);

// The list of keys, which buttons and "?" open, also over the view of a photo.
function createKeyList(dialog, buttons) {
  const open = () => dialog.showModal(), field = dialog.querySelector(".character-keys");
  field.checked = characterKeys.isOn();
  field.addEventListener("change", () => characterKeys.allow(field.checked));
  characterKeys.tell(document);
  buttons.forEach((button) => button.addEventListener("click", open));
  document.addEventListener("keydown", (event) => {
    if (characterKeys.of(event) !== "?" || document.querySelector("dialog[open]:not(.viewer)")) return;
    event.preventDefault();
    open();
  });
}
