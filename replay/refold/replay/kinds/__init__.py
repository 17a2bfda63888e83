"""How event kinds are displayed: one row per kind, read by every listing, page and export."""
