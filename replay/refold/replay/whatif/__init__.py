"""`whatif`: derive the decisions of another policy from recorded facts, up to the point where the facts stop
being evidence.
"""
