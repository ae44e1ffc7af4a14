"""Ray Train's name for the package of trireme.transformers."""
