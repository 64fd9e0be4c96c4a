// Captions one photo: word by word, or quietly with a thumbnail. A photo is {name, blob, url} and gets {size, result,
// thumbnail}; what this browser cannot show is replaced by the picture that the server decoded. `options` and `limits`
// are known once what `ready` promises has come.
function createCaptioning({ api, tell, options, limits, ready }) {
  const THUMBNAIL = 400;

  async function sizeOf(url) {
    const probe = new Image();
    probe.src = url;
    await probe.decode().catch(() => {});
    return probe.naturalWidth ? { width: probe.naturalWidth, height: probe.naturalHeight } : null;
  }

  const small = (photo) => shrink(photo.blob, limits().max_image_bytes ?? Infinity);

  // The size of a photo, and a picture of it that this browser shows.
  async function prepare(photo, signal) {
    await ready();
    photo.size = await sizeOf(photo.url);
    if (photo.size) return;
    const picture = await api.picture(await small(photo), { signal, tell }).catch((error) => {
      if (signal.aborted) throw error;
      return null; // the call for the caption says why
    });
    if (picture) {
      URL.revokeObjectURL(photo.url);
      photo.url = URL.createObjectURL(picture);
      photo.shown = picture;
      photo.size = await sizeOf(photo.url);
    }
    photo.size ??= { width: 4, height: 3, unseen: true };
  }

  async function makeThumbnail(photo) {
    if (photo.thumbnail) return;
    const bitmap = await createImageBitmap(photo.shown ?? photo.blob).catch(() => null);
    if (!bitmap) return;
    const made = drawPhoto(bitmap, bitmap, THUMBNAIL);
    bitmap.close();
    photo.thumbnail = await new Promise((resolve) => made.toBlob((blob) => resolve(blob && URL.createObjectURL(blob)), "image/jpeg", 0.8));
  }

  async function quietly(photo, signal) {
    await prepare(photo, signal);
    photo.result = await api.caption(await small(photo), options(), { signal, tell });
    await makeThumbnail(photo);
  }

  // `onWord` is called with the words so far.
  async function aloud(photo, signal, onWord) {
    const words = [];
    for await (const [kind, data] of api.stream(await small(photo), options(), { signal, tell })) {
      if (kind === "word") words.push(data);
      else photo.result = data;
      if (kind === "word") onWord(words);
    }
    await makeThumbnail(photo);
  }

  return { prepare, quietly, aloud };
}
