// Tabs as the ARIA practices have them: arrow keys move between them, and only the chosen one is in the tab order.

export function tabs(list, chosen) {
  const all = [...list.querySelectorAll('[role="tab"]')];
  const choose = (tab) => {
    for (const one of all) {
      const on = one === tab;
      one.setAttribute("aria-selected", on);
      one.tabIndex = on ? 0 : -1;
      document.getElementById(one.getAttribute("aria-controls")).hidden = !on;
    }
    chosen(tab.id);
  };
  for (const tab of all) tab.addEventListener("click", () => choose(tab));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
    next.focus();
    choose(next);
  });
}
