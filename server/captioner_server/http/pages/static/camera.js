// The camera live: a frame goes to the server as soon as the one before is answered.
function createCamera(video, { show, captionFrame, fail, rate }) {
  const SIDE = 640, RETRY_MS = 500;
  let stream = null, stop = null, devices = [], current = "";

  async function start(device) {
    end();
    if (!navigator.mediaDevices) throw new Error("Browsers give pages a camera only over HTTPS or on localhost.");
    const wanted = device ? { deviceId: { exact: device } } : { facingMode: { ideal: "environment" } };
    stream = await navigator.mediaDevices.getUserMedia({ video: { ...wanted, width: { ideal: 1280 } }, audio: false });
    current = stream.getVideoTracks()[0].getSettings().deviceId ?? "";
    devices = (await navigator.mediaDevices.enumerateDevices()).filter(({ kind }) => kind === "videoinput");
    video.srcObject = stream;
    await video.play();
    stop = new AbortController();
    run(stop.signal);
    return devices.length;
  }

  // A frame as a JPEG of at most `side` pixels each way; null while there is none.
  async function grab(side) {
    if (!video.videoWidth) return null;
    const size = { width: video.videoWidth, height: video.videoHeight };
    const canvas = drawPhoto(video, size, side);
    return new Promise((resolve) => canvas.toBlob((blob) => resolve(blob && { blob, size }), "image/jpeg", 0.85));
  }

  async function run(signal) {
    let pace = 0, before = performance.now();
    while (!signal.aborted) {
      const frame = document.hidden ? null : await grab(SIDE);
      if (!frame) {
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        before = performance.now();
        continue;
      }
      try {
        const caption = await captionFrame(frame.blob, signal);
        if (signal.aborted) return;
        const now = performance.now();
        pace = pace ? 0.8 * pace + 0.2 * (now - before) : now - before;
        before = now;
        rate(1000 / pace);
        show(caption, frame.size);
        await new Promise(requestAnimationFrame); // what was drawn is seen before the next
      } catch (error) {
        if (signal.aborted) return;
        fail(error);
        return;
      }
    }
  }

  function end() {
    stop?.abort();
    stop = null;
    stream?.getTracks().forEach((track) => track.stop());
    stream = null;
    video.srcObject = null;
  }

  const other = () => devices[(devices.findIndex(({ deviceId }) => deviceId === current) + 1) % devices.length]?.deviceId;
  return { start, end, grab, switch: () => start(other()), get running() { return stop !== null; } };
}
