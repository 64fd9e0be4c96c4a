// Files made of a photo and its caption, in the browser: nothing is sent anywhere.

const stem = (name) => name.replace(/\.[^.]*$/, "") || "caption";

// The photo on a canvas, at most `side` pixels each way; over white where it is transparent, as the model sees it.
function drawPhoto(image, { width, height }, side) {
  const scale = Math.min(1, side / Math.max(width, height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const context = canvas.getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

// One picture: the photo with its caption, then a panel for each word.
async function makeFigure(image, data, said, type) {
  const PANEL = 320, GAP = 16, LINE = 34, PAPER = "#faf9f6", INK = "#1b1a18", MUTED = "#615d56";
  const ratio = Math.min(3, Math.max(1 / 3, data.height / data.width)), high = Math.round(PANEL * ratio);
  const count = data.words.length + 1, columns = Math.min(count, Math.max(2, Math.round(Math.sqrt(count * ratio * 1.6))));
  const rows = Math.ceil(count / columns), canvas = document.createElement("canvas");
  canvas.width = columns * (PANEL + GAP) + GAP;
  canvas.height = LINE * 2 + rows * (high + LINE + GAP) + GAP;
  const context = canvas.getContext("2d"), photo = drawPhoto(image, data, 2 * PANEL);
  const font = (size) => `${size}px Georgia, "Noto Serif", serif`;
  context.fillStyle = PAPER;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = INK;
  let size = 30;
  do context.font = font(size--); while (size > 12 && context.measureText(said).width > canvas.width - 2 * GAP);
  context.fillText(said, GAP, LINE * 1.4, canvas.width - 2 * GAP);
  const heat = document.createElement("canvas"), table = colorTable(data.colormap);
  for (let place = 0; place < count; place++) {
    const x = GAP + place % columns * (PANEL + GAP), y = LINE * 2 + Math.floor(place / columns) * (high + LINE + GAP);
    const word = data.words[place - 1];
    context.filter = word ? "saturate(0.35) brightness(0.72)" : "none";
    context.drawImage(photo, x, y, PANEL, high);
    context.filter = "none";
    if (word?.map) {
      paintField(heat, smoothField(word, data.grid, 10), data.mode, table, data.alpha);
      context.drawImage(heat, x, y, PANEL, high);
    }
    context.font = font(20);
    context.fillStyle = word ? INK : MUTED;
    context.fillText(word ? `${word.text}  ${Math.round(word.probability * 100)}%` : "photo", x, y + high + 24, PANEL);
  }
  return new Promise((resolve) => canvas.toBlob(resolve, type, 0.9));
}

// The page that `captioner overlay -o page.html` writes.
async function makePage(image, data, said, name) {
  const response = await fetch("overlay.html");
  const shell = await response.text();
  const escape = (text) => text.replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
  const json = (value) => JSON.stringify(value).replace(/[<>&\u007f-\uffff]/g,
    (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
  const { url, ...kept } = data; // the photo stands in the page itself
  const caption = escape(said), { language } = document.body.dataset;
  const values = {
    language, title: escape(`${said} – ${name}`), name: escape(name), caption, data: json({ ...kept, said }),
    photo: `<img lang="${language}" alt="${caption}" src="${drawPhoto(image, data, 1600).toDataURL("image/jpeg", 0.85)}">`,
    heading: `<h1 class="unseen" lang="${language}">${caption}</h1>`,
  };
  return shell.replace(/\{\{(\w+)\}\}/g, (_, key) => values[key]);
}

// The record of a photo. The words and probabilities of the model are not those of another caption.
function makeRecord(photo, said) {
  const { caption, model, ...ofModel } = photo.result;
  return { image: photo.file, caption: said, model, ...(said === caption && ofModel) };
}

function saveRecords(photos) {
  const lines = photos.filter((photo) => photo.result || photo.error).map((photo) => JSON.stringify(photo.result
    ? { image: photo.file, ...photo.result } : { image: photo.file, error: { code: photo.code, message: photo.error } }));
  saveFile(`${lines.join("\n")}\n`, "captions.jsonl", "application/jsonl");
}

async function download(format, image, photo, said) {
  const name = stem(photo.name);
  if (format === "json") return saveFile(JSON.stringify(makeRecord(photo, said), null, 1), `${name}.json`, "application/json");
  if (!image.naturalWidth) throw new Error("This browser cannot show the photo, and so cannot draw it: only JSON can be downloaded.");
  if (format === "html") return saveFile(await makePage(image, photo.payload, said, photo.name), `${name}.html`, "text/html");
  const made = await makeFigure(image, photo.payload, said, `image/${format}`);
  return saveFile(made, `${name}.${made.type.slice(6)}`); // browsers that cannot write WebP write PNG
}
