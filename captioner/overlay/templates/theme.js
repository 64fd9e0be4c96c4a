// Light or dark: as the system says until a button is pressed, then as the reader chose.
function createThemeButtons(buttons) {
  const memory = createMemory("captioner-theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => { document.documentElement.style.colorScheme = memory.value ?? "light dark"; };
  buttons.forEach((button) => button.addEventListener("click", () => {
    const dark = memory.value ? memory.value === "dark" : system.matches;
    memory.value = dark ? "light" : "dark";
    apply();
  }));
  apply();
}
