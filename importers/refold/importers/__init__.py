"""Importers: transcripts of other agents, read into facts. Pure: bytes in, facts out."""
