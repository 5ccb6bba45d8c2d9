"""One picture a file: a pure `render` to strips, and a thin widget around it."""
