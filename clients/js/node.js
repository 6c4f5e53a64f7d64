import { webcrypto } from "node:crypto";
import { link, mkdir, open, readFile, readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";

export * from "./index.js";

globalThis.crypto ??= webcrypto; // Node 18

/** A store in a folder: one file for each call, on the disk before it is confirmed. */
export function fileStore(folder) {
  const path = (name) => join(folder, `${encodeURIComponent(name)}.json`);
  const sync = async (target, text) => {
    const file = await open(target, text === undefined ? "r" : "wx", 0o600);
    try {
      if (text !== undefined) await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
  };
  const write = async (text, publish) => {
    await mkdir(folder, { recursive: true });
    const draft = join(folder, `${webcrypto.randomUUID()}.draft`);
    try {
      await sync(draft, text);
      await publish(draft);
      await sync(folder).catch(() => {}); // Windows cannot open a folder
    } finally {
      await rm(draft, { force: true });
    }
  };
  const unless = (code, value) => (error) => {
    if (error.code !== code) throw error;
    return value;
  };
  return {
    name: folder,
    get: (name) => readFile(path(name), "utf8").catch(unless("ENOENT")),
    set: (name, text) => write(text, (draft) => rename(draft, path(name))),
    add: (name, text) => write(text, (draft) => link(draft, path(name))).catch(unless("EEXIST")),
    delete: (name) => rm(path(name), { force: true }),
    names: async () => {
      const files = await readdir(folder).catch(unless("ENOENT", []));
      return files.filter((each) => each.endsWith(".json")).map((each) => decodeURIComponent(each.slice(0, -5)));
    },
  };
}
