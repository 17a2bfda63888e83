"""`whatif`: derive the decisions of another policy from recorded facts, as long as they are evidence."""
