// Photos from drops, folders, the clipboard and file fields.

const IMAGE_NAME = /\.(arw|avif|bmp|cr[23]|dng|gif|hei[cf]|jpe?g|nef|nrw|orf|p[bgnp]m|pef|png|raf|rw2|srw|tiff?|webp)$/i;
const isImage = (file) => file.type.startsWith("image/") || IMAGE_NAME.test(file.name);

// All files below the entries of a drop, by path, with the path as name.
async function readEntries(entries) {
  const found = [];
  for (const entry of entries) {
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      found.push({ file, name: entry.fullPath.replace(/^\//, "") });
    } else if (entry.isDirectory) {
      const reader = entry.createReader(), inside = [];
      for (;;) { // a reader gives some at a time
        const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
        if (!some.length) break;
        inside.push(...some);
      }
      inside.sort((a, b) => names.compare(a.name, b.name));
      found.push(...await readEntries(inside));
    }
  }
  return found;
}

const named = (files) => [...files].map((file) => ({ file, name: file.webkitRelativePath || file.name }));

async function droppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  return entries.length ? readEntries(entries) : named(transfer.files);
}

// The photo made smaller, as a JPEG, where it is larger than the server takes.
async function shrink(file, mostBytes) {
  if (file.size <= mostBytes) return file;
  const bitmap = await createImageBitmap(file).catch(() => null);
  const canvas = bitmap && drawPhoto(bitmap, bitmap, 2048);
  const made = canvas && await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.9));
  if (made && made.size <= mostBytes) return made;
  const size = (bytes) => `${(bytes / 2 ** 20).toPrecision(2).replace(/\.0$/, "")} MB`;
  throw new Error(`The file is too large: it has ${size(file.size)}, the server takes ${size(mostBytes)}, `
    + "and this browser cannot make it smaller.");
}
