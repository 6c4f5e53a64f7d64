"use strict";
// Shows the numbers of a column by pointer, touch and in the same words; without it they are the browser's tooltips
// and the tables. A first touch shows the numbers, a second one follows the link.
document.addEventListener("DOMContentLoaded", () => {
    const tip = document.createElement("p");
    tip.className = "idem-tip";
    tip.hidden = true;
    document.body.append(tip);
    let shown = null;
    const hide = () => {
        tip.hidden = true;
        shown = null;
    };
    const show = (mark) => {
        shown = mark;
        tip.textContent = mark.dataset.tip;
        tip.hidden = false;
        const place = mark.getBoundingClientRect();
        const most = document.documentElement.clientWidth - tip.offsetWidth - 4;
        tip.style.left = `${scrollX + Math.max(4, Math.min(place.left + (place.width - tip.offsetWidth) / 2, most))}px`;
        tip.style.top = `${scrollY + place.top - tip.offsetHeight - 4}px`;
    };
    for (const title of document.querySelectorAll(".chart rect > title")) {
        const mark = title.parentElement;
        mark.dataset.tip = title.textContent;
        title.remove();
        let touched = false;
        mark.addEventListener("pointerenter", () => show(mark));
        mark.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
        mark.addEventListener("pointerdown", (event) => {
            touched = event.pointerType !== "mouse" && mark.dataset.read !== "yes";
            mark.dataset.read = "yes";
            show(mark);
        });
        mark.addEventListener("click", (event) => touched && event.preventDefault());
    }
    document.addEventListener("pointerdown", (event) => shown !== null && event.target !== shown && hide());
    document.addEventListener("keydown", (event) => event.key === "Escape" && hide());

    // What was unfolded stays so when the page is loaded again.
    const key = "idem-unfolded";
    const unfolded = new Set(JSON.parse(sessionStorage.getItem(key) || "[]"));
    for (const section of document.querySelectorAll(".idempotency-dashboard .card")) {
        const details = section.querySelector("details");
        if (details !== null) {
            const name = section.getAttribute("aria-labelledby");
            details.open = unfolded.has(name);
            details.addEventListener("toggle", () => {
                unfolded[details.open ? "add" : "delete"](name);
                sessionStorage.setItem(key, JSON.stringify([...unfolded]));
            });
        }
    }
});
