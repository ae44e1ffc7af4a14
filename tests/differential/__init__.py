"""Random plans over random tables, evaluated by trireme in both languages and by an independent oracle."""
