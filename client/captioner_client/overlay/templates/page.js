// The page of one photo.
createThemeButton(document.querySelector(".theme"));
const view = createView(document.querySelector(".view"));
view.show(JSON.parse(document.getElementById("data").textContent));
document.addEventListener("keydown", (event) => view.handleKey(event));
