"use strict";
// The script loads the page again every two seconds and replaces the sections that have
// changed, so that what it shows is what the server renders.
(() => {
  const interval = 2000, sections = ["summary", "charts", "quotas", "queues", "budgets", "batches", "decision-list"];
  const status = document.getElementById("status"), pause = document.getElementById("pause");
  let paused = false, loading = false;

  const selected = (section) => {
    const s = getSelection(), focus = document.activeElement;
    return s && !s.isCollapsed && section.contains(s.anchorNode) || focus !== section && section.contains(focus);
  };

  const update = async () => {
    if (paused || loading || document.hidden) return;
    loading = true;
    try {
      const response = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (!response.ok) throw new Error(response.status);
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const id of sections) {
        const now = document.getElementById(id), next = page.getElementById(id);
        if (next && !selected(now) && now.innerHTML !== next.innerHTML) now.innerHTML = next.innerHTML;
      }
      const at = page.getElementById("at");
      status.textContent = "live, at " + at.textContent + " UTC";
      document.body.classList.remove("lost");
    } catch {
      status.textContent = "no response: what you see is out of date";
      document.body.classList.add("lost");
    } finally {
      loading = false;
    }
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Resume" : "Pause";
    if (paused) status.textContent = "paused " + status.textContent.replace(/^(live, |paused )/, "");
    update();
  });
  document.addEventListener("visibilitychange", update);
  setInterval(update, interval);
})();
