"""What opens above the tabs: a line to type into, and pages to read."""
