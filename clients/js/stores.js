/** A store in `localStorage`, or in React Native's AsyncStorage. */
export function keyValueStore(storage, prefix = "idempotency:") {
  const get = async (name) => storage.getItem(prefix + name);
  const set = async (name, text) => storage.setItem(prefix + name, text);
  return {
    name: prefix,
    get,
    set,
    add: async (name, text) => (await get(name)) == null && (await set(name, text), true),
    delete: async (name) => storage.removeItem(prefix + name),
    async names() {
      const all = (await storage.getAllKeys?.()) ?? Object.keys(storage);
      return all.filter((each) => each.startsWith(prefix)).map((each) => each.slice(prefix.length));
    },
  };
}

/** A store in IndexedDB. What it has confirmed survives the browser, and of two tabs only one adds a name. */
export function indexedDBStore(name = "idempotency") {
  const open = () =>
    new Promise((resolve, reject) => {
      const request = indexedDB.open(name);
      request.onupgradeneeded = () => request.result.createObjectStore("calls");
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(request.error);
    });
  const run = async (mode, method, ...values) => {
    const database = await open();
    const transaction = database.transaction("calls", mode, { durability: "strict" });
    const request = transaction.objectStore("calls")[method](...values);
    database.close(); // when the transaction has ended
    return new Promise((resolve, reject) => {
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error);
    });
  };
  return {
    name,
    get: (key) => run("readonly", "get", key),
    set: (key, text) => run("readwrite", "put", text, key),
    add: (key, text) =>
      run("readwrite", "add", text, key).then(
        () => true,
        (error) => {
          if (error.name !== "ConstraintError") throw error;
        },
      ),
    delete: (key) => run("readwrite", "delete", key),
    names: () => run("readonly", "getAllKeys"),
  };
}
