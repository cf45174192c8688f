// What the theme leaves out for people who do not see it, or use no mouse: a name for the search, and wide tables that
// can be scrolled by keys.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
const reachable = () => document.querySelectorAll(".md-typeset__scrollwrap").forEach(one => { one.tabIndex = 0; });
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
reachable();
