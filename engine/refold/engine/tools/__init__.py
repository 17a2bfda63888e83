"""Tools: what an agent can do to the world, and the ones that come built in."""
