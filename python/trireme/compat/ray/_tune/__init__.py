"""ray.tune.Tuner: runs the trials of a grid or random search one after the other."""
