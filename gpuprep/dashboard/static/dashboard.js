// A page that says data-live is loaded again each minute, while somebody can see it and nobody types in it.
// A button holds that. Without this script the pages are the same and stand still.
"use strict";
(() => {
  if (!("live" in document.body.dataset)) return;
  const seconds = 60, key = "gpuprep-live";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "live";
  const on = () => sessionStorage.getItem(key) !== "off";
  const say = () => {
    button.textContent = on() ? "Live" : "Held";
    button.setAttribute("aria-pressed", String(on()));
    button.title = on() ? `Loaded again every ${seconds} s` : "Not loaded again";
  };
  button.addEventListener("click", () => {
    sessionStorage.setItem(key, on() ? "off" : "on");
    say();
  });
  say();
  document.querySelector(".bar-top form").append(button);
  setInterval(() => {
    const busy = document.activeElement && document.activeElement.matches("input, select");
    if (on() && !busy && document.visibilityState === "visible" && String(getSelection()) === "") location.reload();
  }, seconds * 1000);
})();
