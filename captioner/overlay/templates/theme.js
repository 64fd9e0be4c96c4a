// Light or dark: as the system says until a button is pressed, then as the reader chose.
function createThemeButtons(buttons) {
  const key = "captioner-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem(key); } catch { /* pages from disk may have no storage */ }
  const apply = () => { document.documentElement.style.colorScheme = chosen ?? "light dark"; };
  buttons.forEach((button) => button.addEventListener("click", () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    chosen = dark ? "light" : "dark";
    try { localStorage.setItem(key, chosen); } catch { /* the choice then lasts as long as the page */ }
    apply();
  }));
  apply();
}
