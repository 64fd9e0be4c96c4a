// Asks for a token; the answer is null if none is given.
function createTokenDialog(dialog) {
  const field = dialog.querySelector(".token-field");
  dialog.querySelector(".token-cancel").addEventListener("click", () => dialog.close("cancel"));
  return (wrong) => new Promise((resolve) => {
    field.value = dialog.returnValue = "";
    dialog.querySelector(".token-problem").textContent = wrong ? "That token is not one of this server's." : "";
    if (!dialog.open) dialog.showModal();
    dialog.onclose = () => resolve((dialog.returnValue === "ok" && field.value.trim()) || null);
  });
}
