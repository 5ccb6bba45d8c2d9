"""Real models, digitally and through the light: what accuracy survives and what it costs."""
