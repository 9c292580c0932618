"""Pictures of what the processing steps do: real pipelines on a generated driving scene.

    driving_scenes  ->  scene.Scene  ->  pipelines.processed(samples, steps)  ->  drawing.Tile  ->  one image file

- `scene`: samples of one generated scene, as trees of arrays
- `pipelines`: runs steps on such samples, by `testing.run_step`
- `drawing`: boxes, the view from above, histograms; tiles beside each other
- `pixel_pictures`, `plane_pictures`, `object_pictures`: a function per picture
- `gallery`: all pictures by name

`make_step_pictures.py` writes them.
"""
