// Set the chosen colour scheme before anything is drawn. Without a choice, that of the system is used.
(() => {
  try {
    const chosen = localStorage.getItem("recollect.theme");
    if (chosen) document.documentElement.dataset.theme = chosen;
  } catch {
    // storage may be forbidden; the system's scheme is used
  }
})();
