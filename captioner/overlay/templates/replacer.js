// Find and replace over captions: whole words, in any case.
function createReplacer(dialog, { shown, all, saidOf, onReplace }) {
  const find = (selector) => dialog.querySelector(selector);
  const from = find(".find-text"), to = find(".replace-text"), SAMPLES = 3;
  let changes = [];

  function replaced(text) {
    const letters = from.value.trim().replace(/[.*+?^${}()|[\]\\\/]/g, "\\$&").replace(/\s+/g, "\\s+");
    const pattern = new RegExp(`(?<![\\p{L}\\p{M}\\p{N}])${letters}(?![\\p{L}\\p{M}\\p{N}])`, "giu");
    const initial = (word) => word.slice(0, 1);
    const put = (found) => {
      const upper = initial(found) !== initial(found).toLowerCase() && found !== from.value.trim();
      return upper ? initial(to.value.trim()).toUpperCase() + to.value.trim().slice(1) : to.value.trim();
    };
    return oneLine(text.replace(pattern, put));
  }

  function look() {
    const photos = (find(".shown-only").checked ? shown() : all()).filter((photo) => saidOf(photo) && photo.decision?.status !== "rejected");
    changes = from.value.trim() ? photos.map((photo) => [photo, replaced(saidOf(photo))]).filter(([photo, text]) => text && text !== saidOf(photo)) : [];
    const count = changes.length;
    find(".replacer-count").textContent = !from.value.trim() ? "" : count ? `${count} ${count === 1 ? "caption changes" : "captions change"}:` : "No caption has these words.";
    find(".replacer-samples").replaceChildren(...changes.slice(0, SAMPLES).map(([, text]) => {
      const item = asCaption(document.createElement("li"));
      item.dir = "auto";
      item.textContent = text;
      return item;
    }));
    find("[value=ok]").disabled = !count;
  }

  for (const field of [from, to, find(".shown-only")]) field.addEventListener("input", look);
  find(".replacer-cancel").addEventListener("click", () => dialog.close("cancel"));
  find("form").addEventListener("submit", () => { if (changes.length) onReplace(changes); });
  return {
    open() {
      dialog.showModal();
      from.select();
      look();
    },
  };
}
