"""The kinds of events as people are told of them: a row a kind, read by every listing, page and export."""
