// Photos that come from file fields, the clipboard, a drop, or the examples.
function takePhotosIn({ receive, fail }) {
  for (const input of document.querySelectorAll("input[type=file]"))
    input.addEventListener("change", () => {
      const found = named(input.files);
      input.value = "";
      if (found.length) receive(found);
    });
  addEventListener("paste", (event) => { if (event.clipboardData.files.length) receive(named(event.clipboardData.files)); });
  addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  addEventListener("drop", async (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    const found = await droppedFiles(event.dataTransfer).catch((error) => fail(`What was dropped cannot be read: ${error.message}`));
    if (found) await receive(found);
  });
  document.querySelector(".examples").addEventListener("click", async (event) => {
    const address = event.target.closest("button")?.querySelector("img").src;
    if (!address) return;
    const response = await fetch(address).catch(() => null);
    if (!response?.ok) return fail("The server cannot be reached.");
    const name = address.split("/").pop();
    await receive([{ file: new File([await response.blob()], name, { type: "image/jpeg" }), name }]);
  });
}
