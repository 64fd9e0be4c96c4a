// Marks an element that holds text of captions, which may be in another language than the page.
function asCaption(element) {
  element.lang = document.body.dataset.language;
  return element;
}
