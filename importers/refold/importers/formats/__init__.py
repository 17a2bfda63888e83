"""The formats of transcripts: a module or a package each."""
