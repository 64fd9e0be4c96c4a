// The list of keys, which buttons and "?" open, also over the view of a photo.
function createKeyList(dialog, buttons) {
  const open = () => dialog.showModal();
  buttons.forEach((button) => button.addEventListener("click", open));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "?" || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
    if (document.querySelector("dialog[open]:not(.viewer)")) return;
    event.preventDefault();
    open();
  });
}
