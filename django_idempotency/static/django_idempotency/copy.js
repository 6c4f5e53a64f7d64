"use strict";
// Shows the copy buttons where the browser lets a page write to the clipboard; without it the keys are plain text.
document.addEventListener("DOMContentLoaded", () => {
    if (!navigator.clipboard) {
        return;
    }
    for (const button of document.querySelectorAll(".idem-copy")) {
        button.hidden = false;
        button.addEventListener("click", async () => {
            await navigator.clipboard.writeText(button.dataset.copy);
            button.classList.add("idem-copied");
        });
    }
});
