"""Experiment trackers: callbacks for `RunConfig(callbacks=[...])`, one module per tracker."""
