// Files that a page makes of captions, in the browser: nothing is sent anywhere. Photos have a file name and what
// is said of them: {file, said}.

function saveFile(content, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function makeCorrections(entries) {
  return entries.map(([image, { caption, status }]) => `${JSON.stringify({ image, caption, status })}\n`).join("");
}

// As `captioner batch` writes CSV: no cell is one that spreadsheets take for a formula, also at semicolons and tabs.
function makeTable(photos) {
  const FIRST = /^(?=[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])/, LATER = /([;\t\r\n])(?=[=+\-@\uff1d\uff0b\uff0d\uff20])/g;
  const cell = (text) => (/[",;\t\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const row = ({ file, said }) => `${cell(file.replace(FIRST, "./"))},${cell(said.replace(LATER, "$1'").replace(FIRST, "'"))}`;
  return ["image,caption", ...photos.map(row), ""].join("\r\n");
}

const makeLines = (photos) => photos.map(({ said }) => `${said}\n`).join("");

function makeSidecars(photos) {
  const taken = new Set();
  return makeZip(photos.map(({ file, said }) => {
    const path = file.replace(/^(\.*\/)+/, ""), bare = `${path.replace(/\.[^./]*$/, "")}.txt`;
    const name = taken.has(bare) ? `${path}.txt` : bare; // two photos that differ in their suffix only
    taken.add(name);
    return [name, `${said}\n`];
  }));
}

// A ZIP of files that are stored as they are, from pairs of a name and a text.
function makeZip(files) {
  const encoder = new TextEncoder(), bodies = [], entries = [];
  const UTF8 = 0x0800, VERSION = 20, MIDNIGHT = 0, FIRST_DAY = 0x21;
  const crcTable = Uint32Array.from({ length: 256 }, (_, byte) => {
    for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
    return byte;
  });
  const checksum = (bytes) => ~bytes.reduce((sum, byte) => crcTable[(sum ^ byte) & 255] ^ (sum >>> 8), -1);
  // Numbers in little-endian order, each as [bytes, value].
  const pack = (...numbers) => {
    const view = new DataView(new ArrayBuffer(numbers.reduce((sum, [width]) => sum + width, 0)));
    let at = 0;
    for (const [width, value] of numbers) {
      if (width === 2) view.setUint16(at, value, true);
      else view.setUint32(at, value, true);
      at += width;
    }
    return new Uint8Array(view.buffer);
  };
  let place = 0, directory = 0;
  for (const [path, text] of files) {
    const name = encoder.encode(path), body = encoder.encode(text);
    const common = [[2, VERSION], [2, UTF8], [2, 0], [2, MIDNIGHT], [2, FIRST_DAY], [4, checksum(body)], [4, body.length],
      [4, body.length], [2, name.length], [2, 0]];
    const head = pack([4, 0x04034b50], ...common);
    const entry = pack([4, 0x02014b50], [2, VERSION], ...common, [2, 0], [2, 0], [2, 0], [4, 0], [4, place]);
    bodies.push(head, name, body);
    entries.push(entry, name);
    place += head.length + name.length + body.length;
    directory += entry.length + name.length;
  }
  const end = pack([4, 0x06054b50], [2, 0], [2, 0], [2, files.length], [2, files.length], [4, directory], [4, place], [2, 0]);
  return new Blob([...bodies, ...entries, end], { type: "application/zip" });
}
