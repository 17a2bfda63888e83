"""The importer of one format: see `importer`."""
