"""What an importer says of a run, as facts, with the decisions that follow from them: see `deriving`."""
