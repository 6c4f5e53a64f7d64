import type { Store } from "./index.js";

export * from "./index.js";

/** A store in a folder: one file for each call. */
export function fileStore(folder: string): Store;
