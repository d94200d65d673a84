// Hands the trace to Perfetto's own page: window.postMessage, as its documentation says ("deep linking").
"use strict";
(() => {
  const place = document.getElementById("perfetto");
  const said = place.querySelector("[role=status]");
  const { raw, title, perfetto } = place.dataset;
  place.querySelector("button").addEventListener("click", async () => {
    const other = window.open(perfetto); // at once: a browser opens no window later than the click
    if (!other) {
      said.textContent = "The browser did not open a window: allow pop-ups for this page.";
      return;
    }
    said.textContent = "Loading the trace…";
    let buffer;
    try {
      const answer = await fetch(raw);
      if (!answer.ok) throw new Error(await answer.text());
      buffer = await answer.arrayBuffer();
    } catch (error) {
      said.textContent = `The trace cannot be loaded: ${error.message}`;
      return;
    }
    // It answers PONG once it listens.
    const ask = setInterval(() => other.postMessage("PING", perfetto), 100);
    window.addEventListener("message", function heard(event) {
      if (event.origin !== perfetto || event.data !== "PONG") return;
      clearInterval(ask);
      window.removeEventListener("message", heard);
      other.postMessage({ perfetto: { buffer, title } }, perfetto, [buffer]);
      said.textContent = "Perfetto has the trace.";
    });
  });
})();
