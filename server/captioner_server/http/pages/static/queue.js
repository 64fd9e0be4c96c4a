// When photos are captioned: one that was opened at once, all others in order. `page` is that of main.js.
function createQueue({ page, say, quietly, onDone, onProgress, onEnd }) {
  const AT_ONCE = 2, { photos } = page;
  let run = new AbortController(), stopped = null, captioningAll = null;

  // Returns the error that concerns all photos, if one did. `how` captions the photo.
  async function work(photo, how) {
    const { signal } = run;
    photo.working = true;
    photo.error = null;
    try {
      await how(photo, signal);
      photo.saved = false;
    } catch (error) {
      if (signal.aborted) return null;
      photo.retry = error.passing ?? false;
      if (error.general && photos.length > 1) return error;
      photo.error = error.message;
      photo.code = error.status === undefined ? "failed" : error.code.toLowerCase();
      if (page.opened === photo || photos.length === 1) say(`${photo.name}: ${error.message}`, { bad: true, retry: photo.retry });
    } finally {
      photo.working = false;
    }
    onDone(photo);
    return null;
  }

  async function one(photo, how) {
    const error = await work(photo, how);
    if (error && page.opened === photo) say(`${photo.name}: ${error.message}`, { bad: true, retry: true });
    if (error) stopped = error;
    else if (photos.length > 1) all(); // what stopped the others has passed
  }

  async function all() {
    const { signal } = run;
    stopped = null;
    onProgress(null);
    if (captioningAll === signal) return;
    captioningAll = signal;
    const next = () => photos.find((photo) => !photo.result && !photo.error && !photo.working);
    const worker = async () => {
      for (let photo = next(); photo && !signal.aborted && !stopped; photo = next()) {
        stopped = await work(photo, quietly) ?? stopped;
        if (signal.aborted) return;
        onProgress(photo);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    if (captioningAll === signal) captioningAll = null;
    onEnd();
  }

  function stop() {
    run.abort();
    run = new AbortController();
    captioningAll = stopped = null;
  }

  // How far the photos are, and what stopped them.
  function report() {
    const done = photos.filter((photo) => photo.result).length, { others } = page;
    const failed = photos.filter((photo) => photo.error), retry = Boolean(stopped) || failed.some((photo) => photo.retry);
    const parts = [`${done} of ${photos.length} photos captioned`];
    if (failed.length) parts.push(`${failed.length} failed`);
    if (others) parts.push(`${others} other ${others === 1 ? "file" : "files"} left out`);
    say(`${stopped ? `${stopped.message} ` : ""}${parts.join(", ")}`, { bad: Boolean(stopped), retry });
  }

  return { one, all, stop, report, get stopped() { return stopped; } };
}
