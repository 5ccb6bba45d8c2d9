"""The cost explorer: move a slider, see what it does to time, energy and money.

| file | holds |
|---|---|
| `field`, `number` | what a control may say, and how numbers are written and read |
| `state` | one frozen `Setup`, its history, share string and file |
| `answer`, `metric` | what a solver returns, and the metrics that are shown of it |
| `solver`, `engine` | the narrow protocol to the calculation, and the one thread that drives it |
| `theme`, `symbols`, `canvas`, `axis` | colour, glyphs, the cell raster, scales |
| `widgets/` | one pure `render` function a picture, and a thin widget around it |
| `app`, `keymap`, `screens/` | the application |
| `export`, `once`, `plain`, `web` | the same answers as files, as text, as a conversation, in a browser |

Nothing here computes a result: every number comes from the solver.
"""
