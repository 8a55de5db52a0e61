// The colour scheme that was chosen, before the first paint. Not a module, because modules run after it.
try {
  const chosen = localStorage.getItem("settee.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is not allowed: the system's scheme holds.
}
