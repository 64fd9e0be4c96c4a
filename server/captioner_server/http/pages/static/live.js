// The camera on the page: its captions live, and photos that are taken with it. `page` is that of main.js.
function createLive({ page, given, api, view, say, turnTo, receive, leave }) {
  const find = (selector) => document.querySelector(selector);
  const isHeld = () => find(".sentence:hover") && matchMedia("(hover: hover)").matches || find(".sentence :focus-visible");
  const camera = createCamera(find(".photo video"), {
    captionFrame: (frame, signal) => api.caption(frame, { attention: true, beam_size: 1 }, { signal, tell: say }),
    show: (caption, size) => { if (!isHeld()) { say(""); view.show(makePayload(caption, size, given)); } },
    fail: (error) => giveUp(error.message),
    rate: (pace) => { find(".rate").textContent = `${pace.toFixed(1)} captions a second`; },
  });

  function giveUp(message) {
    stop();
    leave();
    say(message, { bad: true });
  }

  async function start(begin) {
    try {
      const cameras = await begin();
      page.opened = null;
      turnTo("live");
      find(".switch").hidden = cameras < 2;
    } catch (error) {
      giveUp(error.name === "NotAllowedError" ? "The browser was not allowed to use the camera."
        : error.name === "NotFoundError" ? "There is no camera." : error.message);
    }
  }

  function stop() {
    if (page.part !== "live") return;
    camera.end();
    view.stop();
    turnTo(page.photos.length ? "gallery" : "empty");
    (find(".add-menu[hidden]") ? find(".camera") : find(".add-menu summary")).focus();
  }

  find(".camera").addEventListener("click", () => start(() => camera.start()));
  find(".switch").addEventListener("click", () => start(() => camera.switch()));
  find(".end").addEventListener("click", () => { stop(); say(""); leave(); });
  find(".take").addEventListener("click", async () => {
    const frame = await camera.grab(Infinity);
    stop();
    if (frame) await receive([{ file: new File([frame.blob], "camera.jpg", { type: "image/jpeg" }), name: "camera.jpg" }]);
    else leave();
  });

  return { stop };
}
