// The photos on the page: those that come in get names of their own, and those that go take nothing with them unasked.
function createAlbum({ photos, clearing, onNew, download }) {
  // A name that no photo on the page has.
  function freeName(name) {
    const taken = new Set(photos.map((photo) => photo.file)), [, start, end] = name.match(/^(.*?)(\.[^./]*)?$/s);
    for (let number = 1; ; number++) {
      const free = number === 1 ? name : `${start} (${number})${end ?? ""}`;
      if (!taken.has(free)) return free;
    }
  }

  function add(found) {
    for (const { file: blob, name } of found) {
      const file = freeName(name || "photo");
      const photo = { blob, file, name: file, number: photos.length + 1, url: URL.createObjectURL(blob), error: null, result: null };
      photos.push(photo);
      onNew(photo);
    }
  }

  function empty() {
    for (const photo of photos) {
      URL.revokeObjectURL(photo.url);
      if (photo.thumbnail) URL.revokeObjectURL(photo.thumbnail);
    }
    photos.length = 0;
  }

  // What is lost unless it is downloaded: decisions, and captions of more than one photo.
  const unsaved = () => photos.filter((photo) => !photo.saved && (photo.decision || (photos.length > 1 && photo.caption)));
  addEventListener("beforeunload", (event) => { if (unsaved().length) event.preventDefault(); });

  // Asks whether the photos may go, if something would be lost.
  function mayEmpty() {
    const count = unsaved().length;
    if (!count) return Promise.resolve(true);
    clearing.querySelector(".clearing-lost").textContent = `${count} ${count === 1 ? "caption has" : "captions have"} not been downloaded.`;
    clearing.returnValue = "";
    clearing.showModal();
    return new Promise((resolve) => {
      clearing.onclose = () => {
        if (clearing.returnValue === "download") download();
        resolve(["download", "clear"].includes(clearing.returnValue));
      };
    });
  }

  return { add, empty, mayEmpty };
}
