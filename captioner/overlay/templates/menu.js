// A <details> that is a menu: it closes on Escape, on a press elsewhere, and before what was chosen happens.
function createMenu(menu) {
  const summary = menu.querySelector("summary");
  function leave() {
    menu.open = false;
    summary.focus();
  }
  menu.addEventListener("click", (event) => { if (event.target.closest("button, label")) leave(); }, true);
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    leave();
  });
  document.addEventListener("pointerdown", (event) => { if (!menu.contains(event.target)) menu.open = false; });
}
