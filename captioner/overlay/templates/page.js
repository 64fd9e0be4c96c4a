// The page of one photo.
createThemeButtons(document.querySelectorAll(".theme"));
const view = createView(document.querySelector(".view"));
view.show(JSON.parse(document.getElementById("data").textContent));
document.addEventListener("keydown", (event) => view.handleKey(event));
