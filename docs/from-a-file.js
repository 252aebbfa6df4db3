// A browser runs no worker of a page that was opened from a file, and so finds nothing there: no search is offered.
if (location.protocol === "file:") {
  document.querySelectorAll("[role=search]").forEach((box) => { box.hidden = true; });
}
