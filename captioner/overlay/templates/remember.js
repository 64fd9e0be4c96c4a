// What the reader chose, in the browser; where it keeps nothing for the page, as long as the page lasts.
function createMemory(key) {
  let chosen = null;
  try { chosen = localStorage.getItem(key); } catch { /* there is no storage */ }
  return {
    get value() { return chosen; },
    set value(next) {
      chosen = next;
      try { localStorage.setItem(key, next); } catch { /* there is none, or it is full */ }
    },
  };
}
