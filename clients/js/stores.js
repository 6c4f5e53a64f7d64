/** A store in `localStorage`, or in React Native's AsyncStorage. */
export const keyValueStore = (storage, prefix = "idempotency:") => {
  const get = async (name) => storage.getItem(prefix + name);
  const set = async (name, text) => storage.setItem(prefix + name, text);
  return {
    name: prefix,
    get,
    set,
    add: async (name, text) => (await get(name)) ?? set(name, text),
    delete: async (name) => storage.removeItem(prefix + name),
    names: async () => {
      const all = (await storage.getAllKeys?.()) ?? Object.keys(storage);
      return all.filter((each) => each.startsWith(prefix)).map((each) => each.slice(prefix.length));
    },
  };
};

/** A store in IndexedDB. What it has confirmed survives the browser, and of two tabs only one adds a name. */
export const indexedDBStore = (name = "idempotency") => {
  const end = (target, done, failed) =>
    new Promise((resolve, reject) => {
      target[done] = resolve;
      target[failed] = () => reject(target.error);
    });
  const run = (method) => async (key, text) => {
    const opening = indexedDB.open(name);
    opening.onupgradeneeded = () => opening.result.createObjectStore(name);
    await end(opening, "onsuccess", "onerror");
    const transaction = opening.result.transaction(name, "readwrite", { durability: "strict" });
    const request = transaction.objectStore(name)[method](...(text ? [text, key] : [key]));
    opening.result.close(); // when the transaction has ended
    await end(transaction, "oncomplete", "onabort");
    return request.result;
  };
  return {
    name,
    get: run("get"),
    set: run("put"),
    add: (key, text) =>
      run("add")(key, text).catch((error) => {
        if (error.name !== "ConstraintError") throw error;
      }),
    delete: run("delete"),
    names: run("getAllKeys"),
  };
};
